"""Turns, approval cards and questions of servers as messages: what they say and what their buttons do is the same on
all platforms. The suites of the platforms show their looks.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chat.actions import Action, ApprovalRef, Approve, OpenDenyForm, RunCommandInNewReply, ViewCall
from bot.domain.approvals import ApprovalRequirements
from bot.domain.conversations import Author, ConversationKey
from bot.domain.elicitations import DECLINED
from bot.domain.turns import Step, StepStatus, ToolRef, TurnStatus, TurnView
from bot.platforms.discord import components, message_layout
from bot.platforms.slack import blocks, message_blocks
from bot.rendering.elicitation_card import ANSWER, DECLINE, LIKE_ANOTHER, VISIT
from bot.rendering.timeline import CheckCallAction, RunAgainAction, StopTurnAction
from tests.platforms import sample_views
from tests.platforms.discord import payload_checks as discord_checks
from tests.platforms.sample_views import a_booking, a_call, a_filing, a_reply, a_view, asked_back
from tests.platforms.slack import payload_checks as slack_checks
from tests.platforms.slack.block_text import outline
from tests.rendering.markdown_texts import ANY
from tests.rendering.turns import a_form, a_link, a_step
from tests.rendering.turns import a_view as a_turn

PRIYA = Author("discord", "1001", "Priya")
THREAD = ConversationKey("discord", "1", "2", "3")
TITLE = "Create issue “Checkout 502s after the 14:05 deploy” (jira)"
_MARKS = re.compile(r"^(?:  \. |-# |#+ )|\*+|~+|\u2060", re.MULTILINE)
_TIME = re.compile(r"<t:\d+:[tR]>|<[^<>]* UTC>")


class Slack:
    """Messages in Slack."""

    group = "slack-group:S1"

    def all(self, view: TurnView) -> Sequence[Any]:
        """Return the messages of a view, after the checks of the platform."""
        found = message_blocks.turn_messages(view, sample_views.NOW)
        for message in found:
            slack_checks.check_message(message.blocks, message.text, frozenset({view.turn.author.id}))
        return found

    def labels(self, message: Any) -> list[str]:
        return slack_checks.labels(message.blocks)

    def action(self, message: Any, label: str) -> Action | None:
        return blocks.decode(*slack_checks.button_action(message.blocks, label))

    def text(self, message: Any) -> str:
        """Return the text without marks, times and buttons."""
        return _plain("\n".join(line for line in outline(message.blocks).split("\n") if not line.startswith("[")))


class Discord:
    """Messages in Discord."""

    group = "discord-role:7"

    def all(self, view: TurnView) -> Sequence[Any]:
        """Return the messages of a view, after the checks of the platform."""
        found = message_layout.turn_messages(sample_views.at(view, THREAD, PRIYA), sample_views.NOW)
        for message in found:
            discord_checks.check_slot(message, frozenset({PRIYA.id}))
        return found

    def labels(self, message: Any) -> list[str]:
        return discord_checks.labels(message.components)

    def action(self, message: Any, label: str) -> Action | None:
        return components.decode(discord_checks.button_id(message.components, label))

    def text(self, message: Any) -> str:
        """Return the text without marks, times and buttons."""
        return _plain("\n".join(filter(None, discord_checks.texts(message))))


def _plain(text: str) -> str:
    return _MARKS.sub("", _TIME.sub("<time>", text))


Platform = Slack | Discord
PLATFORMS = (Slack(), Discord())


@pytest.fixture(params=PLATFORMS, ids=["slack", "discord"])
def on(request: pytest.FixtureRequest) -> Platform:
    platform: Platform = request.param
    return platform


def only(on: Platform, view: TurnView, kind: str = "") -> Any:
    """Return the only message of a view whose name begins so."""
    (message,) = [message for message in on.all(view) if message.name.startswith(kind)]
    return message


# -------------------- turns


def test_a_turn_at_work_shows_its_progress_and_can_be_stopped(on: Platform) -> None:
    message = only(on, sample_views.WRITING)
    assert on.text(message).endswith(
        "✓ github.list_deploys  2 deploys since 13:30\n◌ grafana.search_logs  checkout, last 60 min"
    )
    assert on.action(message, "Stop") == StopTurnAction(sample_views.WRITING.turn.id)


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
def test_every_state_of_a_call_has_its_line(on: Platform, status: StepStatus, line: str) -> None:
    assert line in on.text(only(on, a_view(a_call(1, sample_views.DEPLOYS, status, "403: no")))).split("\n")


@pytest.mark.parametrize(
    ("view", "text", "labels"),
    [
        (a_view(), "◌ Working", ["Stop"]),
        (a_view(activity="Thinking"), "◌ Thinking", ["Stop"]),
        (a_view(streaming="**Half** a sent", activity=""), "Half a sent", ["Stop"]),
        (
            sample_views.FAILED,
            "I look.\n⚠ The model provider is down. Nothing was run.  `ref 7f3a99c0`",
            ["Continue"],
        ),
        (a_view(status=TurnStatus.CANCELLED), "Stopped.", []),
    ],
)
def test_a_turn_says_how_it_is(on: Platform, view: TurnView, text: str, labels: list[str]) -> None:
    message = only(on, view)
    assert (on.text(message), on.labels(message)) == (text, labels)


def test_a_queued_message_is_no_message(on: Platform) -> None:
    assert not on.all(sample_views.QUEUED)


def test_a_stopped_turn_keeps_its_text_names_its_stopper_and_offers_to_go_on(on: Platform) -> None:
    stopped = a_view(a_reply(0, "I be"), status=TurnStatus.CANCELLED)
    by_ana = dataclasses.replace(stopped, turn=dataclasses.replace(stopped.turn, failure="Stopped by Ana."))
    message = only(on, by_ana)
    assert (on.text(message), on.labels(message)) == ("I be\nStopped by Ana.", ["Continue"])


def test_two_calls_of_unknown_outcome_can_be_looked_into_or_run_again_and_are_told_apart(on: Platform) -> None:
    calls = (a_call(1, sample_views.CREATE, StepStatus.UNKNOWN), a_call(2, sample_views.DELETE, StepStatus.UNKNOWN))
    view = a_view(*calls, status=TurnStatus.DONE)
    message = only(on, view)
    for n, tool in ((1, "jira.create_issue"), (2, "jira.delete_issue")):
        assert on.action(message, f"Check: {tool}") == CheckCallAction(view.turn.id, n)
        assert on.action(message, f"Run again: {tool}") == RunAgainAction(view.turn.id, n)
    alone = only(on, a_view(calls[0], a_reply(2, "I do not know."), status=TurnStatus.DONE))
    assert {"Check", "Run again"} <= {*on.labels(alone)}


def test_a_card_stands_between_the_texts_before_and_after_it(on: Platform) -> None:
    filed = a_filing(StepStatus.DONE, "Created", **sample_views.SAM)
    messages = on.all(a_view(a_reply(0, "Shall I?"), filed, a_reply(4, "Filed."), status=TurnStatus.DONE))
    # The text before the card is its reason.
    assert [message.name for message in messages] == ["card-3", "answer-1"]
    assert "Filed." in on.text(messages[1])


def test_the_outcome_of_an_approved_call_stands_on_its_card_alone(on: Platform) -> None:
    card, line = on.all(sample_views.SETTLED["done"])
    assert "✓ jira.create_issue" in on.text(line)
    assert "Created OPS-512" in on.text(card)
    assert "OPS-512" not in on.text(line)


def test_the_same_view_is_the_same_messages(on: Platform) -> None:
    assert on.all(sample_views.ASKED) == on.all(sample_views.ASKED)


@pytest.mark.parametrize("platform", PLATFORMS)
@given(ANY, ANY, st.sampled_from(list(StepStatus)), st.sampled_from(list(TurnStatus)))
def test_a_view_of_any_turn_is_within_the_limits_and_mentions_only_the_asker(
    platform: Platform, said: str, returned: str, status: StepStatus, turn: TurnStatus
) -> None:
    steps: list[Step] = [
        a_reply(0, said, said[:100]),
        a_filing(status, returned, reason=said[:200], decided_by=said[:50]),
    ]
    messages = platform.all(a_view(*steps, status=turn, streaming=returned, activity=said[:80], failure=returned[:200]))
    assert len({message.name for message in messages}) == len(messages)


@pytest.mark.parametrize("platform", PLATFORMS)
@given(ANY, st.integers(0, 10_000))
def test_a_growing_reply_keeps_its_messages(platform: Platform, text: str, cut: int) -> None:
    early, late = ([m.name for m in platform.all(a_view(streaming=shown))] for shown in (text[:cut], text))
    assert late[: len(early)] == early


# -------------------- approval cards


def test_buttons_of_a_card_name_the_approval_and_its_revision(on: Platform) -> None:
    card, ref = only(on, sample_views.ASKED, "card-"), ApprovalRef("3a7f3c2e9b", 1)
    assert on.action(card, "Approve: Create issue") == Approve((ref,))
    assert on.action(card, "Deny…") == OpenDenyForm(ref)
    assert on.action(card, "View all") == ViewCall(ref)


def test_a_card_names_its_approvers_and_approvals(on: Platform) -> None:
    terms = ApprovalRequirements((frozenset({on.group}),), four_eyes=True, quorum=2)
    filing = a_filing(StepStatus.AWAITING, requirements=terms, approver_names=("Sam",))
    text = on.text(only(on, a_view(filing, status=TurnStatus.WAITING), "card-"))
    assert f"needs 2 of {on.group}, not Priya · 1 of 2 approved by Sam · expires" in text


def test_a_card_may_never_expire(on: Platform) -> None:
    step = a_filing(StepStatus.AWAITING, expires_in=None, expires_at=None)
    assert "does not expire" in on.text(only(on, a_view(step, status=TurnStatus.WAITING), "card-"))


def test_several_calls_share_a_card_and_are_decided_one_by_one(on: Platform) -> None:
    card = only(on, sample_views.ASKED_THREE, "card-")
    assert on.text(card).startswith("3 calls need an approval\n")
    assert on.labels(card).count("Deny…") == 3
    assert "Approve all 3" not in on.labels(card)  # one of them may destroy something


def test_all_can_be_approved_at_once_where_none_may_destroy_anything(on: Platform) -> None:
    two = a_view(a_filing(StepStatus.AWAITING), a_filing(StepStatus.AWAITING, n=4), status=TurnStatus.WAITING)
    refs = (ApprovalRef("3a7f3c2e9b", 1), ApprovalRef("4a7f3c2e9b", 1))
    assert on.action(only(on, two, "card-"), "Approve all 2") == Approve(refs)


def test_many_calls_get_several_cards(on: Platform) -> None:
    view = a_view(*(a_filing(StepStatus.AWAITING, n=number) for number in range(3, 13)), status=TurnStatus.WAITING)
    assert [message.name for message in on.all(view)][:2] == ["card-3", "card-3-1"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("approved", "✅ {}\nApproved by Sam · <time> · running · `3a7f3c2e`"),
        ("done", "✅ {}\nApproved by Sam · <time> · Created OPS-512 · `3a7f3c2e`"),
        ("failed", "⚠️ {}\nApproved by Sam · <time> · but it failed: 403: missing scope write:issue · `3a7f3c2e`"),
        (
            "unknown",
            "⚠️ {}\nApproved by Sam · <time> · it may or may not have happened · The connection was lost. · `3a7f3c2e`",
        ),
        ("denied", "{}\nDenied by Sam: Use the INC project. · <time> · `3a7f3c2e`"),
        ("expired", "{}\nTimed out. Not run. · `3a7f3c2e`"),
        ("cancelled", "{}\nCancelled. Not run. · `3a7f3c2e`"),
    ],
)
def test_the_same_card_becomes_its_outcome_without_buttons(on: Platform, name: str, text: str) -> None:
    card = only(on, sample_views.SETTLED[name], "card-")
    assert (card.name, card.asks) == (only(on, sample_views.ASKED, "card-").name, False)
    assert on.text(card).partition("\n◌ ")[0] == text.format(TITLE)
    assert on.labels(card) == (["Stop"] if name in ("approved", "denied", "expired") else [])


def test_a_timed_out_call_can_be_requested_again_once_its_turn_is_over(on: Platform) -> None:
    view = a_view(a_filing(StepStatus.EXPIRED), a_reply(4, "It timed out."), status=TurnStatus.DONE)
    assert on.action(only(on, view, "card-"), "Ask again") == RunAgainAction(view.turn.id, 3)


def test_arguments_that_a_person_has_changed_are_marked(on: Platform) -> None:
    step = a_filing(StepStatus.AWAITING, revision=2, proposed={"project": "X"}, revised_by="Lee")
    card = only(on, a_view(step, status=TurnStatus.WAITING), "card-")
    assert "Changed by Lee since the model asked for it." in on.text(card)
    assert 'project: "X" → "OPS"' in on.text(card)
    assert on.action(card, "Approve: Create issue") == Approve((ApprovalRef("3a7f3c2e9b", 2),))


def test_a_hundred_arguments_are_counted_and_do_not_push_the_buttons_away(on: Platform) -> None:
    arguments = {f"argument_{number}": "x" * 300 for number in range(100)}
    approval = sample_views.an_approval()
    step = a_call(3, sample_views.CREATE, StepStatus.AWAITING, arguments=arguments, approval=approval)
    card = only(on, a_view(step, status=TurnStatus.WAITING), "card-")
    assert "more arguments: View all" in on.text(card)
    assert on.labels(card)[-2:] == ["View all", "Stop"]


# -------------------- questions of servers


def test_buttons_of_a_question_name_it_and_no_more(on: Platform) -> None:
    card = only(on, sample_views.INQUIRED, "question-")
    assert on.labels(card) == ["Answer…", "Decline", "Stop"]
    assert on.action(card, "Answer…") == RunCommandInNewReply((ANSWER, "e7f3c2e9b0d14a"))
    assert on.action(card, "Decline") == RunCommandInNewReply((DECLINE, "e7f3c2e9b0d14a"))


def test_the_card_of_a_page_names_its_domain_and_not_the_way_there(on: Platform) -> None:
    card = only(on, sample_views.SENT_AWAY, "question-")
    assert "The page is on `pay.example.com`" in on.text(card)
    assert "/c/7f3a" not in str(card)
    assert on.labels(card) == ["Show the link…", "Decline", "Stop"]
    assert on.action(card, "Show the link…") == RunCommandInNewReply((VISIT, "e7f3c2e9b0d14a"))


def test_a_domain_that_can_be_taken_for_another_is_warned_of(on: Platform) -> None:
    page = replace(sample_views.PAY, ask=a_link(url="https://xn--pypal-4ve.example/").question.ask)
    card = only(on, a_view(a_booking(StepStatus.ASKING, asked_back(page))), "question-")
    assert f"⚠ {LIKE_ANOTHER}" in on.text(card)


def test_a_question_may_never_expire(on: Platform) -> None:
    endless = a_booking(StepStatus.ASKING, asked_back(expires_at=None, expires_in=None))
    assert "does not expire" in on.text(only(on, a_view(endless), "question-"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("answered", "✅ travel asks for an answer\nAnswered by Priya · {tool}"),
        ("visited", "✅ travel wants a page visited\nVisited by Priya · {tool}"),
        ("declined", "travel asks for an answer\nDeclined by Priya · {tool}"),
        ("late", "travel asks for an answer\nThe question expired without an answer · {tool}"),
        (
            "secret",
            "travel asks for an answer\nDeclined. It asks for a secret (password). Never type one into a chat · {tool}",
        ),
        ("stopped", "travel asks for an answer\nWithdrawn: the server needs no answer any more · {tool}"),
    ],
)
def test_afterwards_the_question_says_how_it_ended_and_has_no_buttons(on: Platform, name: str, text: str) -> None:
    card = only(on, sample_views.HEARD[name], "question-")
    assert on.text(card).partition("\n◌ ")[0] == text.format(tool="book_train")
    assert (card.name, card.asks) == (only(on, sample_views.INQUIRED, "question-").name, False)


def test_several_questions_of_one_call_are_messages_of_their_own(on: Platform) -> None:
    asked = (asked_back(reply=sample_views.YES, answered_by="Priya"), asked_back(sample_views.PAY, id="b2", round=2))
    view = a_view(a_booking(StepStatus.ASKING, *asked), status=TurnStatus.WAITING)
    found = [(message.name, message.asks) for message in on.all(view) if message.name.startswith("question-")]
    assert found == [("question-e7f3c2e9b0d14a", False), ("question-b2", True)]


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (a_filing(StepStatus.AWAITING, expires_at=None), "card-"),
        (a_booking(StepStatus.ASKING, asked_back(expires_at=None)), "question-"),
    ],
)
def test_what_is_not_posted_yet_expires_counted_from_now(on: Platform, step: Step, kind: str) -> None:
    assert str(int(sample_views.NOW) + 1800) in str(only(on, a_view(step, status=TurnStatus.WAITING), kind))


ANYTHING = st.one_of(ANY, st.text(max_size=900))


@pytest.mark.parametrize("platform", PLATFORMS)
@given(ANYTHING, st.lists(ANYTHING, max_size=30), ANYTHING, ANYTHING)
def test_a_card_of_any_question_is_within_the_limits(
    platform: Platform, message: str, titles: list[str], name: str, reason: str
) -> None:
    fields = {f"{name}{n}": {"type": "string", "title": title} for n, title in enumerate(titles)}
    asked = (
        a_form("e1", message=message, properties=fields),
        a_link("e2", message=message, url=f"https://{name}.example/{name}"),
        a_form("e3", reply=DECLINED, answered_by=name, reason=reason),
    )
    step = a_step(StepStatus.ASKING, tool=ToolRef(name, name), elicitations=asked)
    messages = platform.all(a_turn(step, status=TurnStatus.WAITING))
    assert sum(message.name.startswith("question-") for message in messages) == 3
