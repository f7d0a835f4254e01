"""Buttons, commands and forms on every chat platform, with its real client library and a fake of its service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from bot.chat import command_runner
from bot.chat.actions import (
    BUTTON_EXPIRED,
    GONE,
    OUT_OF_DATE,
    PENDING_EXPIRED,
    TOO_MANY_REQUESTS,
    TOO_SLOW,
    UNEXPECTED_ERROR,
    ApprovalRef,
    Approve,
    ApproveWithGrant,
    Edit,
    OpenConfirmation,
    OpenDenyForm,
    RunCommand,
    RunCommandInNewReply,
    ViewCall,
    encode,
)
from bot.chat.background_tasks import MOST_PER_USER
from bot.chat.forms import DONE, REFUSED, SENT
from bot.chat.interactions import ASKED, ELSEWHERE, ENDED, IN_HAND, NO_OUTSIDERS
from bot.chat.users import NOT_FOR_STRANGERS
from bot.domain.agents import AgentRef, Agents
from bot.domain.approvals import (
    AlreadyDecided,
    ApprovalNotFound,
    DecisionResult,
    DecisionType,
    NotAllowed,
    StaleRevision,
    ThreadScope,
)
from bot.domain.commands import Field, Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.elicitations import DECLINED, ElicitationAction, ElicitationResult
from bot.domain.grants import GrantRequest
from bot.domain.locales import UNKNOWN
from bot.domain.tools import ArgumentError
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.errors import DatabaseUnavailable
from bot.ports.platform import InvalidValues, OpenElicitation
from bot.rendering.elicitation_card import ANSWER, DECLINE
from bot.rendering.timeline import CheckCallAction, ContinueTurnAction, RunAgainAction, StopTurnAction
from tests.contracts.test_adapters import PLATFORMS, asking, denied_view, later, running
from tests.platforms.sample_views import CREATE, a_booking, a_call, a_filing, a_reply, a_view
from tests.platforms.workspaces import Posted, Workspace, open_workspace
from tests.rendering.turns import a_form


@pytest.fixture(params=PLATFORMS)
async def listening(request: pytest.FixtureRequest) -> AsyncIterator[Workspace]:
    """Yield a workspace with a listener."""
    async with open_workspace(request.param, listening=True) as opened:
        yield opened


@pytest.fixture(params=["slack", "discord"])
async def with_menus(request: pytest.FixtureRequest) -> AsyncIterator[Workspace]:
    """Yield a workspace of a platform with a message menu."""
    async with open_workspace(request.param, listening=True) as opened:
        yield opened


CARD = ApprovalRef("3a7f3c2e9b", 1)
APPROVE = Approve((CARD,))
TURN = "7f3a99c0d1"


async def deliver_turn(workspace: Workspace, view: TurnView) -> tuple[TurnView, Posted]:
    """Store and deliver a turn. Return its view and its last posted message."""
    view = workspace.ask(view)
    workspace.store(view)
    await workspace.deliver(view)
    return view, workspace.public_messages(view.turn.conversation)[-1]


async def heard(workspace: Workspace, user: Any, view: TurnView) -> list[str]:
    """Wait for ephemeral messages to a user. Return them."""
    where = view.turn.conversation
    await workspace.fake.until(lambda: workspace.private_texts(user, where))
    return workspace.private_texts(user, where)


async def test_an_approval_reaches_the_engine_with_the_user_and_their_rights(listening: Workspace) -> None:
    sam = listening.administrator()
    _, card = await deliver_turn(listening, asking())
    assert await listening.press(sam, card, APPROVE)
    await listening.fake.until(lambda: listening.engine.decisions)
    ((decision, member),) = listening.engine.decisions
    assert (decision.approval_id, decision.revision) == ("3a7f3c2e9b", 1)
    assert decision.type is DecisionType.APPROVE
    assert member.author.principal == decision.by.principal == f"{listening.platform}:{sam.id}"
    assert member.platform_admin
    assert not member.external


async def test_all_calls_of_a_card_are_approved_by_one_press(listening: Workspace) -> None:
    cards = (CARD, ApprovalRef("4a7f3c2e9b", 1))
    calls = [a_filing(StepStatus.AWAITING, n=n) for n in (3, 4)]
    _, card = await deliver_turn(listening, a_view(a_reply(0, "I file both."), *calls, status=TurnStatus.WAITING))
    assert await listening.press(listening.priya, card, Approve(cards))
    await listening.fake.until(lambda: len(listening.engine.decisions) == len(cards))
    decisions = [decision for decision, _ in listening.engine.decisions]
    assert [ApprovalRef(decision.approval_id, decision.revision) for decision in decisions] == list(cards)
    assert {decision.type for decision in decisions} == {DecisionType.APPROVE}


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (NotAllowed("You may not approve this."), "You may not approve this."),
        (AlreadyDecided("Already approved by sam."), "Already approved by sam."),
        (StaleRevision(), OUT_OF_DATE),
        (ApprovalNotFound(), GONE),
    ],
)
async def test_a_rejected_decision_is_told_to_the_user_alone(
    listening: Workspace, result: DecisionResult, message: str
) -> None:
    view, card = await deliver_turn(listening, asking())
    listening.engine.settlements = [result]
    await listening.press(listening.priya, card, APPROVE)
    assert await heard(listening, listening.priya, view) == [message]
    assert listening.public_messages(view.turn.conversation)[-1] == card


async def test_a_late_press_of_a_button_that_is_gone_is_answered(listening: Workspace) -> None:
    view, card = await deliver_turn(listening, asking())
    await listening.deliver(later(view, denied_view()))
    listening.engine.settlements = [AlreadyDecided("Already denied by Sam.")]
    await listening.press(listening.priya, card, APPROVE, late=True)
    assert await heard(listening, listening.priya, view) == ["Already denied by Sam."]


@pytest.mark.parametrize(
    "text",
    [
        "dance:1",
        "approve:3a7f3c2e9b",
        "approve:3a7f3c2e9b:-1",
        "approve:3a7f3c2e9b:\N{ARABIC-INDIC DIGIT TWO}",
        "approve:3a7f3c2e9b:99999999999999999999",
        "allow:3a7f3c2e9b:1:everything",
        "allow:3a7f3c2e9b:1",
        "allow:3a7f3c2e9b:b:thread",
    ],
)
async def test_a_forged_button_decides_nothing_and_is_answered(listening: Workspace, text: str) -> None:
    view, card = await deliver_turn(listening, asking())
    forged = await listening.forge(view.turn.conversation, text)
    await listening.press(listening.priya, forged, text)
    assert await heard(listening, listening.priya, view) == [BUTTON_EXPIRED]
    await listening.press(listening.priya, card, APPROVE)
    await listening.fake.until(lambda: listening.engine.decisions)
    ((decision, _),) = listening.engine.decisions
    assert decision.revision == 1


# Grants

GRANT = ApproveWithGrant(CARD, "thread")


async def test_an_approval_with_a_grant_reaches_the_engine_as_both(listening: Workspace) -> None:
    _, card = await deliver_turn(listening, asking())
    await listening.press(listening.priya, card, GRANT)
    await listening.fake.until(lambda: listening.engine.decisions)
    assert listening.engine.granted == [GrantRequest(ThreadScope())]
    ((decision, member),) = listening.engine.decisions
    assert ApprovalRef(decision.approval_id, decision.revision) == CARD
    assert decision.type is DecisionType.APPROVE
    assert member.author.id == listening.priya.id


async def test_a_rejected_grant_is_told_to_the_user_alone(listening: Workspace) -> None:
    view, card = await deliver_turn(listening, asking())
    listening.engine.settlements = [NotAllowed("Only an admin can allow that.")]
    await listening.press(listening.priya, card, GRANT)
    assert await heard(listening, listening.priya, view) == ["Only an admin can allow that."]
    assert listening.public_messages(view.turn.conversation)[-1] == card


async def test_outsiders_are_marked_as_such_in_a_decision(listening: Workspace) -> None:
    stella = listening.outsider()
    _, card = await deliver_turn(listening, asking())
    await listening.press(stella, card, APPROVE)
    await listening.fake.until(lambda: listening.engine.decisions)
    ((_, member),) = listening.engine.decisions
    assert member.external
    assert not member.platform_admin


async def test_outsiders_stop_nothing(listening: Workspace) -> None:
    stella = listening.outsider()
    view, message = await deliver_turn(listening, running("The pool"))
    await listening.press(stella, message, StopTurnAction(TURN))
    assert await heard(listening, stella, view) == [NOT_FOR_STRANGERS]
    assert listening.engine.stopped == []


async def test_outsiders_see_no_arguments(listening: Workspace) -> None:
    stella = listening.outsider()
    view, card = await deliver_turn(listening, asking(text="long " * 400))
    await listening.press(stella, card, ViewCall(CARD))
    assert await heard(listening, stella, view) == [NO_OUTSIDERS]


async def test_stop_stops_and_says_so_if_there_was_nothing_to_stop(listening: Workspace) -> None:
    view, message = await deliver_turn(listening, running("The pool"))
    await listening.press(listening.priya, message, StopTurnAction(TURN))
    await listening.fake.until(lambda: listening.engine.stopped)
    assert [(turn_id, by.id) for turn_id, by in listening.engine.stopped] == [(TURN, listening.priya.id)]
    listening.engine.stops = False
    await listening.press(listening.priya, message, StopTurnAction(TURN))
    assert await heard(listening, listening.priya, view) == [ENDED]


async def test_a_call_of_unknown_outcome_is_checked_or_run_again_once(listening: Workspace) -> None:
    view, message = await deliver_turn(listening, a_view(a_call(3, CREATE, StepStatus.UNKNOWN), status=TurnStatus.DONE))
    await listening.press(listening.priya, message, CheckCallAction(TURN, 3))
    await listening.press(listening.priya, message, RunAgainAction(TURN, 3))
    await listening.fake.until(lambda: len(listening.engine.repeated) == 2)
    assert {repeated[:3] for repeated in listening.engine.repeated} == {("check", TURN, 3), ("again", TURN, 3)}
    await listening.press(listening.priya, message, RunAgainAction(TURN, 3))
    assert await heard(listening, listening.priya, view) == [IN_HAND]


async def test_a_stopped_turn_goes_on_once(listening: Workspace) -> None:
    view, message = await deliver_turn(listening, a_view(a_reply(0, "The pool"), status=TurnStatus.CANCELLED))
    await listening.press(listening.priya, message, ContinueTurnAction(TURN))
    await listening.fake.until(lambda: listening.engine.repeated)
    assert [repeated[:2] for repeated in listening.engine.repeated] == [("continue", TURN)]
    await listening.press(listening.priya, message, ContinueTurnAction(TURN))
    assert await heard(listening, listening.priya, view) == [IN_HAND]


async def test_a_failed_press_is_told_to_the_user_alone(listening: Workspace) -> None:
    async def unavailable(turn_id: str, by: Author) -> bool:
        raise DatabaseUnavailable(f"The database is away: {turn_id}, {by.name}.")

    listening.engine.stop = unavailable
    view, message = await deliver_turn(listening, running("The pool"))
    await listening.press(listening.priya, message, StopTurnAction(TURN))
    assert await heard(listening, listening.priya, view) == [UNEXPECTED_ERROR]


# Items of another workspace


async def foreign(workspace: Workspace) -> tuple[TurnView, Posted]:
    """Return the card of a call in another workspace."""
    view, card = await deliver_turn(workspace, asking())
    elsewhere = replace(view.turn, conversation=ConversationKey(workspace.platform, "999", "9", ""))
    workspace.store(replace(view, turn=elsewhere))
    return view, card


@pytest.mark.parametrize("action", [APPROVE, Edit(CARD)])
async def test_a_call_of_another_workspace_is_neither_decided_nor_shown(listening: Workspace, action: Any) -> None:
    view, card = await foreign(listening)
    await listening.press(listening.administrator(), card, action)
    await listening.press(listening.priya, card, action)
    await listening.see(listening.priya, view.turn.conversation, ELSEWHERE)
    assert listening.engine.decisions == []
    assert not listening.form(listening.priya)


async def test_a_call_of_another_workspace_is_not_denied(listening: Workspace) -> None:
    view, card = await foreign(listening)
    await listening.press(listening.priya, card, OpenDenyForm(CARD))
    await listening.see(listening.priya, view.turn.conversation, ELSEWHERE)
    assert listening.engine.decisions == []


# Denying


async def test_a_denial_asks_why_and_the_reason_goes_to_the_engine(listening: Workspace) -> None:
    _, card = await deliver_turn(listening, asking())
    await listening.open_form(listening.priya, card, OpenDenyForm(CARD))
    await listening.submit(listening.priya, Reason=" use INC ")
    await listening.fake.until(lambda: listening.engine.decisions)
    ((decision, member),) = listening.engine.decisions
    assert (decision.type, decision.reason) == (DecisionType.DENY, "use INC")
    assert member.author.id == listening.priya.id
    assert not listening.form(listening.priya)


async def test_a_denial_that_comes_too_late_is_told_to_the_user_alone(listening: Workspace) -> None:
    view, card = await deliver_turn(listening, asking())
    await listening.open_form(listening.priya, card, OpenDenyForm(CARD))
    await listening.deliver(later(view, denied_view()))
    listening.engine.settlements = [AlreadyDecided("Already approved by sam.")]
    await listening.submit(listening.priya, Reason="no")
    await listening.see(listening.priya, view.turn.conversation, "Already approved by sam.")


# Forms of cards


SCHEMA = {
    "properties": {
        "text": {"type": "string"},
        "kind": {"type": "string", "enum": ["note", "task"]},
        "count": {"type": "integer"},
    },
    "required": ["text"],
}


async def editing(workspace: Workspace, **arguments: str) -> tuple[TurnView, Posted]:
    """Open the form of a call for Priya. Return the turn and its card."""
    workspace.engine.schema = {} if arguments else SCHEMA
    view, card = await deliver_turn(workspace, asking(**(arguments or {"text": "Buy milk"})))
    await workspace.open_form(workspace.priya, card, Edit(CARD))
    return view, card


async def test_the_form_of_a_call_has_its_arguments_and_the_typed_values_reach_the_engine(
    listening: Workspace,
) -> None:
    view, card = await editing(listening)
    for expected in ("Buy milk", "task", "leave out", "count"):
        assert expected in listening.form(listening.priya)
    assert listening.engine.revisions == []
    await listening.submit(listening.priya, text="Buy bread", kind="task", count="3")
    await listening.see(listening.priya, view.turn.conversation, DONE)
    ((approval_id, revision, arguments, member),) = listening.engine.revisions
    assert ApprovalRef(approval_id, revision) == CARD
    assert arguments == {"text": "Buy bread", "kind": "task", "count": 3}
    assert member.author.id == listening.priya.id
    assert not listening.form(listening.priya)
    assert listening.public_messages(view.turn.conversation)[-1].content == card.content


async def test_an_error_stands_under_its_field(listening: Workspace) -> None:
    view, _ = await editing(listening)
    listening.engine.editings = [InvalidValues((ArgumentError("text", "text: 'x' is too short"),))]
    for count, error in (("many", "A whole number"), ("3", "is too short")):
        await listening.submit(listening.priya, text="Buy bread", count=count)
        await listening.reopen_form(listening.priya, view.turn.conversation)
        await listening.fake.until(lambda error=error: error in listening.form(listening.priya))
    await listening.submit(listening.priya, text="Buy much bread", count="3")
    await listening.see(listening.priya, view.turn.conversation, DONE)
    assert listening.engine.revisions[-1][2] == {"text": "Buy much bread", "count": 3}


async def test_a_long_form_comes_in_steps_and_is_sent_once(listening: Workspace) -> None:
    many = {f"field_{n}": f"value {n}" for n in range(7)}
    view, _ = await editing(listening, **many)
    await listening.fake.submit(listening.priya, {"field_0": '"zero"'})
    await listening.reopen_form(listening.priya, view.turn.conversation)
    await listening.fake.until(lambda: "field_5" in listening.form(listening.priya))
    assert listening.engine.revisions == []
    await listening.fake.submit(listening.priya, {"field_6": '"six"'})
    await listening.fake.until(lambda: listening.engine.revisions)
    ((_, _, arguments, _),) = listening.engine.revisions
    assert arguments == {**many, "field_0": "zero", "field_6": "six"}


@pytest.mark.parametrize(
    ("rejection", "text"),
    [(StaleRevision(), OUT_OF_DATE), (NotAllowed("You may not approve this."), "You may not approve this.")],
)
async def test_a_form_that_may_not_be_opened_is_not_and_the_user_reads_why(
    listening: Workspace, rejection: Any, text: str
) -> None:
    view, card = await deliver_turn(listening, asking())
    listening.engine.not_now = rejection
    await listening.press(listening.priya, card, Edit(CARD))
    await listening.see(listening.priya, view.turn.conversation, text)
    assert not listening.form(listening.priya)
    assert listening.public_messages(view.turn.conversation)[-1] == card


async def test_a_form_of_a_call_that_was_decided_meanwhile_changes_nothing(listening: Workspace) -> None:
    view, _ = await editing(listening)
    listening.engine.not_now = AlreadyDecided("Already denied by Sam.")
    await listening.submit(listening.priya, text="Buy bread")
    await listening.see(listening.priya, view.turn.conversation, "Already denied by Sam.")
    assert listening.engine.revisions == []


ID = "eli-12345678"
SEATS = {"type": "integer", "title": "Seats"}


async def post_elicitation(workspace: Workspace, **changes: Any) -> tuple[TurnView, Posted]:
    """Store an elicitation that waits for Priya's answer to a form. Return the turn and its card."""
    step = a_booking(StepStatus.ASKING, elicitation := a_form(ID, **changes))
    view, card = await deliver_turn(workspace, a_view(step, status=TurnStatus.WAITING))
    workspace.engine.inquiries[ID] = OpenElicitation(view.turn, step, elicitation)
    return view, card


