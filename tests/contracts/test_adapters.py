"""Turns and buttons on every chat platform, with its real client library and a fake of its service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from bot.chat.card_messages import UNREACHED
from bot.domain.approvals import ApprovalRequirements
from bot.domain.messages import FilePart, ImagePart, ToolResult
from bot.domain.turns import Step, StepStatus, ToolStep, TurnStatus, TurnView
from bot.errors import DeliveryFailed
from bot.rendering.timeline import LEFT_OUT
from tests.fakes import discord as discord_fake
from tests.fakes import plain as plain_fake
from tests.fakes import slack as slack_fake
from tests.fakes.faults import Cut, Lost
from tests.fakes.stored_files import with_kept_files
from tests.platforms.sample_views import LOGS, SAM, a_call, a_filing, a_reply, a_view
from tests.platforms.workspaces import Posted, Workspace, open_workspace

PLATFORMS = ["slack", "discord", "plain"]
LONG = "\n\n".join(f"Paragraph {number}. " + "word " * 200 for number in range(20))
TOO_MANY: dict[str, Any] = {
    "slack": slack_fake.TooMany,
    "discord": discord_fake.TooMany,
    "plain": plain_fake.TooMany,
}


@pytest.fixture(params=PLATFORMS)
async def workspace(request: pytest.FixtureRequest) -> AsyncIterator[Workspace]:
    async with open_workspace(request.param) as opened:
        yield opened


@pytest.fixture(params=PLATFORMS)
async def listening(request: pytest.FixtureRequest) -> AsyncIterator[Workspace]:
    """Yield a workspace with a listener."""
    async with open_workspace(request.param, listening=True) as opened:
        yield opened


def running(text: str = "", *steps: Step) -> TurnView:
    return a_view(*steps, streaming=text)


def done(text: str) -> TurnView:
    return a_view(a_reply(0, text), status=TurnStatus.DONE)


def asking(**arguments: str) -> TurnView:
    step = a_filing(StepStatus.AWAITING)
    if arguments:
        step = replace(step, call=replace(step.call, arguments=arguments))
    return a_view(a_reply(0, "I file it."), step, status=TurnStatus.WAITING)


def denied_view() -> TurnView:
    step = a_filing(StepStatus.DENIED, **SAM, reason="use INC")
    return a_view(a_reply(0, "I file it."), step, status=TurnStatus.DONE)


def later(view: TurnView, next_view: TurnView) -> TurnView:
    """Return the next view of the same turn."""
    turn = replace(view.turn, status=next_view.turn.status)
    return replace(next_view, turn=turn, revision=view.revision + 1)


def ids(messages: list[Posted]) -> list[str]:
    return [message.id for message in messages]


async def test_a_reply_is_one_message_from_its_first_word_to_its_last(workspace: Workspace) -> None:
    view = workspace.ask(running())
    for text in ("", "The pool", "The pool is too small."):
        await workspace.deliver(later(view, running(text)))
    await workspace.deliver(later(view, done("The pool is too small.")))
    (message,) = workspace.public_messages(view.turn.conversation)
    assert "The pool is too small." in message.content
    assert not workspace.fake.calls.failed_calls()


def log_call(status: StepStatus = StepStatus.DONE) -> ToolStep:
    return a_call(1, LOGS, status, result="2 errors" if status is StepStatus.DONE else "")


async def test_a_quick_answer_is_posted_once_and_never_edited(workspace: Workspace) -> None:
    view = workspace.ask(running())
    for early in (running(), running("", log_call(StepStatus.STARTED)), running("The", log_call())):
        await workspace.deliver(later(view, replace(early, early=True)))
    assert workspace.public_messages(view.turn.conversation) == []
    answered = a_view(log_call(), a_reply(2, "The pool is too small."), status=TurnStatus.DONE)
    await workspace.deliver(later(view, answered))
    (message,) = workspace.public_messages(view.turn.conversation)
    assert "The pool is too small." in message.content
    assert "2 errors" in message.content
    assert len(workspace.fake.calls.of(workspace.post)) == 1
    assert not workspace.fake.calls.of(workspace.edit)


async def test_a_card_is_posted_at_once(workspace: Workspace) -> None:
    view = workspace.ask(replace(asking(), early=True))
    await workspace.deliver(view)
    (card,) = workspace.public_messages(view.turn.conversation)
    assert "jira" in card.content


@pytest.mark.parametrize("with_call", [True, False])
async def test_an_answer_after_a_working_message_is_a_message_of_its_own(workspace: Workspace, with_call: bool) -> None:
    steps = (log_call(),) if with_call else ()
    view = workspace.ask(running())
    await workspace.deliver(later(view, running()))
    (working,) = workspace.public_messages(view.turn.conversation)
    for text in ("", "The pool", "The pool is too"):
        await workspace.deliver(later(view, running(text, *steps)))
    answered = a_view(*steps, a_reply(2, "The pool is too small."), status=TurnStatus.DONE)
    for _ in range(2):
        await workspace.deliver(later(view, answered))
        workspace.take_over()
    *before, answer = workspace.public_messages(view.turn.conversation)
    assert "The pool is too small." in answer.content
    assert "2 errors" not in answer.content
    assert ids(before) == ([working.id] if with_call else [])
    assert all("2 errors" in message.content and "Stop" not in message.content for message in before)
    assert len(workspace.fake.calls.of(workspace.post)) == 2


async def test_the_last_reply_after_further_calls_is_a_message_of_its_own(workspace: Workspace) -> None:
    view, said = workspace.ask(running()), a_reply(0, "I look.")
    for text, steps in (("I look.", ()), ("", (said, log_call())), ("It is the", (said, log_call()))):
        await workspace.deliver(later(view, running(text, *steps)))
    assert len(workspace.public_messages(view.turn.conversation)) == 1
    answered = a_view(said, log_call(), a_reply(2, "It is the pool."), status=TurnStatus.DONE)
    for _ in range(2):
        await workspace.deliver(later(view, answered))
        workspace.take_over()
    (first, last) = workspace.public_messages(view.turn.conversation)
    assert "I look." in first.content
    assert "It is the" not in first.content
    assert "It is the pool." in last.content


async def test_a_failure_after_a_working_message_is_a_message_of_its_own(workspace: Workspace) -> None:
    view = workspace.ask(running())
    await workspace.deliver(view)
    (working,) = workspace.public_messages(view.turn.conversation)
    failed = later(view, a_view(status=TurnStatus.FAILED))
    await workspace.deliver(replace(failed, turn=replace(failed.turn, failure="The model is down.")))
    (message,) = workspace.public_messages(view.turn.conversation)
    assert message.id != working.id
    assert "The model is down." in message.content


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("at", range(4))
async def test_a_process_that_dies_between_a_working_message_and_the_answer_leaves_nothing_twice(
    workspace: Workspace, at: int, stored: bool
) -> None:
    views = [
        running(),
        running("", log_call()),
        running("The pool", log_call()),
        a_view(log_call(), a_reply(2, "The pool is too small."), status=TurnStatus.DONE),
    ]
    view = workspace.ask(running())
    for number, next_view in enumerate(views):
        stored_before = dict(workspace.refs.get(view.turn.id, {}))
        await workspace.deliver(later(view, next_view))
        if number == at:
            if not stored:
                workspace.refs[view.turn.id] = stored_before
            workspace.take_over()
            await workspace.deliver(later(view, next_view))
    (calls, answer) = workspace.public_messages(view.turn.conversation)
    assert "2 errors" in calls.content
    assert "2 errors" not in answer.content
    assert "The pool is too small." in answer.content
    assert "Stop" not in calls.content + answer.content


async def test_a_working_message_that_no_ref_was_stored_of_becomes_the_answer(workspace: Workspace) -> None:
    view = workspace.ask(running())
    await workspace.deliver(view)
    workspace.take_over(refs=False)
    for _ in range(2):
        await workspace.deliver(later(view, done("The pool is too small.")))
    (answer,) = workspace.public_messages(view.turn.conversation)
    assert "The pool is too small." in answer.content


async def test_a_view_that_is_delivered_twice_needs_no_second_call(workspace: Workspace) -> None:
    view = workspace.ask(asking())
    await workspace.deliver(view)
    before = len(workspace.fake.calls)
    await workspace.deliver(view)
    assert len(workspace.fake.calls) == before
    assert len(workspace.public_messages(view.turn.conversation)) == 1


async def test_an_unposted_card_looks_the_same_whenever_it_is_delivered(workspace: Workspace) -> None:
    view = workspace.ask(a_view(a_filing(StepStatus.AWAITING, expires_at=None), status=TurnStatus.WAITING))
    await workspace.deliver(view)
    workspace.fake.clock.advance(20)
    await workspace.deliver(view)
    assert not workspace.fake.calls.of(workspace.edit)


async def test_another_process_goes_on_from_the_refs_alone(workspace: Workspace) -> None:
    view = workspace.ask(running("Half of"))
    await workspace.deliver(view)
    workspace.take_over()
    await workspace.deliver(later(view, done("Half of it, and the rest.")))
    (message,) = workspace.public_messages(view.turn.conversation)
    assert "and the rest" in message.content


@pytest.mark.parametrize("seconds", [5, 3000])  # platforms forget a nonce within 50 minutes
async def test_messages_without_refs_are_found_by_another_process(workspace: Workspace, seconds: float) -> None:
    view = workspace.ask(asking())
    await workspace.deliver(view)
    workspace.take_over(after=seconds, refs=False)
    await workspace.deliver(view)
    assert len(workspace.public_messages(view.turn.conversation)) == 1


@pytest.mark.parametrize("seconds", [5, 3000])
async def test_another_process_ends_the_message_of_its_turn_and_no_other_turn(
    workspace: Workspace, seconds: float
) -> None:
    view = workspace.ask(running())
    await workspace.deliver(workspace.ask(running(), view.turn.conversation, turn="another"))
    await workspace.deliver(view)
    workspace.take_over(after=seconds, refs=False)
    await workspace.deliver(later(view, done("At last.")))
    posted = workspace.public_messages(view.turn.conversation)
    assert ["At last." in message.content for message in posted] == [False, True]


async def test_the_edit_of_a_deleted_message_posts_it_again(workspace: Workspace) -> None:
    view = workspace.ask(running("Half"))
    (before,) = (await workspace.deliver(view)).values()
    workspace.fake.delete(workspace.public_messages(view.turn.conversation)[0].native)
    (ref,) = (await workspace.deliver(later(view, done("Half and half.")))).values()
    (message,) = workspace.public_messages(view.turn.conversation)
    assert ref.endswith(f":{message.id}")
    assert ref != before
    assert "Half and half." in message.content


@pytest.mark.parametrize(("fault", "arrived"), [(Lost(), 1), (Cut(), 0)])
async def test_a_post_without_a_response_is_looked_up_before_it_is_repeated(
    workspace: Workspace, fault: Lost | Cut, arrived: int
) -> None:
    view = workspace.ask(done("Only once."))
    workspace.fail(workspace.post, fault)
    with pytest.raises(DeliveryFailed) as failure:
        await workspace.deliver(view)
    assert not failure.value.permanent
    assert len(workspace.public_messages(view.turn.conversation)) == arrived
    await workspace.deliver(view)
    assert len(workspace.public_messages(view.turn.conversation)) == 1


async def test_a_long_rate_limit_ends_the_delivery_in_its_channel_alone(workspace: Workspace) -> None:
    view = workspace.ask(done("Later."))
    other = workspace.open_thread(workspace.fake.channel("other", workspace.priya))
    elsewhere = workspace.ask(done("Now."), other, "elsewhere")
    workspace.fail(workspace.post, TOO_MANY[workspace.platform](90))
    with pytest.raises(DeliveryFailed) as failure:
        await workspace.deliver(view)
    assert failure.value.retry_after == pytest.approx(90, abs=1)
    assert not failure.value.permanent
    await workspace.deliver(elsewhere)
    assert len(workspace.public_messages(other)) == 1
    assert len(workspace.fake.calls.failed_calls()) == 1


async def test_a_short_rate_limit_is_waited_for(workspace: Workspace) -> None:
    view = workspace.ask(done("In a moment."))
    workspace.fail(workspace.post, TOO_MANY[workspace.platform](1))
    await workspace.deliver(view)
    assert len(workspace.public_messages(view.turn.conversation)) == 1


async def test_a_permanent_failure_names_the_code_of_the_platform_to_operators_only(workspace: Workspace) -> None:
    for code, fault in workspace.permanent.items():
        view = workspace.ask(done("No."), turn=f"t{code}")
        workspace.fail(workspace.post, fault)
        with pytest.raises(DeliveryFailed) as failure:
            await workspace.deliver(view)
        assert failure.value.permanent
        assert code in str(failure.value)
        assert code in failure.value.detailed_cause
        assert code not in failure.value.cause


async def test_a_rejected_token_delays_the_delivery(workspace: Workspace) -> None:
    view = workspace.ask(done("Late, but here."))
    for fault in workspace.token_rejected:
        workspace.fail(workspace.post, fault)
        with pytest.raises(DeliveryFailed) as failure:
            await workspace.deliver(view)
        assert not failure.value.permanent
        assert failure.value.retry_after
        assert workspace.token_setting in failure.value.fix
    await workspace.deliver(view)
    assert "Late, but here." in workspace.public_messages(view.turn.conversation)[0].content


async def test_an_answer_whose_layout_is_rejected_is_posted_without_it(workspace: Workspace) -> None:
    view = workspace.ask(done("Anyway."))
    workspace.fail(workspace.post, workspace.layout_rejected, workspace.layouts)
    await workspace.deliver(view)
    (message,) = workspace.public_messages(view.turn.conversation)
    assert "Anyway." in message.content
    assert message.content.endswith("[]")


async def test_a_card_whose_layout_is_rejected_is_not_posted(workspace: Workspace) -> None:
    view = workspace.ask(running("I file it."))
    await workspace.deliver(view)
    workspace.fail(workspace.post, workspace.layout_rejected, workspace.layouts)
    with pytest.raises(DeliveryFailed) as failure:
        await workspace.deliver(later(view, asking()))
    assert failure.value.permanent
    assert len(workspace.public_messages(view.turn.conversation)) == 1


async def test_a_card_becomes_its_outcome_in_the_same_message(workspace: Workspace) -> None:
    view = workspace.ask(asking())
    await workspace.deliver(view)
    before = workspace.public_messages(view.turn.conversation)
    await workspace.deliver(later(view, denied_view()))
    after = workspace.public_messages(view.turn.conversation)
    assert ids(after)[:1] == ids(before)
    assert "approve:" in before[-1].content
    assert not any(f"{kind}:3a7f3c2e9b" in after[0].content for kind in ("approve", "deny", "edit", "view"))
    assert "use INC" in after[0].content
    assert not workspace.fake.calls.failed_calls()


async def test_an_oversize_answer_is_complete_and_a_shorter_one_leaves_nothing_of_it(workspace: Workspace) -> None:
    view = workspace.ask(running(LONG))
    await workspace.deliver(view)
    assert len(workspace.public_messages(view.turn.conversation)) > 1
    await workspace.deliver(later(view, done(LONG)))
    posted = workspace.public_messages(view.turn.conversation)
    files = "".join(content.decode() for message in posted for _, content in message.files)
    for number in range(20):
        assert f"Paragraph {number}." in "".join(message.content for message in posted) + files
    await workspace.deliver(later(view, done("Short after all.")))
    (message,) = workspace.public_messages(view.turn.conversation)
    assert "Short after all." in message.content
    assert not workspace.fake.calls.failed_calls()


async def test_an_oversize_card_says_what_it_leaves_out(workspace: Workspace) -> None:
    view = workspace.ask(asking(**{f"argument {number}": "long " * 1_000 for number in range(60)}))
    await workspace.deliver(view)
    assert "more arguments: View all" in workspace.public_messages(view.turn.conversation)[-1].content
    assert not workspace.fake.calls.failed_calls()


def with_files(*parts: ImagePart | FilePart) -> TurnView:
    step = a_call(1, LOGS, StepStatus.DONE)
    step = replace(step, result=ToolResult(step.call.id, parts))
    return with_kept_files(a_view(step, a_reply(2, "There."), status=TurnStatus.DONE))


async def test_files_of_tools_are_shared_once_also_by_another_process(workspace: Workspace) -> None:
    file = FilePart(b"{}", "application/json", "a.json")
    view = workspace.ask(with_files(ImagePart(b"png", "image/png"), file, file))
    await workspace.deliver(view)
    workspace.take_over()
    await workspace.deliver(view)
    shared = [file for message in workspace.public_messages(view.turn.conversation) for file in message.files]
    assert shared == [("grafana.search_logs.png", b"png"), ("a.json", b"{}"), ("a.json", b"{}")]
    assert not workspace.fake.calls.failed_calls()


async def test_an_answer_is_posted_without_its_files_where_the_bot_may_share_none(workspace: Workspace) -> None:
    workspace.forbid_files()
    view = workspace.ask(with_files(ImagePart(b"png", "image/png")))
    refs = await workspace.deliver(view)
    (message,) = workspace.public_messages(view.turn.conversation)
    assert "There." in message.content
    assert refs["file-1-0"] == LEFT_OUT


def asking_elsewhere(*deliver: str, also_here: bool = False) -> TurnView:
    """Return a view with a call approved in these conversations. `also_here` adds a call approved in the turn's own
    conversation.
    """
    steps = [a_filing(StepStatus.AWAITING, requirements=ApprovalRequirements(deliver=frozenset(deliver)))]
    steps += [a_filing(StepStatus.AWAITING, n=4)] if also_here else []
    return a_view(a_reply(0, "I file it."), *steps, status=TurnStatus.WAITING)


def decided_view(view: TurnView, status: StepStatus = StepStatus.DONE, **approval: Any) -> TurnView:
    """Return the view of the same turn after all decisions."""
    calls = [
        a_filing(status, n=step.n, requirements=step.approval.requirements, **approval)
        for step in view.awaiting
        if step.approval
    ]
    return later(view, a_view(a_reply(0, "I file it."), *calls, a_reply(9, "Over."), status=TurnStatus.DONE))


async def test_calls_of_one_reply_are_approved_each_in_its_place(workspace: Workspace) -> None:
    approvals = workspace.fake.channel("approvals")
    view = workspace.ask(asking_elsewhere(workspace.address(approvals), also_here=True))
    await workspace.deliver(view)
    (card,) = workspace.public_messages(approvals)
    assert "approve:3a7f3c2e9b" in card.content
    assert "4a7f3c2e9b" not in card.content
    posted = workspace.public_messages(view.turn.conversation)
    assert ["approve:4a7f3c2e9b" in message.content for message in posted] == [False, True], (
        "a line about the other card, and a card"
    )
    assert not any("approve:3a7f3c2e9b" in message.content for message in posted)
    before = len(workspace.fake.calls)
    await workspace.deliver(view)
    assert len(workspace.fake.calls) == before
    await workspace.deliver(decided_view(view, **SAM))
    posted = [*workspace.public_messages(approvals), *workspace.public_messages(view.turn.conversation)[:2]]
    assert all("Approved by " in message.content for message in posted)
    assert len(posted) == 3


async def test_an_approver_who_cannot_be_written_to_does_not_keep_others_from_approving(workspace: Workspace) -> None:
    ada, gus = workspace.fake.user("Ada"), workspace.unreachable_user()
    view = workspace.ask(asking_elsewhere(f"{workspace.platform}:{ada.id}", f"{workspace.platform}:{gus.id}"))
    refs = await workspace.deliver(view)
    (card,) = workspace.public_messages(workspace.fake.dm(ada))
    assert "approve:" in card.content
    assert refs[f"card-3@{gus.id}"] == UNREACHED
    before = _requests_besides_lookups(workspace)
    await workspace.deliver(replace(view, revision=view.revision + 1))
    assert _requests_besides_lookups(workspace) == before
    await workspace.deliver(decided_view(view, **SAM))
    (card,) = workspace.public_messages(workspace.fake.dm(ada))
    assert "approve:" not in card.content
    assert workspace.public_messages(workspace.fake.dm(gus)) == []


def _requests_besides_lookups(workspace: Workspace) -> int:
    """Count the requests without lookups of users. A platform without a cache of users looks up their languages each
    time.
    """
    return sum("GET /users/{user}" not in str(call) for call in workspace.fake.calls)


async def test_a_remote_card_whose_channel_is_gone_fails_for_good(workspace: Workspace) -> None:
    approvals = workspace.fake.channel("approvals")
    workspace.close(approvals)
    view = workspace.ask(asking_elsewhere(workspace.address(approvals)))
    with pytest.raises(DeliveryFailed, match="approved in another place") as failure:
        await workspace.deliver(view)
    assert failure.value.permanent
    await workspace.deliver(decided_view(view, StepStatus.DENIED, reason="It could not be shown."))
    assert workspace.public_messages(approvals) == []
    posted = workspace.public_messages(view.turn.conversation)
    assert any("It could not be shown." in message.content for message in posted)


async def test_a_remote_card_whose_channel_goes_later_does_not_keep_the_turn_from_ending(workspace: Workspace) -> None:
    approvals = workspace.fake.channel("approvals")
    view = workspace.ask(asking_elsewhere(workspace.address(approvals)))
    await workspace.deliver(view)
    workspace.close(approvals)
    await workspace.deliver(decided_view(view, **SAM))
    assert any("Over." in message.content for message in workspace.public_messages(view.turn.conversation))


async def test_a_rejected_token_denies_no_remote_card(workspace: Workspace) -> None:
    approvals = workspace.fake.channel("approvals")
    view = workspace.ask(asking_elsewhere(workspace.address(approvals)))
    workspace.fail(workspace.post, workspace.token_rejected[0])
    with pytest.raises(DeliveryFailed) as failure:
        await workspace.deliver(view)
    assert not failure.value.permanent
    await workspace.deliver(view)
    (card,) = workspace.public_messages(approvals)
    assert "approve:" in card.content


async def test_a_remote_card_without_a_response_is_found_by_another_process(workspace: Workspace) -> None:
    approvals = workspace.fake.channel("approvals", workspace.fake.bot)
    view = workspace.ask(asking_elsewhere(workspace.address(approvals)))
    workspace.fail(workspace.post, Lost())
    with pytest.raises(DeliveryFailed):
        await workspace.deliver(view)
    workspace.take_over(after=3000, refs=False)
    await workspace.deliver(view)
    assert len(workspace.public_messages(approvals)) == 1
