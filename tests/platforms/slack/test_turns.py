"""Turns as messages in a thread."""

from __future__ import annotations

from bot.chat.actions import FeedbackValue, SendFeedback
from bot.domain.messages import ToolCall
from bot.domain.turns import Step, StepStatus, TurnInput, TurnStatus, TurnView
from bot.platforms.slack.blocks import OutgoingMessage, decode, fallback_text
from bot.platforms.slack.message_blocks import turn_messages
from tests.platforms import sample_views
from tests.platforms.sample_views import a_call, a_reply, a_view
from tests.platforms.slack.block_text import outline
from tests.platforms.slack.payload_checks import check_message

PEOPLE = frozenset({sample_views.PRIYA.id})


def messages_by_slot(view: TurnView) -> dict[str, OutgoingMessage]:
    """Return the outgoing messages by slot, after Slack's checks."""
    slots = turn_messages(view, sample_views.NOW)
    for slot in slots:
        check_message(slot.blocks, slot.text, PEOPLE)
    assert len({slot.name for slot in slots}) == len(slots)
    return {slot.name: slot for slot in slots}


def only(view: TurnView) -> str:
    (slot,) = messages_by_slot(view).values()
    return outline(slot.blocks)


def test_an_answer_is_drawn_with_its_tools_in_their_order() -> None:
    assert (
        only(sample_views.ANSWERED)
        == """\
I look at the deploys and the logs.
  . ✓ github.list_deploys  2 deploys since 13:30
  . ✓ grafana.search_logs  412 lines (+1 line)
Checkout's 502s began at *14:05*, two minutes after deploy `a81f3c2`.
- 97 % come from the payments pool
  - connections went from 200 to 20
- The deploy changed `POOL_SIZE`
| *pool* | *before* | *after* |
| payments | 200 | 20 |
| sessions | 50 | 50 |
    POOL_SIZE: 200
> Restore it, or roll back.
See the deploy.
[+] [-]
  . AI answer. Check before acting."""
    )


def test_a_notification_begins_with_the_answer_or_the_current_activity() -> None:
    calls = a_call(1, sample_views.DEPLOYS, StepStatus.DONE, "2 deploys")
    (working,) = turn_messages(a_view(calls), sample_views.NOW)
    assert working.text.startswith("Working on “why did checkout 502 after the deploy?”. ✓ github.list_deploys")
    answered = a_view(calls, a_reply(2, "The **pool** is too small."), status=TurnStatus.DONE)
    (answer,) = turn_messages(answered, sample_views.NOW)
    assert answer.text == "The pool is too small. ✓ github.list_deploys 2 deploys"


def test_notes_stand_below_the_reply_they_are_about() -> None:
    view = a_view(a_reply(0, "Done.", "The answer was cut: it became too long."), status=TurnStatus.DONE)
    assert only(view).startswith("Done.\n  . The answer was cut: it became too long.")


def test_opinions_are_asked_for_at_the_final_answer_alone() -> None:
    (slot,) = messages_by_slot(sample_views.ANSWERED).values()
    (feedback,) = [block for block in slot.blocks if block["type"] == "context_actions"]
    element = feedback["elements"][0]
    for side, opinion in (("positive_button", FeedbackValue.GOOD), ("negative_button", FeedbackValue.BAD)):
        assert decode(element["action_id"], element[side]["value"]) == SendFeedback(
            sample_views.ANSWERED.turn.id, opinion
        )
    assert "[+]" not in only(a_view(a_reply(0, "I look."), status=TurnStatus.FAILED))


def test_the_result_of_a_call_by_hand_is_drawn_as_it_stands() -> None:
    question = TurnInput("Run it", call=ToolCall("c", "x"))
    step = a_call(1, sample_views.DEPLOYS, StepStatus.DONE, "**2** deploys <!channel>")
    assert only(a_view(step, status=TurnStatus.DONE, question=question)) == (
        "  . ✓ github.list_deploys\n    **2** deploys <!channel>"
    )


def test_a_long_return_is_cut_and_counted() -> None:
    question = TurnInput("Run it", call=ToolCall("c", "x"))
    step = a_call(1, sample_views.DEPLOYS, StepStatus.DONE, "x" * 50_000)
    assert "… 47,000 more characters" in only(a_view(step, status=TurnStatus.DONE, question=question))


def test_a_long_answer_goes_on_in_further_messages_and_nothing_of_it_is_lost() -> None:
    words = [f"word{number}" for number in range(4_500)]
    code = "\n".join(["```python", *words, "```"])
    slots = messages_by_slot(a_view(a_reply(0, f"Look:\n\n{code}\n\nThat is all."), status=TurnStatus.DONE))
    assert list(slots) == [f"answer-0{f'-{number}' if number else ''}" for number in range(len(slots))]
    assert len(slots) > 4
    said = [fallback_text(slot.blocks) for slot in slots.values()]
    assert all(text.startswith(f"(continued {number})") for number, text in enumerate(said[1:], start=2))
    assert [each for text in said for each in text.split() if each.startswith("word")] == words
    for slot in list(slots.values())[:-1]:
        assert [block["type"] for block in slot.blocks][-1] == "rich_text"
        assert slot.blocks[-1]["elements"][-1]["type"] == "rich_text_preformatted"


def test_fifty_calls_are_not_too_many() -> None:
    steps: list[Step] = []
    for number in range(50):
        steps += [
            a_reply(2 * number, f"Now number {number}.", "Cut."),
            a_call(2 * number + 1, sample_views.LOGS, StepStatus.DONE, "x" * 500),
        ]
    slots = messages_by_slot(a_view(*steps, status=TurnStatus.DONE))
    text = " ".join(fallback_text(slot.blocks) for slot in slots.values())
    assert all(f"Now number {number}." in text for number in range(50))


def test_a_call_whose_card_could_not_be_shown_says_so_on_its_line() -> None:
    unshown = sample_views.a_filing(StepStatus.DENIED, "The approval could not be shown here: No. Not run.")
    (*_, line) = turn_messages(sample_views.a_view(unshown, status=TurnStatus.DONE), sample_views.NOW)
    assert "could not be shown here" in line.text
