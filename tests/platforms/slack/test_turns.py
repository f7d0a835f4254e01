"""Turns as messages in a thread."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chat.actions import FeedbackValue, SendFeedback
from bot.domain.messages import ToolCall
from bot.domain.turns import Step, StepStatus, TurnInput, TurnStatus, TurnView
from bot.platforms.slack.blocks import OutgoingMessage, decode, fallback_text
from bot.platforms.slack.message_blocks import turn_messages
from bot.rendering.timeline import CheckCallAction, RunAgainAction, StopTurnAction
from tests.platforms import sample_views
from tests.platforms.sample_views import a_call, a_filing, a_reply, a_view
from tests.platforms.slack.block_text import outline
from tests.platforms.slack.payload_checks import check_message, labels, pressed
from tests.rendering.markdown_texts import ANY

PEOPLE = frozenset({sample_views.PRIYA.id})


def drawn(view: TurnView) -> dict[str, OutgoingMessage]:
    """Return the outgoing messages by slot, after Slack's checks."""
    slots = turn_messages(view, sample_views.NOW)
    for slot in slots:
        check_message(slot.blocks, slot.text, PEOPLE)
    assert len({slot.name for slot in slots}) == len(slots)
    return {slot.name: slot for slot in slots}


def only(view: TurnView) -> str:
    (slot,) = drawn(view).values()
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


def test_a_turn_at_work_shows_its_progress_and_can_be_stopped() -> None:
    assert (
        only(sample_views.WRITING)
        == """\
I look at the deploys and the logs.
  . ✓ github.list_deploys  2 deploys since 13:30
  . ◌ grafana.search_logs  checkout, last 60 min
[Stop]"""
    )
    (slot,) = turn_messages(sample_views.WRITING, sample_views.NOW)
    assert decode(*pressed(slot.blocks, "Stop")) == StopTurnAction(sample_views.WRITING.turn.id)


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (StepStatus.READY, "◌ github.list_deploys  about to run"),
        (StepStatus.STARTED, "◌ github.list_deploys  running"),
        (StepStatus.DONE, "✓ github.list_deploys  403: no"),
        (StepStatus.FAILED, "✗ github.list_deploys  failed  403: no"),
        (StepStatus.UNKNOWN, "? github.list_deploys  may or may not have happened  403: no"),
        (StepStatus.CANCELLED, "– github.list_deploys  cancelled, not run"),
        (StepStatus.DENIED, "⊘ github.list_deploys  denied  403: no"),
    ],
)
def test_every_state_of_a_call_has_its_line(status: StepStatus, line: str) -> None:
    assert f"  . {line}" in only(a_view(a_call(1, sample_views.DEPLOYS, status, "403: no"))).split("\n")


def test_a_turn_that_has_nothing_to_show_yet_says_that_it_works() -> None:
    assert only(a_view()) == "  . ◌ Working\n[Stop]"
    assert only(a_view(activity="Thinking")) == "  . ◌ Thinking\n[Stop]"


def test_a_notification_begins_with_the_answer_or_the_current_activity() -> None:
    calls = a_call(1, sample_views.DEPLOYS, StepStatus.DONE, "2 deploys")
    (working,) = turn_messages(a_view(calls), sample_views.NOW)
    assert working.text.startswith("Working on “why did checkout 502 after the deploy?”. ✓ github.list_deploys")
    answered = a_view(calls, a_reply(2, "The **pool** is too small."), status=TurnStatus.DONE)
    (answer,) = turn_messages(answered, sample_views.NOW)
    assert answer.text == "The pool is too small. ✓ github.list_deploys 2 deploys"


def test_a_reply_that_is_being_written_is_drawn_as_far_as_it_is() -> None:
    assert only(a_view(streaming="**Half** a sent", activity="")) == "*Half* a sent\n[Stop]"


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
    assert only(by_ana) == "I be\n  . Stopped by Ana.\n[Continue]"
    assert only(a_view(status=TurnStatus.CANCELLED)) == "  . Stopped."


def test_notes_stand_below_the_reply_they_are_about() -> None:
    view = a_view(a_reply(0, "Done.", "The answer was cut: it became too long."), status=TurnStatus.DONE)
    assert only(view).startswith("Done.\n  . The answer was cut: it became too long.")


def test_a_call_of_unknown_outcome_can_be_looked_into_or_run_again() -> None:
    view = a_view(
        a_call(1, sample_views.CREATE, StepStatus.UNKNOWN), a_reply(2, "I do not know."), status=TurnStatus.DONE
    )
    (slot,) = drawn(view).values()
    assert decode(*pressed(slot.blocks, "Check")) == CheckCallAction(view.turn.id, 1)
    assert decode(*pressed(slot.blocks, "Run again")) == RunAgainAction(view.turn.id, 1)


def test_two_calls_of_unknown_outcome_are_told_apart() -> None:
    view = a_view(
        a_call(1, sample_views.CREATE, StepStatus.UNKNOWN),
        a_call(2, sample_views.DELETE, StepStatus.UNKNOWN),
        status=TurnStatus.DONE,
    )
    (slot,) = drawn(view).values()
    assert labels(slot.blocks) == [
        "Check: jira.create_issue",
        "Run again: jira.create_issue",
        "Check: jira.delete_issue",
        "Run again: jira.delete_issue",
    ]


def test_opinions_are_asked_for_at_the_final_answer_alone() -> None:
    (slot,) = drawn(sample_views.ANSWERED).values()
    (feedback,) = [block for block in slot.blocks if block["type"] == "context_actions"]
    element = feedback["elements"][0]
    for side, opinion in (("positive_button", FeedbackValue.GOOD), ("negative_button", FeedbackValue.BAD)):
        assert decode(element["action_id"], element[side]["value"]) == SendFeedback(
            sample_views.ANSWERED.turn.id, opinion
        )
    assert "[+]" not in only(a_view(a_reply(0, "I look."), status=TurnStatus.FAILED))


def test_a_card_stands_between_the_texts_before_and_after_it() -> None:
    view = a_view(
        a_reply(0, "Shall I?"),
        a_filing(StepStatus.DONE, "Created", **sample_views.SAM),
        a_reply(4, "Filed."),
        status=TurnStatus.DONE,
    )
    slots = drawn(view)
    assert list(slots) == ["card-3", "answer-1"], "the text before it was on the card, as the reason"
    assert "Filed." in outline(slots["answer-1"].blocks)


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
    slots = drawn(a_view(a_reply(0, f"Look:\n\n{code}\n\nThat is all."), status=TurnStatus.DONE))
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
    slots = drawn(a_view(*steps, status=TurnStatus.DONE))
    text = " ".join(fallback_text(slot.blocks) for slot in slots.values())
    assert all(f"Now number {number}." in text for number in range(50))


@given(ANY, ANY, st.sampled_from(list(StepStatus)), st.sampled_from(list(TurnStatus)))
def test_a_view_of_any_turn_is_within_the_limits_of_slack_and_mentions_only_the_asker(
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
    (card, line) = turn_messages(sample_views.SETTLED["done"], sample_views.NOW)
    assert "✓ jira.create_issue" in outline(line.blocks)
    assert "Created OPS-512" in card.text
    assert "OPS-512" not in outline(line.blocks)


def test_a_call_whose_card_could_not_be_shown_says_so_on_its_line() -> None:
    unshown = sample_views.a_filing(StepStatus.DENIED, "The approval could not be shown here: No. Not run.")
    (*_, line) = turn_messages(sample_views.a_view(unshown, status=TurnStatus.DONE), sample_views.NOW)
    assert "could not be shown here" in line.text
