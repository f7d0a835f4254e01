"""The list of calls that wait for one approver: read and decided in place, on every platform."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bot.chat.actions import OUT_OF_DATE
from bot.chat.approval_inbox import NOTHING_WAITS
from bot.domain.approvals import Approval, ApprovalPolicy, ApprovalRequirements
from bot.domain.conversations import Author, ConversationKey
from bot.domain.grants import DELEGATION, Grant
from bot.domain.policies import Rule
from bot.domain.turns import StepStatus, ToolRef, ToolStep
from bot.storage.admin.grants import SqlGrantStore
from bot.storage.reporting import SqlReporting
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import ask_for, call, message, say, tool
from tests.stories.japanese import both_languages  # noqa: F401 - a fixture
from tests.stories.team import Team

SEND, DELETE = "bank__send", "bank__delete"


def payments(team: Team, *approvers: str, **terms: object) -> None:
    """Calls of the bank need one of these approvers."""
    requirements = ApprovalRequirements((frozenset(approvers),), **terms)  # type: ignore[arg-type]
    team.rules = (Rule(ApprovalPolicy.ASK_USER, server="bank", requirements=requirements, id="policy.toml:1"),)
    team.toolbox.add(tool(SEND))
    team.toolbox.add(tool(DELETE, destructive=True))


async def shows(team: Team, person: Any, *texts: str) -> Any:
    """Wait until the last thing that this user alone sees has these texts, in their order; the message."""

    def last() -> Any:
        return next(reversed(team.alone(person)), None)

    def is_shown() -> bool:
        words = " ".join(team.words(last()).split()) if last() is not None else ""
        positions = [words.find(text) for text in texts]
        return -1 not in positions and positions == sorted(positions)

    await team.until(is_shown)
    return last()


async def test_an_approver_decides_in_the_list_of_waiting_calls_oldest_first(team: Team) -> None:
    ada = team.person("Ada")
    payments(team, team.principal(ada))
    team.model.script = [
        ask_for(call(SEND, to="Ben")),
        ask_for(call(SEND, to="Zoe")),
        say("Sent to Ben."),
        say("Not sent."),
    ]
    async with team.working_on("pay Ben") as first:
        await team.card(first)
        second = team.ask("pay Zoe")
        await team.card(second)
        await team.open_list(ada)
        listed = await shows(team, ada, "Waiting for you (2)", "Ben", "Asked by", "Zoe")
        await team.press(ada, listed, "Approve")
        await team.reads(first, "Sent to Ben.")
        listed = await shows(team, ada, "Waiting for you (1)", "Zoe")
        await team.press(ada, listed, "Deny")
        await team.fill_in(ada, {"reason": "not her"})
        await shows(team, ada, NOTHING_WAITS)
        await team.reads(second, "Not sent.")
    assert team.toolbox.names == [SEND]


async def test_calls_alike_are_approved_together_unless_one_may_destroy_data(team: Team) -> None:
    ada = team.person("Ada")
    payments(team, team.principal(ada))
    names = ("Ben", "Zoe", "Kim")
    team.model.script = [*(ask_for(call(SEND, to=name)) for name in names), *(say(f"Sent {n}.") for n in range(3))]
    async with team.at_work():
        for name in names:
            await team.card(team.ask(f"pay {name}"))
        await team.open_list(ada)
        listed = await shows(team, ada, "Waiting for you (3)", "to: Ben", "to: Zoe", "to: Kim")
        await team.press(ada, listed, "Approve these 3 alike")
        await shows(team, ada, NOTHING_WAITS)
        await team.until(lambda: len(team.model.requests) == 6)
        assert len(team.toolbox.calls) == 3
        team.model.script = [ask_for(call(DELETE, account="7")), ask_for(call(DELETE, account="8"))]
        for account in "78":
            await team.card(team.ask(f"close {account}"))
        await team.open_list(ada)
        listed = await shows(team, ada, "Waiting for you (2)")
        assert not any("alike" in label for label in team.buttons(listed))
    assert sorted(arguments["to"] for _name, arguments, _context in team.toolbox.calls) == sorted(names)


async def test_a_call_that_was_edited_after_the_listing_is_left_out_of_those_approved_together(team: Team) -> None:
    ada = team.person("Ada")
    payments(team, team.principal(ada))
    team.toolbox.add(replace(tool(SEND), input_schema={"type": "object", "properties": {"to": {"type": "string"}}}))
    names = ("Ben", "Zoe", "Kim")
    team.model.script = [*(ask_for(call(SEND, to=name)) for name in names), *(say("Sent.") for _ in range(3))]
    async with team.at_work():
        cards = [await team.card(team.ask(f"pay {name}")) for name in names]
        await team.open_list(ada)
        listed = await shows(team, ada, "Waiting for you (3)")
        before = team.screen(listed)
        await team.press(team.priya, cards[1], "Edit…")
        await team.fill_in(team.priya, {"to": "Zoe and a friend"})
        await team.until(lambda: "Changed by " in team.words(cards[1]))
        await team.press(ada, listed, "Approve these 3 alike", old=before)
        await team.hears(ada, OUT_OF_DATE)
        await team.until(lambda: len(team.toolbox.calls) == 2)
        await team.open_list(ada)
        listed = await shows(team, ada, "Waiting for you (1)", "Zoe and a friend")
        await team.press(ada, listed, "Approve")
        await shows(team, ada, NOTHING_WAITS)
        await team.until(lambda: len(team.toolbox.calls) == 3)
    sent_to = [arguments["to"] for _name, arguments, _context in team.toolbox.calls]
    assert (sorted(sent_to[:2]), sent_to[2]) == (["Ben", "Kim"], "Zoe and a friend")


async def test_calls_of_a_tool_that_has_changed_since_the_listing_are_not_sent_and_the_answers_say_so(
    team: Team,
) -> None:
    ada = team.person("Ada")
    payments(team, team.principal(ada))
    names = ("Ben", "Zoe")
    team.model.script = [*(ask_for(call(SEND, to=name)) for name in names), *(say("It has changed.") for _ in names)]
    async with team.at_work():
        talks = [team.ask(f"pay {name}") for name in names]
        for talk in talks:
            await team.card(talk)
        await team.open_list(ada)
        listed = await shows(team, ada, "Waiting for you (2)")
        team.toolbox.add(replace(tool(SEND), description="Send and cc the chairman"))
        await team.press(ada, listed, "Approve these 2 alike")
        for talk in talks:
            await team.reads(talk, "It has changed.")
            await team.reads(talk, "has changed since it was approved.")
    assert team.toolbox.calls == []


async def test_a_delegate_decides_in_the_place_of_an_approver_until_the_delegation_ends(team: Team) -> None:
    carol, dan = team.person("Carol"), team.person("Dan")
    payments(team, team.principal(carol))
    team.model.script = [ask_for(call(SEND, to="Ben")), say("Sent."), ask_for(call(SEND, to="Zoe"))]
    async with team.waiting_on("pay Ben") as (talk, card):
        await team.open_list(dan)
        await shows(team, dan, NOTHING_WAITS)
        grants = SqlGrantStore(database := open_sqlite(team.database))
        place = (await SqlReporting(database).conversations("", "", 1, 0))[0][0].key.workspace_key
        given = Grant(
            "d1", DELEGATION, "", "", "", "", place, team.principal(dan), team.principal(carol), "Carol", "", lasts=60.0
        )  # fmt: skip
        assert await grants.delegate(given)
        await team.open_list(dan)
        await team.press(dan, await shows(team, dan, "Waiting for you (1)", "to: Ben"), "Approve")
        await team.reads(talk, "Sent.")
        await team.settles(card)
        approved_by = team.words(card).casefold()
        assert "dan" in approved_by
        assert "carol" in approved_by
        assert await grants.revoke("d1", Author(place.partition(":")[0], "carol", "Carol"))
        await database.close()
        second = await team.card(team.ask("pay Zoe"))
        await team.press(dan, second, "Approve")
        await team.until(lambda: any("You may not approve this" in text for text in team.private_replies(dan)))
    assert team.toolbox.names == [SEND]


async def test_a_user_who_may_not_decide_sees_nothing_of_the_calls_of_others(team: Team) -> None:
    ada, lee = team.person("Ada"), team.person("Lee")
    payments(team, team.principal(ada), team.principal(team.sam), four_eyes=True)
    team.model.script = [ask_for(call(SEND, to="Ben"))]
    async with team.at_work():
        await team.card(team.ask("pay Ben", by=team.sam))
        for person in (lee, team.sam):
            await team.open_list(person)
            listed = await shows(team, person, NOTHING_WAITS)
            assert "Ben" not in team.words(listed)


async def test_a_call_of_a_question_in_the_console_is_decided_in_the_list(team: Team) -> None:
    ada = team.person("Ada")
    payments(team, team.principal(team.sam))
    team.model.script = [ask_for(call(SEND, to="Ben")), say("Not sent.")]
    async with team.waiting_on("pay Ben") as (talk, _card):
        where = team.conversation(talk)
        platform, _colon, user = team.principal(ada).partition(":")
        here = ConversationKey("api", where.workspace_key, team.principal(ada), "browser")
        database = open_sqlite(team.database)
        log, asker = SqlTurnLog(database), Author(platform, user, "Ada")
        receipt = await log.enqueue(message("pay Kim", conversation=here, author=asker))
        (claim,) = await log.claim(1, reaches=["api:"])
        ref, approval = ToolRef("bank", "send", destructive=False), Approval("card-of-kim", 1, "print", asker, None)
        waiting = ToolStep(1, call(SEND, to="Kim"), ref, StepStatus.AWAITING, approval=approval)
        await log.append(claim, None, [waiting])
        await log.suspend(claim)
        await team.open_list(team.sam)
        listed = await shows(team, team.sam, "Waiting for you (2)", "Kim", "In the console")
        await team.press(team.sam, listed, "Deny")
        await team.fill_in(team.sam, {"reason": "not him"})
        await team.press(team.sam, await shows(team, team.sam, "Waiting for you (1)", "Kim"), "Approve")
        await shows(team, team.sam, NOTHING_WAITS)
        found = await log.get_approval("card-of-kim")
        assert found is not None
        assert (found[0].id, found[1].status) == (receipt.turn_id, StepStatus.READY)
        await database.close()


async def test_a_call_that_may_destroy_data_is_asked_about_before_it_is_approved_in_the_list(team: Team) -> None:
    payments(team, team.principal(team.sam))
    team.model.script = [ask_for(call(DELETE, account="7")), say("Gone.")]
    async with team.working_on("delete it") as talk:
        await team.card(talk)
        await team.open_list(team.sam)
        await team.press(team.sam, await shows(team, team.sam, "Waiting for you (1)"), "Approve")
        await team.until(lambda: team.toolbox.names or "Back" in str(team.buttons(team.alone(team.sam)[-1])))
        if not team.toolbox.names:  # Slack's buttons have a dialog of their own
            await team.press(team.sam, team.alone(team.sam)[-1], "Approve")
        await shows(team, team.sam, NOTHING_WAITS)
        await team.reads(talk, "Gone.")
    assert team.toolbox.names == [DELETE]


async def test_the_list_is_shown_to_a_user_who_types_its_name_to_the_bot_and_has_pages(team: Team) -> None:
    payments(team, team.principal(team.sam))
    team.model.script = [ask_for(*(call(SEND, id=f"c{number}", to=f"Person {number}") for number in range(5)))]
    async with team.at_work():
        await team.card(team.ask("pay everybody"))
        team.ask("approvals", by=team.sam)

        def inbox_messages() -> list[Any]:
            seen = [*team.alone(team.sam), *team.messages_in(team.direct(team.sam))]
            return [message for message in seen if "Waiting for you (5)" in team.words(message)]

        await team.until(inbox_messages)
        assert "Person 3" in team.words(inbox_messages()[-1])
        assert "Person 4" not in team.words(inbox_messages()[-1])
        await team.press(team.sam, inbox_messages()[-1], "More")
        await team.until(lambda: "Person 4" in team.words(inbox_messages()[-1]))