async def test_the_form_of_a_server_opens_and_the_typed_values_reach_the_engine(listening: Workspace) -> None:
    view, card = await post_elicitation(listening, properties={"seats": SEATS}, message="How many?")
    form = await listening.open_form(listening.priya, card, RunCommandInNewReply((ANSWER, ID)))
    assert "How many?" in form
    listening.engine.answerings = [InvalidValues((ArgumentError("seats", "seats: 0 is less than 1"),))]
    for seats, error in (("many", "A whole number"), ("0", "less than 1")):
        await listening.submit(listening.priya, Seats=seats)
        await listening.reopen_form(listening.priya, view.turn.conversation)
        await listening.fake.until(lambda error=error: error in listening.form(listening.priya))
    await listening.submit(listening.priya, Seats="2")
    await listening.see(listening.priya, view.turn.conversation, SENT)
    elicitation_id, result, member = listening.engine.replied[-1]
    assert (elicitation_id, result) == (ID, ElicitationResult(ElicitationAction.ACCEPT, {"seats": 2}))
    assert member.author.id == listening.priya.id
    assert listening.public_messages(view.turn.conversation)[-1] == card


async def test_a_long_form_of_a_server_goes_out_once(listening: Workspace) -> None:
    view, card = await post_elicitation(listening, properties={f"field {n}": {"type": "string"} for n in range(6)})
    await listening.open_form(listening.priya, card, RunCommandInNewReply((ANSWER, ID)))
    await listening.submit(listening.priya, **{f"field_{n}": str(n) for n in range(4)})
    await listening.reopen_form(listening.priya, view.turn.conversation)
    await listening.fake.until(lambda: "field 5" in listening.form(listening.priya))
    assert listening.engine.replied == []
    await listening.submit(listening.priya, field_4="4", field_5="5")
    await listening.fake.until(lambda: listening.engine.replied)
    ((_, result, _),) = listening.engine.replied
    assert result.content == {f"field {n}": str(n) for n in range(6)}


