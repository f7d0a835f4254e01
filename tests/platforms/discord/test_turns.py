"""Turns as messages in a channel or thread."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chat.actions import FeedbackValue, SendFeedback
from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import ToolCall
from bot.domain.turns import Step, StepStatus, TurnInput, TurnStatus, TurnView
from bot.platforms.discord.components import OutgoingMessage, decode
from bot.platforms.discord.message_layout import ANSWER_LIMITS, turn_messages
from bot.rendering.timeline import CheckCallAction, RunAgainAction, StopTurnAction
from tests.platforms import sample_views
from tests.platforms.discord.payload_checks import check_slot, labels, pressed
from tests.platforms.sample_views import a_call, a_filing, a_reply, a_view
from tests.rendering.markdown_texts import ANY

PRIYA = Author("discord", "1001", "Priya")
THREAD = ConversationKey("discord", "1", "2", "3")


def drawn(view: TurnView) -> dict[str, OutgoingMessage]:
    """Return the outgoing messages by slot, after Discord's checks."""
    slots = turn_messages(sample_views.at(view, THREAD, PRIYA), sample_views.NOW)
    for slot in slots:
        check_slot(slot, frozenset({PRIYA.id}))
    assert len({slot.name for slot in slots}) == len(slots)
    return {slot.name: slot for slot in slots}


def only(view: TurnView) -> str:
    (slot,) = drawn(view).values()
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


def test_a_turn_at_work_shows_its_progress_and_can_be_stopped() -> None:
    assert (
        only(sample_views.WRITING)
        == """\
I look at the deploys and the logs.
-# ✓ github.list_deploys  2 deploys since 13:30
-# ◌ grafana.search_logs  checkout, last 60 min
[Stop]"""
    )
    (slot,) = drawn(sample_views.WRITING).values()
    assert decode(pressed(slot.components, "Stop")) == StopTurnAction(sample_views.WRITING.turn.id)


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (StepStatus.READY, "◌ github.list_deploys  about to run"),
        (StepStatus.DONE, "✓ github.list_deploys  403: no"),
        (StepStatus.FAILED, "✗ github.list_deploys  failed  403: no"),
        (StepStatus.UNKNOWN, "? github.list_deploys  may or may not have happened  403: no"),
        (StepStatus.DENIED, "⊘ github.list_deploys  denied  403: no"),
    ],
)
def test_every_state_of_a_call_has_its_line(status: StepStatus, line: str) -> None:
    assert f"-# {line}" in only(a_view(a_call(1, sample_views.DEPLOYS, status, "403: no"))).split("\n")


def test_a_turn_that_has_nothing_to_show_yet_says_that_it_works() -> None:
    assert only(a_view()) == "-# ◌ Working\n[Stop]"
    assert only(a_view(activity="Thinking")) == "-# ◌ Thinking\n[Stop]"


def test_a_reply_that_is_being_written_is_drawn_as_far_as_it_is() -> None:
    assert only(a_view(streaming="**Half** a sent\n```py\nx = ")) == "**Half** a sent\n\n```py\nx = \n```\n[Stop]"


def test_a_queued_message_is_no_message() -> None:
    assert drawn(sample_views.QUEUED) == {}


def test_a_failure_says_why_and_under_which_reference() -> None:
    assert (
        only(sample_views.FAILED)
        == "I look.\n⚠ The model provider is down. Nothing was run.  `ref 7f3a99c0`\n[Continue]"
    )


def test_a_stopped_turn_keeps_its_text_names_its_stopper_and_offers_to_go_on() -> None:
    stopped = a_view(a_reply(0, "I be"), status=TurnStatus.CANCELLED)
    by_ana = dataclasses.replace(stopped, turn=dataclasses.replace(stopped.turn, failure="Stopped by Ana."))
    assert only(by_ana) == "I be\n-# Stopped by Ana.\n[Continue]"
    assert only(a_view(status=TurnStatus.CANCELLED)) == "-# Stopped."


def test_two_calls_of_unknown_outcome_can_be_looked_into_or_run_again_and_are_told_apart() -> None:
    view = a_view(
        a_call(1, sample_views.CREATE, StepStatus.UNKNOWN),
        a_call(2, sample_views.DELETE, StepStatus.UNKNOWN),
        status=TurnStatus.DONE,
    )
    (slot,) = drawn(view).values()
    assert decode(pressed(slot.components, "Check: jira.create_issue")) == CheckCallAction(view.turn.id, 1)
    assert decode(pressed(slot.components, "Run again: jira.delete_issue")) == RunAgainAction(view.turn.id, 2)


def test_opinions_are_asked_for_at_the_final_answer_alone() -> None:
    (slot,) = drawn(sample_views.ANSWERED).values()
    assert decode(pressed(slot.components, "👍")) == SendFeedback(sample_views.ANSWERED.turn.id, FeedbackValue.GOOD)
    assert decode(pressed(slot.components, "👎")) == SendFeedback(sample_views.ANSWERED.turn.id, FeedbackValue.BAD)
    assert "👍" not in only(a_view(a_reply(0, "I look."), status=TurnStatus.FAILED))


