"""`countersign doctor --live` on a terminal, with an operator who follows its steps in Slack or Discord."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.discord import FakeDiscord, User
from tests.fakes.discord import Message as DiscordMessage
from tests.fakes.discord.permissions import Permission
from tests.fakes.fork_server import SHORTER_WAITS
from tests.fakes.llm import FakeLanguageModel, Reply, Request, Say
from tests.fakes.slack import Message
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories import discord_program, slack_program
from tests.stories.installation import Installation, Outcome

QUICK_POSTS = {SHORTER_WAITS: json.dumps({"bot.platforms.slack.rate_limits.POSTS_PERIOD": 0.1})}
PEOPLE_STEPS = (
    "approve",
    "edit",
    "deny",
    "mention",
    "thread reply",
    "slash command",
    "ask about this",
    "direct message",
)


def clerk(request: Request) -> Reply:
    return Say(f"You said: {request.question}.")


def live(place: Installation, platform: str, channel: str, *options: str) -> ProgramOnTerminal:
    """The command on a terminal."""
    words = ("bot", "doctor", "--live", platform, "--channel", channel, *options)
    return ProgramOnTerminal(words, place.folder, {**place.environment, "TERM": "xterm-256color"}, columns=120, rows=60)


class Operator:
    """Sam at the terminal and in the channel. A platform has `press` for the newest card, `fills_in` for the form that
    opens, `writes` with a mention or below a message, and `left` for what everybody can still see of the bot.
    """

    platform: str
    steps: int

    def __init__(self, company: Any, terminal: ProgramOnTerminal) -> None:
        self.company, self.terminal = company, terminal
        self.sam, self.room = company.sam, company.incidents

    async def begins(self) -> None:
        await self.terminal.shows("Enter: begin")
        self.terminal.type("")
        await self.terminal.shows("Enter: go on")
        self.terminal.type("")

    async def reads(self, number: int, title: str) -> None:
        """Wait for the screen of a step."""
        where = f" · {number} of {self.steps}"
        await self.terminal.until(lambda: where in self.screen and title in self.screen, title)

    async def confirms(self, answer: str = "") -> None:
        await self.terminal.until(lambda: "Do you see what is written above?" in self.screen, "a question")
        self.terminal.type(answer)

    @property
    def screen(self) -> str:
        return "\n".join(self.terminal.lines)

    async def does_everything(self: Any) -> None:
        """All steps that both platforms have."""
        await self.reads(1, "Press a button")
        await self.press("Approve: Add a note")
        await self.confirms()
        await self.reads(2, "Change the arguments")
        await self.press("Edit…")
        await self.fills_in({"text": "another text"})
        await self.confirms()
        await self.reads(3, "Deny with a reason")
        await self.press("Deny…")
        await self.fills_in({"reason": "only a test"})
        await self.confirms()
        await self.reads(4, "Mention the bot")
        asked = await self.writes("show my notes")
        await self.confirms()
        await self.reads(5, "Go on in a thread")
        await self.writes("thank you", to=asked)
        await self.confirms()
        await self.reads(6, "Type a command")
        await self.lists_servers()
        await self.confirms()
        await self.reads(7, "Ask about a message")
        await self.asks_about(asked)
        await self.confirms()
        await self.reads(8, "Write to the bot directly")
        await self.writes_directly()
        await self.confirms()


class SlackOperator(Operator):
    platform, steps = "slack", 9

    async def press(self, label: str) -> None:
        await self.company.slack.until(self._cards)
        await self.company.slack.press(self.sam, self._cards()[-1], label)

    async def fills_in(self, fields: Mapping[str, str]) -> None:
        slack = self.company.slack
        await slack.until(lambda: slack.modals(self.sam))
        await slack.submit(self.sam, {"Reason" if name == "reason" else name: text for name, text in fields.items()})

    async def writes(self, text: str, *, to: Any = None) -> Any:
        slack = self.company.slack
        if to is not None:
            return slack.say(self.sam, self.room, text, thread_ts=to.ts)
        return self.company.ask(text, user=self.sam)

    async def lists_servers(self) -> None:
        await self.company.slack.command(self.sam, "/mcp", "list", self.room)

    async def asks_about(self, message: Message) -> None:
        await self.company.slack.shortcut(self.sam, "cs.ask", message)
        await self.fills_in({"question": "what is this?"})

    async def writes_directly(self) -> None:
        slack = self.company.slack
        slack.say(self.sam, slack.dm(self.sam), "hello")

    def left(self) -> list[Message]:
        return self.left_in(self.company)

    @staticmethod
    def left_in(company: slack_program.Company) -> list[Message]:
        """Messages of the bot that everybody can still see."""
        slack = company.slack
        posted = [*slack.bot_messages(company.incidents), *slack.bot_messages(slack.dm(company.sam))]
        return [message for message in posted if not message.ephemeral_to]

    def _cards(self) -> list[Message]:
        return [message for message in self.company.slack.bot_messages(self.room) if "cs.deny" in str(message.blocks)]


def _has_modal(discord: FakeDiscord, user: User) -> bool:
    try:
        discord.modal(user)
    except LookupError:
        return False
    return True


class DiscordOperator(Operator):
    platform, steps = "discord", 8

    async def press(self, label: str) -> None:
        discord = self.company.discord
        await discord.until(self._cards)
        await self.company.press(self.sam, self._cards()[-1], label)

    async def fills_in(self, fields: Mapping[str, str]) -> None:
        discord = self.company.discord
        await discord.until(lambda: _has_modal(discord, self.sam))
        await discord.submit(self.sam, fields)

    async def writes(self, text: str, *, to: Any = None) -> Any:
        if to is not None:
            return self.company.discord.say(self.sam, await self.company.thread(to), text)
        return self.company.ask(text, self.sam)

    async def lists_servers(self) -> None:
        await self.company.discord.command(self.sam, "mcp list", self.room)

    async def asks_about(self, message: DiscordMessage) -> None:
        discord = self.company.discord
        await discord.shortcut(self.sam, "Ask about this", message)
        await self.fills_in({"question": "what is this?"})

    async def writes_directly(self) -> None:
        discord = self.company.discord
        discord.say(self.sam, discord.dm(self.sam), "hello")

    def left(self) -> list[DiscordMessage]:
        discord = self.company.discord
        posted = [*discord.bot_messages(self.room), *discord.bot_messages(discord.dm(self.sam))]
        return [message for message in posted if not message.ephemeral_to]

    def _cards(self) -> list[DiscordMessage]:
        world = self.company.discord
        posted = [message for thread in world.threads(self.room) for message in world.bot_messages(thread)]
        return [m for m in posted if any(label.startswith("Deny") for label in self.company.buttons(m))]


async def test_an_operator_tries_everything_in_slack(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with slack_program.a_company(tmp_path, model, {}, **QUICK_POSTS) as company:
        async with live(company.place, "slack", company.incidents.id) as terminal:
            operator = SlackOperator(company, terminal)
            await operator.begins()
            await operator.does_everything()
            await operator.reads(9, "Open the Home tab")
            company.slack.open_home(company.sam)
            await operator.confirms()
            assert await terminal.wait_for_exit() == 0, terminal.text
            for name in (
                *PEOPLE_STEPS,
                "home",
                "table",
                "kinds of blocks",
                "thread status",
                "reaction",
                "connection",
                "clean up",
            ):
                assert any(line.startswith(f"✓ {name} ") and " ok " in line for line in terminal.lines), name
            assert "failed" not in operator.screen
        assert operator.left() == []


async def test_an_operator_tries_everything_in_discord(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with discord_program.a_company(tmp_path, model, {}) as company:
        company.discord.guild.everyone.permissions |= Permission.MANAGE_THREADS
        async with live(company.place, "discord", company.incidents.id) as terminal:
            operator = DiscordOperator(company, terminal)
            await operator.begins()
            await operator.does_everything()
            assert await terminal.wait_for_exit() == 0, terminal.text
            for name in (
                *PEOPLE_STEPS,
                "longest message",
                "plain message",
                "typing",
                "file",
                "commands",
                "connection",
                "clean up",
            ):
                assert any(line.startswith(f"✓ {name} ") and " ok " in line for line in terminal.lines), name
        assert operator.left() == []


async def test_an_operator_skips_a_step_says_that_one_failed_and_leaves(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with slack_program.a_company(tmp_path, model, {}, **QUICK_POSTS) as company:
        async with live(company.place, "slack", company.incidents.id) as terminal:
            operator = SlackOperator(company, terminal)
            await operator.begins()
            await operator.reads(1, "Press a button")
            terminal.type("s")
            await operator.reads(2, "Change the arguments")
            terminal.type("f")
            await operator.reads(3, "Deny with a reason")
            assert operator.left() != []
            terminal.press("\x03")
            assert await terminal.wait_for_exit() == 130
            await terminal.shows("- approve", "You skipped it.", "✗ edit", "You said that it failed.", "✓ clean up")
        assert operator.left() == []


async def test_a_step_that_times_out_has_failed(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with (
        discord_program.a_company(tmp_path, model, {}) as company,
        live(company.place, "discord", company.incidents.id, "--wait", "1") as terminal,
    ):
        await DiscordOperator(company, terminal).begins()
        await terminal.shows("Nothing arrived within 1 s.")
        terminal.press("\x04")  # the end of the input: the other steps are skipped
        assert await terminal.wait_for_exit() == 1
        await terminal.shows("✗ approve", "Nothing arrived within 1 s.", "Fix: stop other programs")
        # The bot may not delete a thread, which is said and not hidden.
        await terminal.shows("! clean up", "Manage Threads")


async def test_without_a_person_the_rest_is_tried_and_told_as_json(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with slack_program.a_company(tmp_path, model, {}, **QUICK_POSTS) as company:
        company.slack.installation.scopes.discard("files:write")
        company.slack.world.unsupported_blocks |= {"table"}
        words = ("doctor", "--live", "slack", "--channel", company.incidents.id, "--json")
        outcome = await asyncio.to_thread(company.place.countersign, *words)
        assert outcome.code == 1
        results = {event["name"]: event for event in outcome.events}
        assert results["file"]["finding"] == results["scope files:write"]["finding"] == "failed"
        assert "files:write" in results["file"]["fix"] + results["file"]["detail"]
        assert results["table"]["finding"] == "ok"
        assert results["kinds of blocks"]["finding"] == "warning"
        assert "takes no table blocks" in results["kinds of blocks"]["detail"]
        assert results["edit it"]["finding"] == results["clean up"]["finding"] == "ok"
        assert {results[name]["finding"] for name in PEOPLE_STEPS} == {"skipped"}
        assert SlackOperator.left_in(company) == []
        assert company.slack.bot_token not in outcome.out + outcome.err


async def test_a_wrong_token_and_a_channel_without_the_bot_end_it_before_the_first_post(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    async with slack_program.a_company(tmp_path, model, {}, **QUICK_POSTS) as company:
        words = ("doctor", "--live", "--channel", company.incidents.id)
        company.incidents.members.remove(company.slack.bot.id)
        outside = await asyncio.to_thread(company.place.countersign, *words)
        assert outside.code == 1
        assert "✗ channel  The bot is not in it. Fix: type /invite" in outside.out
        company.place.environment["SLACK_BOT_TOKEN"] = "xoxb-1-wrong"
        wrong = await asyncio.to_thread(company.place.countersign, *words)
        assert wrong.code == 1
        assert "✗ token" in wrong.out
        assert "xoxb-1-wrong" not in wrong.out + wrong.err
        assert not company.slack.calls.of("chat.postMessage")


async def test_the_platform_has_to_be_clear(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with slack_program.a_company(tmp_path, model, {}, **QUICK_POSTS) as company:
        place = company.place

        async def run_doctor(*words: str) -> str:
            outcome: Outcome = await asyncio.to_thread(place.countersign, "doctor", *words)
            assert outcome.code == 2
            return outcome.err

        assert "Discord is not configured." in await run_doctor("--live", "discord")
        assert "There is no platform 'teams'." in await run_doctor("--live", "teams")
        assert "--live" in await run_doctor("slack")
        assert "No channel was named." in await run_doctor("--live", "slack")
        place.environment["DISCORD_TOKEN"] = "1.2.3"
        assert "countersign doctor --live slack" in await run_doctor("--live")
