"""Approval cards in other conversations, on Slack and on Discord alike."""

from __future__ import annotations

from bot.domain.approvals import APPROVERS, MEMBERS, ApprovalPolicy, ApprovalRequirements
from bot.domain.policies import Rule
from bot.engine.policy.approvers import Approvers
from tests.fakes.parts import ask_for, call, say, tool, words
from tests.stories.team import Talk, Team

CREATE = "jira__create_issue"
ASKED_IN = "Asked in"


def prepare_call(team: Team, *deliver: str, **terms: object) -> None:
    """Calls of the one tool are signed there; the model asks for one."""
    approval_requirements = ApprovalRequirements(deliver=frozenset(deliver), **terms)  # type: ignore[arg-type]
    team.rules = (Rule(ApprovalPolicy.ASK_USER, server="jira", requirements=approval_requirements),)
    team.toolbox.add(tool(CREATE))
    team.model.script = [ask_for(call(CREATE, summary="Checkout 502s")), say("Over.")]


async def says(team: Team, talk: Talk, text: str) -> None:
    """Wait until this can be read where it was asked, however the line is put together."""
    await team.until(lambda: text in " ".join(team.visible_text(talk).replace("\\_", "_").split()))


async def test_a_call_of_one_channel_is_approved_in_another_and_both_show_its_outcome(team: Team) -> None:
    approvals = team.another_channel("approvals")
    prepare_call(team, team.place(approvals))
    async with team.working_on("file it") as talk:
        card = await team.card_in(approvals)
        assert "Checkout 502s" in team.words(card)
        assert ASKED_IN in team.words(card)
        await says(team, talk, "jira.create_issue waits for approval in")
        await team.offers(talk, "Stop")
        assert "Approve" not in str([team.buttons(message) for message in team.messages(talk)])
        assert "Checkout 502s" not in team.visible_text(talk)
        await team.press(team.sam, card, "Approve")
        await team.reads(talk, "Over.")
        await team.settles(card)
        await team.until(lambda: "Approved by " in team.words(card) and "Approved by " in team.visible_text(talk))
    assert team.toolbox.names == [CREATE]
    assert len(team.messages_in(approvals)) == 1
    assert team.visible_text(talk).count("Approved by ") == 1
    assert team.failed_calls() == []


async def test_a_card_elsewhere_outlives_the_process_that_drew_it_and_is_not_posted_twice(team: Team) -> None:
    approvals = team.another_channel("approvals")
    prepare_call(team, team.place(approvals))
    async with team.working_on("file it") as talk:
        card = await team.card_in(approvals)
        await says(team, talk, "waits for approval in")
    async with team.at_work():
        await team.press(team.sam, card, "Deny")
        await team.fill_in(team.sam, {"reason": "not today"})
        await team.reads(talk, "Over.")
        await team.until(lambda: "not today" in team.words(card) and "not today" in team.visible_text(talk))
    assert len(team.messages_in(approvals)) == 1
    assert team.toolbox.calls == []


async def test_a_user_who_is_no_approver_approves_in_no_place(team: Team) -> None:
    approvals = team.another_channel("approvals")
    lee = team.person("Lee")
    group = team.group("ops", lee)
    prepare_call(team, team.place(approvals), approvers=(frozenset({group}),))
    async with team.working_on("file it") as talk:
        card = await team.card_in(approvals)
        team.leave(group, lee)
        await team.press(lee, card, "Approve")
        await says(team, talk, "waits for approval in")
        await team.press(team.priya, card, "Deny")
        await team.fill_in(team.priya, {"reason": "never mind"})
        await team.reads(talk, "Over.")
    assert team.toolbox.calls == []


async def test_approvers_who_are_named_get_the_card_directly_and_one_of_them_approves(team: Team) -> None:
    ada, lee = team.person("Ada"), team.person("Lee")
    prepare_call(team, APPROVERS, approvers=(frozenset({team.principal(ada), team.principal(lee)}),))
    async with team.working_on("file it") as talk:
        first, second = await team.card_in(team.direct(ada)), await team.card_in(team.direct(lee))
        await says(team, talk, "waits for approval by")
        await team.press(lee, second, "Approve")
        await team.reads(talk, "Over.")
        await team.until(lambda: all("Approved by " in team.words(each) for each in (first, second)))
        assert team.buttons(first) == team.buttons(second) == []
    assert team.toolbox.names == [CREATE]
    assert team.failed_calls() == []


