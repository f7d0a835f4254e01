"""Turns as messages in a channel or thread."""

from __future__ import annotations

from bot.chat.actions import FeedbackValue, SendFeedback
from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import ToolCall
from bot.domain.turns import Step, StepStatus, TurnInput, TurnStatus, TurnView
from bot.platforms.discord.components import OutgoingMessage, decode
from bot.platforms.discord.message_layout import ANSWER_LIMITS, turn_messages
from tests.platforms import sample_views
from tests.platforms.discord.payload_checks import button_id, check_slot, labels
from tests.platforms.sample_views import a_call, a_reply, a_view

PRIYA = Author("discord", "1001", "Priya")
THREAD = ConversationKey("discord", "1", "2", "3")


def messages_by_slot(view: TurnView) -> dict[str, OutgoingMessage]:
    """Return the outgoing messages by slot, after Discord's checks."""
    slots = turn_messages(sample_views.at(view, THREAD, PRIYA), sample_views.NOW)
    for slot in slots:
        check_slot(slot, frozenset({PRIYA.id}))
    assert len({slot.name for slot in slots}) == len(slots)
    return {slot.name: slot for slot in slots}


def only(view: TurnView) -> str:
    (slot,) = messages_by_slot(view).values()
    return outline(slot)


def outline(slot: OutgoingMessage) -> str:
    buttons = " ".join(f"[{label}]" for label in labels(slot.components))
    return "\n".join(filter(None, (slot.content, buttons)))


def test_an_answer_is_drawn_with_its_tools_in_their_order() -> None:
    assert (
        only(sample_views.ANSWERED)
        == """\
I look at the deploys and the logs.
-# ✓ github.list_deploys  2 deploys since 13:30
-# ✓ grafana.search_logs  412 lines (+1 line)
Checkout's 502s began at **14:05**, two minutes after deploy `a81f3c2`.
- 97 % come from the payments pool
  - connections went from 200 to 20
- The deploy changed `POOL_SIZE`

```
pool      before  after
────────  ──────  ─────
payments     200     20
sessions      50     50
```

```yaml
POOL_SIZE: 200
```

> Restore it, or roll back.

See [the deploy](<https://deploys.example/a81f3c2>).
-# AI answer. Check before acting.
[👍] [👎]"""
    )


def test_a_reply_that_is_being_written_is_drawn_as_far_as_it_is() -> None:
    assert only(a_view(streaming="**Half** a sent\n```py\nx = ")) == "**Half** a sent\n\n```py\nx = \n```\n[Stop]"


def test_opinions_are_asked_for_at_the_final_answer_alone() -> None:
    (slot,) = messages_by_slot(sample_views.ANSWERED).values()
    assert decode(button_id(slot.components, "👍")) == SendFeedback(sample_views.ANSWERED.turn.id, FeedbackValue.GOOD)
    assert decode(button_id(slot.components, "👎")) == SendFeedback(sample_views.ANSWERED.turn.id, FeedbackValue.BAD)
    assert "👍" not in only(a_view(a_reply(0, "I look."), status=TurnStatus.FAILED))


def test_the_result_of_a_call_by_hand_is_drawn_as_it_stands() -> None:
    question = TurnInput("Run it", call=ToolCall("c", "x"))
    step = a_call(1, sample_views.DEPLOYS, StepStatus.DONE, "**2** deploys <@1> ```")
    assert only(a_view(step, status=TurnStatus.DONE, question=question)).startswith(
        "-# ✓ github.list_deploys\n`**2** deploys <@1> `\\`\\`\\`"
    )


def test_an_answer_of_three_messages_goes_on_where_it_was_cut_and_opens_its_code_again() -> None:
    words = [f"word{number}" for number in range(480)]
    code = "\n".join(["```python", *words, "```"])
    slots = messages_by_slot(a_view(a_reply(0, f"Look:\n\n{code}\n\nThat is all."), status=TurnStatus.DONE))
    assert list(slots) == ["answer-0", "answer-0-1", "answer-0-2"]
    said = [slot.content for slot in slots.values()]
    assert said[0].endswith("\n```")
    assert said[1].startswith("-# (continued 2)\n```python\n")
    assert [each for text in said for each in text.split() if each.startswith("word")] == words


def test_a_longer_answer_ends_in_a_file_with_all_of_it() -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 100 for number in range(60))
    slots = messages_by_slot(a_view(a_reply(0, text), status=TurnStatus.DONE))
    *beginning, last = slots.values()
    assert len(slots) == ANSWER_LIMITS.most_messages
    assert slots["answer-0"].content.startswith("Paragraph 0.")
    assert last.file is not None
    assert (last.name, last.file.name, last.file.data.decode()) == ("answer-0-file", "answer.md", text.strip())
    assert "answer.md: 30,9" in last.content
    assert labels(last.components) == ["👍", "👎"]
    assert not any(message.file or message.components for message in beginning)


def test_an_answer_that_people_would_read_needs_no_file() -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 300 for number in range(10))
    slots = messages_by_slot(a_view(a_reply(0, text), status=TurnStatus.DONE))
    assert len(slots) == ANSWER_LIMITS.most_messages
    assert not any(slot.file for slot in slots.values())


def test_while_it_is_written_a_long_answer_shows_its_lasting_part_and_progress() -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 100 for number in range(60))
    *beginning, last = messages_by_slot(a_view(streaming=text)).values()
    assert "Still writing: 30,9" in last.content
    assert not any(slot.file for slot in (*beginning, last))
    complete = messages_by_slot(a_view(a_reply(0, text), status=TurnStatus.DONE))
    assert [(slot.name, slot.content) for slot in beginning] == [
        (slot.name, slot.content) for slot in list(complete.values())[:-1]
    ]


def test_of_very_many_calls_the_last_are_shown_and_the_rest_is_counted() -> None:
    calls: list[Step] = [a_call(n, sample_views.LOGS, StepStatus.DONE, "x" * 500) for n in range(1, 48)]
    failed = a_call(48, sample_views.LOGS, StepStatus.FAILED, "no")
    last = [a_call(n, sample_views.LOGS, StepStatus.DONE, "y") for n in range(49, 49 + ANSWER_LIMITS.latest_calls)]
    (slot,) = messages_by_slot(a_view(*calls, failed, *last, a_reply(90, "There."), status=TurnStatus.DONE)).values()
    assert slot.content.startswith("There.\n-# 48 earlier calls: 47 ✓  1 ✗\n-# ✓ grafana.search_logs  y\n")
    assert slot.content.count("search_logs") == ANSWER_LIMITS.latest_calls