def test_a_card_stands_between_the_texts_before_and_after_it() -> None:
    view = a_view(
        a_reply(0, "Shall I?"),
        a_filing(StepStatus.DONE, "Created", **sample_views.SAM),
        a_reply(4, "Filed."),
        status=TurnStatus.DONE,
    )
    slots = drawn(view)
    assert list(slots) == ["card-3", "answer-1"], "the text before it was on the card, as the reason"
    assert "Filed." in slots["answer-1"].content


def test_the_result_of_a_call_by_hand_is_drawn_as_it_stands() -> None:
    question = TurnInput("Run it", call=ToolCall("c", "x"))
    step = a_call(1, sample_views.DEPLOYS, StepStatus.DONE, "**2** deploys <@1> ```")
    assert only(a_view(step, status=TurnStatus.DONE, question=question)).startswith(
        "-# ✓ github.list_deploys\n`**2** deploys <@1> `\\`\\`\\`"
    )


def test_an_answer_of_three_messages_goes_on_where_it_was_cut_and_opens_its_code_again() -> None:
    words = [f"word{number}" for number in range(480)]
    code = "\n".join(["```python", *words, "```"])
    slots = drawn(a_view(a_reply(0, f"Look:\n\n{code}\n\nThat is all."), status=TurnStatus.DONE))
    assert list(slots) == ["answer-0", "answer-0-1", "answer-0-2"]
    said = [slot.content for slot in slots.values()]
    assert said[0].endswith("\n```")
    assert said[1].startswith("-# (continued 2)\n```python\n")
    assert [each for text in said for each in text.split() if each.startswith("word")] == words


def test_a_longer_answer_ends_in_a_file_with_all_of_it() -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 100 for number in range(60))
    slots = drawn(a_view(a_reply(0, text), status=TurnStatus.DONE))
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
    slots = drawn(a_view(a_reply(0, text), status=TurnStatus.DONE))
    assert len(slots) == ANSWER_LIMITS.most_messages
    assert not any(slot.file for slot in slots.values())


def test_while_it_is_written_a_long_answer_shows_its_lasting_part_and_progress() -> None:
    text = "\n\n".join(f"Paragraph {number}. " + "word " * 100 for number in range(60))
    *beginning, last = drawn(a_view(streaming=text)).values()
    assert "Still writing: 30,9" in last.content
    assert not any(slot.file for slot in (*beginning, last))
    complete = drawn(a_view(a_reply(0, text), status=TurnStatus.DONE))
    assert [(slot.name, slot.content) for slot in beginning] == [
        (slot.name, slot.content) for slot in list(complete.values())[:-1]
    ]


def test_of_very_many_calls_the_last_are_shown_and_the_rest_is_counted() -> None:
    calls: list[Step] = [a_call(n, sample_views.LOGS, StepStatus.DONE, "x" * 500) for n in range(1, 48)]
    failed = a_call(48, sample_views.LOGS, StepStatus.FAILED, "no")
    last = [a_call(n, sample_views.LOGS, StepStatus.DONE, "y") for n in range(49, 49 + ANSWER_LIMITS.latest_calls)]
    (slot,) = drawn(a_view(*calls, failed, *last, a_reply(90, "There."), status=TurnStatus.DONE)).values()
    assert slot.content.startswith("There.\n-# 48 earlier calls: 47 ✓  1 ✗\n-# ✓ grafana.search_logs  y\n")
    assert slot.content.count("search_logs") == ANSWER_LIMITS.latest_calls


@given(ANY, ANY, st.sampled_from(list(StepStatus)), st.sampled_from(list(TurnStatus)))
def test_a_view_of_any_turn_is_within_limits_and_mentions_only_the_asker(
    said: str, returned: str, status: StepStatus, turn: TurnStatus
) -> None:
    steps: list[Step] = [
        a_reply(0, said, said[:100]),
        a_filing(status, returned, reason=said[:200], decided_by=said[:50]),
    ]
    drawn(a_view(*steps, status=turn, streaming=returned, activity=said[:80], failure=returned[:200]))


@given(ANY, st.integers(0, 10_000))
def test_a_growing_reply_keeps_its_messages(text: str, cut: int) -> None:
    early = list(drawn(a_view(streaming=text[:cut])))
    late = list(drawn(a_view(streaming=text)))
    assert late[: len(early)] == early


def test_the_same_view_is_drawn_the_same() -> None:
    assert turn_messages(sample_views.ASKED, sample_views.NOW) == turn_messages(
        sample_views.ASKED, sample_views.NOW + 60
    )


def test_the_outcome_of_an_approved_call_stands_on_its_card_alone() -> None:
    slots = drawn(sample_views.SETTLED["done"])
    assert slots["answer-0"].content == "-# ✓ jira.create_issue"
    assert "Created OPS-512" in str(slots["card-3"].components)