async def test_a_form_of_a_server_that_was_overtaken_says_so_when_it_is_sent(listening: Workspace) -> None:
    view, card = await post_elicitation(listening)
    await listening.open_form(listening.priya, card, RunCommandInNewReply((ANSWER, ID)))
    listening.engine.inquiries[ID] = AlreadyDecided("The question expired without an answer.")
    await listening.submit(listening.priya, Title="late")
    await listening.see(listening.priya, view.turn.conversation, "The question expired without an answer.")
    assert listening.engine.replied == []


async def test_a_server_is_declined_by_one_press(listening: Workspace) -> None:
    view, card = await post_elicitation(listening)
    await listening.press(listening.priya, card, RunCommandInNewReply((DECLINE, ID)))
    await listening.see(listening.priya, view.turn.conversation, REFUSED)
    ((elicitation_id, result, _),) = listening.engine.replied
    assert (elicitation_id, result) == (ID, DECLINED)
    assert listening.public_messages(view.turn.conversation)[-1] == card


@pytest.mark.parametrize("command", [ANSWER, DECLINE])
async def test_a_colleague_who_presses_reads_the_reason_of_the_refusal(listening: Workspace, command: str) -> None:
    view, card = await post_elicitation(listening)
    listening.engine.inquiries[ID] = NotAllowed("Only Priya can answer this.")
    sam = listening.administrator()
    await listening.press(sam, card, RunCommandInNewReply((command, ID)))
    await listening.see(sam, view.turn.conversation, "Only Priya can answer this.")
    assert not listening.form(sam)
    assert listening.engine.replied == []


