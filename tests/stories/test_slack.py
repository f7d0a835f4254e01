"""The bot as people in a Slack workspace meet it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bot.domain.completions import Completion, ModelRequest
from bot.domain.tools import ToolOutcome
from bot.engine.policy import Signatories
from bot.ports import CallContext
from tests.fakes.parts import ask_for, call, returned, say, tool, words
from tests.fakes.slack import Fails, Team
from tests.stories.slack_office import an_office


async def test_a_mention_is_answered_in_its_thread_once(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.model.script = [say("The payments pool is too small.")]
        async with office.at_work():
            asked = office.ask("why 502?")
            message = await office.reads(asked.ts, "AI answer")
        assert message.thread_ts == asked.ts
        assert len(office.said(asked.ts)) == 1
        assert "The payments pool is too small." in office.said(asked.ts)[0]
        assert len(office.model.requests) == 1
        assert not office.slack.calls.refused()


async def test_what_others_said_before_reaches_the_model_as_theirs(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.model.script = [say("Since the deploy.")]
        root = office.slack.say(office.sam, office.incidents, "checkout is broken since the deploy")
        async with office.at_work():
            office.ask("since when?", thread=root.ts)
            await office.reads(root.ts, "AI answer")
        told = [message.text for message in office.model.requests[0].messages]
        assert any("sam: checkout is broken since the deploy" in text and "others" in text for text in told)
        assert told[-1] == "since when?"


async def test_a_thread_goes_on_without_a_mention(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.model.script = [say("The pool."), say("Since 14:05.")]
        async with office.at_work():
            asked = office.ask("why?")
            await office.reads(asked.ts, "AI answer")
            office.slack.say(office.priya, office.incidents, "since when?", thread_ts=asked.ts)
            await office.reads(asked.ts, "Since 14:05.")
        assert len(office.said(asked.ts)) == 2


async def test_a_direct_reply_is_streamed_and_complete(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        dm = office.slack.dm(office.priya)
        text = "word " * 300 + "and the end."
        office.model.script = [say(text)]
        async with office.at_work():
            asked = office.slack.say(office.priya, dm, "tell me a lot")
            await office.reads(asked.ts, "and the end.", dm)
            await office.reads(asked.ts, "AI answer", dm)
        assert office.slack.calls.of("chat.startStream")
        assert len(office.said(asked.ts, dm)) == 1
        assert not office.slack.calls.refused()


async def test_nothing_is_done_before_somebody_who_may_has_signed(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.toolbox.add(tool("jira__create_issue"))
        office.model.script = [ask_for(call("jira__create_issue", summary="Checkout 502s")), say("Filed.")]
        async with office.at_work():
            asked = office.ask("file it")
            card = await office.reads(asked.ts, "Checkout 502s")
            await office.slack.press(office.priya, card, "cs.approve")
            await office.slack.until(lambda: office.whispers(office.priya))
            assert "You may not sign this." in office.whispers(office.priya)[0]
            assert office.toolbox.calls == []
            await office.slack.press(office.sam, card, "cs.approve")
            await office.reads(asked.ts, "Filed.")
        assert office.toolbox.names == ["jira__create_issue"]
        (settled,) = [each for each in office.slack.posted(office.incidents, asked.ts) if each.ts == card.ts]
        assert "Approved by sam" in f"{settled.text} {settled.blocks}"
        assert "cs.approve" not in str(settled.blocks)
        assert not office.slack.calls.refused()


async def test_a_group_of_approvers_signs_until_somebody_leaves_it(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        lee = office.slack.user("Lee")
        office.incidents.members.append(lee.id)
        group = office.slack.group("ops", lee)
        principal = f"slack-group:{group.id}"
        office.groups = frozenset({principal})
        office.signatories = Signatories(approvers=frozenset({principal}))
        office.toolbox.add(tool("jira__create_issue"))
        office.model.script = [ask_for(call("jira__create_issue", summary="One")), say("Filed.")]
        async with office.at_work():
            asked = office.ask("file it")
            card = await office.reads(asked.ts, "One")
            group.users.remove(lee.id)
            await office.slack.press(lee, card, "cs.approve")
            await office.slack.until(lambda: office.whispers(lee))
            assert office.toolbox.calls == []
            group.users.append(lee.id)
            await office.slack.press(lee, card, "cs.approve")
            await office.reads(asked.ts, "Filed.")


async def test_two_approvers_at_once_run_the_call_once(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        ada = office.slack.user("Ada", owner=True)
        office.incidents.members.append(ada.id)
        office.toolbox.add(tool("jira__create_issue"))
        office.model.script = [ask_for(call("jira__create_issue", summary="One")), say("Filed.")]
        async with office.at_work():
            asked = office.ask("file it")
            card = await office.reads(asked.ts, "One")
            presses = [office.slack.press(user, card, "cs.approve") for user in (office.sam, ada, office.sam)]
            await asyncio.gather(*presses)
            await office.reads(asked.ts, "Filed.")
            await office.slack.until(lambda: len(office.whispers(office.sam) + office.whispers(ada)) == 2)
        assert office.toolbox.names == ["jira__create_issue"]


async def test_a_denial_with_a_reason_reaches_the_model(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.toolbox.add(tool("jira__create_issue"))
        office.model.script = [ask_for(call("jira__create_issue", summary="One")), say("All right.")]
        async with office.at_work():
            asked = office.ask("file it")
            card = await office.reads(asked.ts, "One")
            await office.slack.press(office.sam, card, "cs.deny")
            await office.slack.until(lambda: office.slack.modals(office.sam))
            await office.slack.submit(office.sam, {"reason": "use the INC project"})
            await office.reads(asked.ts, "All right.")
        assert office.toolbox.calls == []
        assert any("use the INC project" in text for text in words(office.model.requests[1]))
        settled = next(each for each in office.slack.posted(office.incidents, asked.ts) if each.ts == card.ts)
        assert "use the INC project" in f"{settled.text} {settled.blocks}"


async def test_a_card_outlives_the_process_that_drew_it(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.toolbox.add(tool("jira__create_issue"))
        office.model.script = [ask_for(call("jira__create_issue", summary="One")), say("Filed.")]
        async with office.at_work():
            asked = office.ask("file it")
            card = await office.reads(asked.ts, "cs.approve")
        async with office.at_work():
            await office.slack.press(office.sam, card, "cs.approve")
            await office.reads(asked.ts, "Filed.")
        assert office.toolbox.names == ["jira__create_issue"]
        cards = [each for each in office.slack.posted(office.incidents, asked.ts) if "Approved by" in str(each.blocks)]
        assert [each.ts for each in cards] == [card.ts]


async def test_one_process_receives_and_another_with_the_bot_token_alone_answers(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.model.script = [say("Late, but here.")]
        async with office.at_work(drawing=False):
            asked = office.ask("why?")
            await office.slack.until(lambda: office.slack.sent and all(each.acknowledged for each in office.slack.sent))
        assert office.said(asked.ts) == []
        async with office.at_work(receiving=False):
            await office.reads(asked.ts, "Late, but here.")
        assert len(office.model.requests) == 1


async def test_stop_ends_a_running_turn(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:

        async def hang(_request: ModelRequest) -> Completion:
            await asyncio.Event().wait()
            raise AssertionError("nobody lets it go on")

        office.model.script = [hang]
        async with office.at_work():
            asked = office.ask("think for ever")
            message = await office.reads(asked.ts, "cs.stop")
            await office.slack.press(office.priya, message, "cs.stop")
            await office.slack.until(lambda: "cs.stop" not in str(message.blocks))
        assert "topped" in office.said(asked.ts)[0]


async def test_strangers_neither_ask_nor_sign(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        stella = office.slack.user("Stella", team=Team("T0OTHER001", "other"), stranger=True, admin=True)
        office.incidents.members.append(stella.id)
        office.toolbox.add(tool("jira__create_issue"))
        office.model.script = [ask_for(call("jira__create_issue", summary="One"))]
        async with office.at_work():
            asked = office.ask("file it")
            card = await office.reads(asked.ts, "cs.approve")
            await office.slack.press(stella, card, "cs.approve")
            await office.slack.until(lambda: office.whispers(stella))
            office.ask("file another", user=stella)
            await office.slack.until(lambda: len(office.whispers(stella)) == 2)
        assert office.toolbox.calls == []
        assert len(office.model.requests) == 1


async def test_nothing_a_tool_says_mentions_anybody(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:

        async def shout(asked: object, _context: CallContext) -> ToolOutcome:
            return returned(asked, "<!channel> <@U00000001> @everyone <https://evil.example|click>")  # type: ignore[arg-type]

        office.toolbox.add(tool("web__read", read_only=True), shout)
        office.allowed = {"web__read"}
        office.model.script = [ask_for(call("web__read")), say("It says <!channel> and <@U00000001>.")]
        async with office.at_work():
            asked = office.ask("read it")
            await office.reads(asked.ts, "AI answer")
        for message in office.slack.posted(office.incidents, asked.ts):
            assert "<!channel>" not in message.text
            assert '"broadcast"' not in str(message.blocks)
            assert "'type': 'user', 'user_id': 'U00000001'" not in str(message.blocks)


async def test_ten_questions_at_once_stay_below_what_slack_takes(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.model.script = [say(f"Answer {number}. " + "word " * 50) for number in range(10)]
        async with office.at_work():
            places = [office.slack.channel(f"room-{number}", office.priya) for number in range(10)]
            asked = [office.slack.say(office.priya, each, f"{office.slack.bot.mention} why?") for each in places]
            for place, question in zip(places, asked, strict=True):
                await office.reads(question.ts, "AI answer", place)
        assert not office.slack.calls.refused()


async def test_a_call_whose_card_cannot_be_posted_is_denied_and_the_thread_hears_of_it(tmp_path: Path) -> None:
    async with an_office(tmp_path) as office:
        office.toolbox.add(tool("jira__create_issue"))

        async def ask(_request: ModelRequest) -> Completion:
            await office.slack.until(lambda: office.slack.posted(office.incidents))
            office.slack.fail("chat.postMessage", Fails("restricted_action"))
            return ask_for(call("jira__create_issue", summary="One"))

        office.model.script = [ask, say("I could not file it.")]
        async with office.at_work():
            asked = office.ask("file it")
            await office.reads(asked.ts, "I could not file it.")
            await office.reads(asked.ts, "could not be shown here")
        assert office.toolbox.calls == []
        assert any("could not be shown here" in text for text in words(office.model.requests[1]))
        assert "cs.approve" not in str([each.blocks for each in office.slack.posted(office.incidents)])