async def test_an_approver_who_has_left_since_the_card_was_sent_approves_nothing(team: Team) -> None:
    ada = team.person("Ada")
    prepare_call(team, APPROVERS, approvers=(frozenset({team.principal(ada)}),))
    async with team.working_on("file it") as talk:
        card = await team.card_in(team.direct(ada))
        team.part(ada)
        await team.press(ada, card, "Approve")
        await team.until(lambda: len(team.private_replies(ada)) > 1)
        assert "Approve" in str(team.buttons(card))
        await team.press(team.priya, await team.offers(talk, "Stop"), "Stop")
        await team.reads(talk, "Stopped by ")
    assert team.toolbox.calls == []


async def test_all_members_cannot_be_written_to_so_the_card_stays_in_the_thread_and_says_so(team: Team) -> None:
    lee = team.person("Lee")
    prepare_call(team, APPROVERS, approvers=(frozenset({MEMBERS, team.principal(lee)}),))
    async with team.waiting_on("file it") as (talk, card):
        assert "The approvers get no card of their own: all members may approve." in team.words(card)
        await team.press(lee, card, "Approve")
        await team.reads(talk, "Over.")
    assert team.messages_in(team.direct(lee)) == []


async def test_an_approver_who_does_not_belong_any_more_is_shown_nothing(team: Team) -> None:
    stella, ada = team.stranger("Stella"), team.person("Ada")
    prepare_call(team, APPROVERS, approvers=(frozenset({team.principal(stella), team.principal(ada)}),))
    async with team.working_on("file it") as talk:
        await team.press(ada, await team.card_in(team.direct(ada)), "Approve")
        await team.reads(talk, "Over.")
    assert team.messages_in(team.direct(stella)) == []


async def test_a_card_whose_channel_is_closed_is_denied_and_the_thread_says_so(team: Team) -> None:
    approvals = team.another_channel("approvals")
    prepare_call(team, team.place(approvals))
    team.close_channel(approvals)
    async with team.working_on("file it") as talk:
        await team.reads(talk, "Over.")
        await team.reads(talk, "It was to be approved in another place.")
    assert team.toolbox.calls == []
    assert any("It was to be approved in another place." in text for text in words(team.model.requests[1]))


async def test_a_channel_that_closes_while_a_card_waits_there_does_not_keep_the_thread_from_going_on(
    team: Team,
) -> None:
    approvals = team.another_channel("approvals")
    prepare_call(team, team.place(approvals))
    team.approvers = Approvers(admins=frozenset({team.principal(team.sam)}))
    async with team.working_on("file it") as talk:
        await team.card_in(approvals)
        stop = await team.offers(talk, "Stop")
        team.close_channel(approvals)
        await team.press(team.priya, stop, "Stop")
        await team.reads(talk, "Stopped by ")
        await team.reads(talk, "Cancelled. Not run.")


async def test_a_channel_of_another_place_is_none_for_this_conversation(team: Team) -> None:
    approvals = team.another_channel("approvals")
    prepare_call(team, team.place(approvals).replace(":", ":9", 1))
    async with team.working_on("file it") as talk:
        await team.press(team.sam, await team.card(talk), "Approve")
        await team.reads(talk, "Over.")
    assert team.messages_in(approvals) == []


async def test_a_call_of_the_channel_of_approvals_is_approved_in_its_own_thread(team: Team) -> None:
    approvals = team.another_channel("approvals")
    prepare_call(team, team.place(approvals))
    async with team.working_on("file it", where=approvals) as talk:
        await team.press(team.sam, await team.card(talk), "Approve")
        await team.reads(talk, "Over.")
        assert ASKED_IN not in team.visible_text(talk)


async def test_a_card_elsewhere_says_how_it_went_though_the_thread_takes_nothing_any_more(team: Team) -> None:
    approvals = team.another_channel("approvals")
    prepare_call(team, team.place(approvals))
    async with team.working_on("file it") as talk:
        card = await team.card_in(approvals)
        await says(team, talk, "waits for approval in")
        team.shut_out(talk)
        await team.press(team.sam, card, "Approve")
        await team.settles(card)
        assert "Approved by " in team.words(card)
        await team.until(
            lambda: any("I could not answer you where you asked" in each for each in team.private_replies(team.priya))
        )
    assert team.toolbox.names == [CREATE]