# Commands of buttons


ADD = Form("mcp add:1", "Add a server", (Field("title", "Name", required=True), Field("where", "Address")))
SECOND = Form("mcp add:2", "How to sign in", (Field("auth", "Sign-in"),), carried={"title": "x"})
LIST = RunCommand(("mcp", "list"))


async def with_button(workspace: Workspace, action: Any, *answers: list[Reply | Form]) -> tuple[TurnView, Posted]:
    """Post a message with the button of an action. The commands return `answers`."""
    workspace.bot.commands.answers = list(answers)
    view, _ = await deliver_turn(workspace, running("The pool"))
    return view, await workspace.forge(view.turn.conversation, encode(action))


async def test_a_command_is_answered_to_the_user_alone_and_without_a_reply_it_is_done(listening: Workspace) -> None:
    view, message = await with_button(listening, LIST, [Reply("Two servers.")], [])
    for text in ("Two servers.", "Done."):
        await listening.press(listening.priya, message, LIST)
        await listening.see(listening.priya, view.turn.conversation, text)
    request = listening.bot.commands.requests[0]
    assert isinstance(request, Invocation)
    assert (request.command, request.words, request.conversation) == ("mcp", ("list",), view.turn.conversation)
    assert request.member.author.id == listening.priya.id


async def test_a_call_by_hand_in_a_thread_runs_there(listening: Workspace) -> None:
    view, message = await with_button(listening, LIST)
    author = Author(listening.platform, listening.priya.id, "Priya")
    by_hand = InboundMessage(("hand:1",), view.turn.conversation, author, "Run notes.add")
    listening.bot.commands.answers = [[Reply("Running notes.add…", message=by_hand, private=False)]]
    await listening.press(listening.priya, message, LIST)
    await listening.see(listening.priya, view.turn.conversation, "Running notes.add")
    (received,) = listening.engine.received
    assert replace(received, locale=UNKNOWN, author_locale=UNKNOWN) == by_hand
    assert listening.public_messages(view.turn.conversation)[-1] == message


async def test_a_reply_that_exceeds_a_message_comes_along_as_a_file(listening: Workspace) -> None:
    lines = "\n".join(f"- server {number} has a long description" for number in range(900))
    view, message = await with_button(listening, LIST, [Reply(lines, details=(("cause", "unknown"),))])
    await listening.press(listening.priya, message, LIST)
    await listening.see(listening.priya, view.turn.conversation, "server 0 ")
    await listening.fake.until(lambda: listening.private_files(listening.priya))
    ((name, content),) = listening.private_files(listening.priya)
    assert name == "answer.txt"
    assert f"{lines}\n\ncause: unknown" in content.decode()


async def test_a_command_that_takes_too_long_says_so(listening: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_runner, "REPLY_SECONDS", 0.05)
    view, message = await with_button(listening, LIST, [Reply("Two servers.")])
    listening.bot.commands.begun.clear()
    await listening.press(listening.priya, message, LIST)
    await listening.see(listening.priya, view.turn.conversation, TOO_SLOW)


async def test_outsiders_command_nothing(listening: Workspace) -> None:
    view, message = await with_button(listening, LIST, [Reply("Two servers.")])
    stella = listening.outsider()
    await listening.press(stella, message, LIST)
    await listening.see(stella, view.turn.conversation, NOT_FOR_STRANGERS)
    assert listening.bot.commands.requests == []


async def test_a_command_opens_its_form_which_comes_back_corrected_and_step_by_step(listening: Workspace) -> None:
    wrong = replace(ADD, fields=(replace(ADD.fields[0], value="x", error="is taken"), ADD.fields[1]))
    view, message = await with_button(listening, LIST, [ADD], [wrong], [SECOND], [Reply("Added y.")])
    await listening.open_form(listening.priya, message, LIST)
    await listening.submit(listening.priya, Name="x")
    await listening.see(listening.priya, view.turn.conversation, "is taken")
    await listening.reopen_form(listening.priya, view.turn.conversation)
    await listening.submit(listening.priya, Name="y", Address="https://y.example")
    await listening.see(listening.priya, view.turn.conversation, "How to sign in")
    await listening.reopen_form(listening.priya, view.turn.conversation)
    await listening.fake.submit(listening.priya, {"Sign-in": "none"})
    await listening.see(listening.priya, view.turn.conversation, "Added y.")
    _, _, second, third = listening.bot.commands.requests
    assert isinstance(second, FormSubmission)
    assert dict(second.fields) == {"title": "y", "where": "https://y.example"}
    assert isinstance(third, FormSubmission)
    assert (third.form, dict(third.fields)) == ("mcp add:2", {"title": "x", "auth": "none"})
    assert third.conversation == view.turn.conversation


async def test_the_text_typed_to_confirm_goes_along(listening: Workspace) -> None:
    action = OpenConfirmation(("mcp", "remove", "jira"), "jira", "Remove jira")
    view, message = await with_button(listening, action, [Reply("jira is gone.")])
    form = await listening.open_form(listening.priya, message, action)
    assert "jira" in form
    await listening.fake.submit(listening.priya, {"typed": "jira"})
    await listening.see(listening.priya, view.turn.conversation, "jira is gone.")
    assert listening.bot.commands.requests[-1].words == ("remove", "jira", "--confirm=jira")


async def test_a_button_of_an_earlier_process_has_a_notice_with_a_fix(listening: Workspace) -> None:
    view, _ = await deliver_turn(listening, running("The pool"))
    old = f"pending:{'x' * 22}"
    message = await listening.forge(view.turn.conversation, old)
    await listening.press(listening.priya, message, old)
    await listening.see(listening.priya, view.turn.conversation, PENDING_EXPIRED)


async def test_one_user_has_a_limit_of_requests_and_holds_up_no_other(listening: Workspace) -> None:
    opened, waiting, decide = asyncio.Event(), list[str](), listening.engine.decide

    async def decide_later(decision: Any, member: Any) -> DecisionResult:
        if member.author.id == listening.priya.id:
            waiting.append(member.author.id)
            await opened.wait()
        result: DecisionResult = await decide(decision, member)
        return result

    listening.engine.decide = decide_later
    view, card = await deliver_turn(listening, asking())
    sam = listening.administrator()
    for _ in range(MOST_PER_USER + 1):
        await listening.press(listening.priya, card, APPROVE)
    await listening.see(listening.priya, view.turn.conversation, TOO_MANY_REQUESTS)
    assert len(waiting) == MOST_PER_USER
    await listening.press(sam, card, APPROVE)
    await listening.fake.until(lambda: listening.engine.decisions)
    assert listening.engine.decisions[0][1].author.id == sam.id
    opened.set()
    await listening.fake.until(lambda: len(listening.engine.decisions) == MOST_PER_USER + 1)
    await listening.press(listening.priya, card, APPROVE)
    await listening.fake.until(lambda: len(listening.engine.decisions) == MOST_PER_USER + 2)


# Ask about this


async def test_a_question_about_a_message_in_a_thread_is_answered_there(with_menus: Workspace) -> None:
    said = with_menus.write(sam := with_menus.administrator(), "checkout is broken & slow")
    await with_menus.ask_about(with_menus.priya, said)
    await with_menus.fake.submit(with_menus.priya, {"question": "since **when**? @everyone"})
    await with_menus.fake.until(lambda: with_menus.engine.received)
    (message,) = with_menus.engine.received
    assert (message.text, message.author.id) == ("since **when**? @everyone", with_menus.priya.id)
    assert [line.lower() for line in message.context] == [f"{sam.name.lower()}: checkout is broken & slow"]
    assert message.conversation.thread
    (anchor,) = with_menus.public_messages(message.conversation)
    assert "asks about this: since" in anchor.content
    assert with_menus.fake.notified_ids(anchor.native) == set()
    await with_menus.fake.until(lambda: ASKED in with_menus.private_content(with_menus.priya, with_menus.here))


async def test_a_question_about_a_message_may_name_an_agent(with_menus: Workspace) -> None:
    support = AgentRef("p1", "support")
    with_menus.engine.known_agents = Agents((support,))
    said = with_menus.write(with_menus.administrator(), "checkout is broken")
    await with_menus.ask_about(with_menus.priya, said)
    await with_menus.fake.submit(with_menus.priya, {"question": "as Support since when?"})
    await with_menus.fake.until(lambda: with_menus.engine.received)
    (message,) = with_menus.engine.received
    assert (message.text, message.agent) == ("since when?", support)
    await with_menus.ask_about(with_menus.priya, said)
    await with_menus.fake.submit(with_menus.priya, {"question": "as suport since when?"})
    await with_menus.see(with_menus.priya, with_menus.here, "There is no agent of that name here.")
    assert len(with_menus.engine.received) == 1


async def test_outsiders_ask_nothing(with_menus: Workspace) -> None:
    stella, said = with_menus.outsider(), with_menus.write(with_menus.priya, "checkout is broken")
    await with_menus.ask_about(stella, said)
    await with_menus.fake.submit(stella, {"question": "since when?"})
    await with_menus.see(stella, with_menus.here, NOT_FOR_STRANGERS)
    assert with_menus.engine.received == []
