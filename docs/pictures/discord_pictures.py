"""Pictures of every kind of message and form of the Discord bot, from the program's requests to the fake Discord.

    make pictures

The scenes are those of the tests; the client library and the sockets are real. No request goes to Discord:
`discord_html.py` draws the messages, and Chromium takes the pictures.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(Path(__file__).parent)]

from discord_html import answered, event, modal, page, place, said  # noqa: E402 - found through the line above
from photographs import photograph  # noqa: E402
from scenes import (  # noqa: E402
    WHY,
    Scene,
    answer,
    approval,
    approvals,
    inbox,
    inquiry,
    previewed_call,
    working,
)

from bot.domain.approvals import ApprovalNotice, Approver, NotAllowed  # noqa: E402
from bot.domain.commands import Form, Reply  # noqa: E402
from bot.domain.conversations import Author  # noqa: E402
from bot.domain.locales import Locale  # noqa: E402
from bot.domain.turns import StepStatus, ToolStep, TurnStatus, TurnView  # noqa: E402
from bot.i18n import use_language  # noqa: E402
from bot.platforms.discord.components import layout_view  # noqa: E402
from bot.platforms.discord.message_layout import message_body, outgoing_message  # noqa: E402
from bot.ports.platform import OpenElicitation  # noqa: E402
from tests.fakes.discord import Channel, Interaction, Message  # noqa: E402
from tests.platforms import sample_views  # noqa: E402
from tests.platforms.discord.command_bot import command_bot  # noqa: E402
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot  # noqa: E402

WIDTH = 700
LONG = sample_views.a_view(
    *sample_views.READ,
    sample_views.a_reply(
        4,
        sample_views.ANSWER
        + "\n\n"
        + "\n\n".join(f"**{n}.** {sample_views.ISSUE['description']}" for n in range(1, 31)),
    ),
    status=TurnStatus.DONE,
)
REFUSAL = "You may not approve this. It needs one of: @ops, Sam."


async def main() -> None:
    """Draw all pictures and print their paths."""
    for name, document in (await pictures()).items():
        path = Path(__file__).with_name(f"discord-{name}.png")
        photograph(document, path, WIDTH)
        print(path.relative_to(PROJECT))


async def pictures() -> Mapping[str, str]:
    """Return the documents of all pictures, by their names."""
    async with a_room() as room:
        return {
            "working": page(await room.scene(working())),
            "answer": page(await room.scene(answer())),
            "long": page(await room.scene(Scene(WHY, LONG))),
            "approval": page(await room.scene(approval(room.approver))),
            "approval-ja": page(await room.scene(japanese_approval(room.approver))),
            "approvals": page(await room.scene(approvals())),
            "preview": page(await room.scene(previewed_call())),
            "inbox": page(room.inbox()),
            "outcomes": page(*[await room.cards(view) for view in sample_views.SETTLED.values()]),
            "questions": page(
                await room.scene(inquiry()),
                *[await room.cards(view) for view in (sample_views.SENT_AWAY, *sample_views.HEARD.values())],
            ),
            "questions-alone": page(
                await room.answering(sample_views.INQUIRED), await room.answering(sample_views.SENT_AWAY)
            ),
            "notices": page(
                *[
                    await room.messages(view)
                    for view in (sample_views.QUEUED, sample_views.FAILED, sample_views.SETTLED["unknown"])
                ]
            ),
            "alone": page(await room.refusal(), await room.everything()),
            "reasons": page(await room.reason(), await room.question()),
            "command": page(
                await command("mcp list", sample_views.LISTING), await command("mcp show", sample_views.SHOWN)
            ),
            "form": page(*await form(sample_views.ADDING)),
        }


def japanese_approval(approver: Approver) -> Scene:
    """Return the approval in a Japanese channel."""
    with use_language("ja"):
        scene = approval(approver)
    end = scene.end
    return replace(scene, view=in_japanese(scene.view), end=None if end is None else in_japanese(end))


def in_japanese(view: TurnView) -> TurnView:
    """Return the turn as one of a Japanese channel."""
    question = replace(view.turn.question, locale=Locale("ja", "Asia/Tokyo"))
    return replace(view, turn=replace(view.turn, question=question))


@dataclass
class Room:
    """The tests' Discord server with Priya and Sam. Each view is a separate turn in a separate thread."""

    workplace: ConnectedBot
    drawn: int = 0

    @property
    def approver(self) -> Approver:
        """Sam as an approver whom the card mentions."""
        sam = self.workplace.discord.user("Sam")
        return Approver(f"discord:{sam.id}", "Sam", ApprovalNotice.MENTION)

    async def scene(self, shown: Scene) -> str:
        """Return a thread with its question, and the final messages after the first reply."""
        thread, messages = await self._shown(shown.view, shown.question)
        asked = said("Priya", f"<@{self.workplace.discord.bot.id}> {shown.question}", self._names)
        begin = place(thread.name) + asked + self._all(messages)
        if shown.end is None:
            return begin
        _, ended = await self._shown(shown.end, shown.question)
        return begin + event(shown.event) + self._all(ended[1:])

    async def messages(self, view: TurnView) -> str:
        """Return the bot's messages of a turn."""
        return self._all((await self._shown(view))[1])

    async def cards(self, view: TurnView) -> str:
        """Return the cards of a turn."""
        _, messages = await self._shown(view)
        return self._all([message for message in messages if message.is_v2])

    async def answering(self, view: TurnView) -> str:
        """Return the ephemeral answer to the user: the form, or the link to a page."""
        discord, priya = self.workplace.discord, self.workplace.priya
        _, messages = await self._shown(view)
        card = next(message for message in messages if message.is_v2)
        placed = self.workplace.engine.views[-1]
        step = next(each for each in placed.steps if isinstance(each, ToolStep))
        (asked,) = step.elicitations
        self.workplace.engine.inquiries[asked.id] = OpenElicitation(placed.turn, step, asked)
        shown = next(each for each in discord.what_user_sees(priya, card.channel) if each.id == card.id)
        interaction = await discord.press(priya, card, shown.buttons[0])
        await discord.until(lambda: interaction.messages or interaction.modal)
        return self._all(interaction.messages) if interaction.messages else modal(discord.modal(priya).drawn)

    async def refusal(self) -> str:
        """Return the refusal for a user who is not an approver."""
        self.workplace.engine.settlements = [NotAllowed(REFUSAL)]
        return self._all((await self._pressed("Approve")).messages)

    def inbox(self) -> str:
        """Return the list of waiting calls, which only the user sees."""
        workplace = self.workplace
        asker = Author("discord", workplace.priya.id, "Priya")
        asked = sample_views.at(sample_views.ASKED, workplace.key(workplace.channel), asker)
        body = message_body(layout_view(outgoing_message(inbox(asked.turn)).items))
        return answered({**body, "content": "", "flags": body["flags"] | 1 << 6}, self._names)

    async def everything(self) -> str:
        """Return the full text of a call, as shown by View all."""
        return self._all((await self._pressed("View all")).messages)

    async def reason(self) -> str:
        """Return the form that Deny opens."""
        await self._pressed("Deny")
        return modal(self.workplace.discord.modal(self.workplace.priya).drawn)

    async def question(self) -> str:
        """Return the form that the command Ask about this opens."""
        discord, priya = self.workplace.discord, self.workplace.priya
        about = discord.say(priya, self.workplace.channel, "checkout is slow since 14:05")
        await discord.shortcut(priya, "Ask about this", about)
        return modal(discord.modal(priya).drawn)

    async def _pressed(self, label: str) -> Interaction:
        """Press a button of a card as Priya, and wait for the response."""
        discord = self.workplace.discord
        _, messages = await self._shown(
            sample_views.a_view(sample_views.a_filing(StepStatus.AWAITING), status=TurnStatus.WAITING)
        )
        card = next(message for message in messages if message.is_v2)
        buttons = [each for each in discord.what_user_sees(self.workplace.priya, card.channel) if each.id == card.id]
        name = next(button for button in buttons[0].buttons if button.startswith(label))
        interaction = await discord.press(self.workplace.priya, card, name)
        await discord.until(lambda: interaction.messages or interaction.modal)
        return interaction

    async def _shown(self, view: TurnView, question_text: str = WHY) -> tuple[Channel, Sequence[Message]]:
        """Draw a turn in a new thread. Return the thread and the bot's messages in it."""
        workplace, discord = self.workplace, self.workplace.discord
        self.drawn += 1
        question = discord.say(workplace.priya, workplace.channel, question_text)
        thread = discord.thread(workplace.priya, workplace.channel, question_text, question)
        asker = Author("discord", workplace.priya.id, "Priya")
        placed = sample_views.at(view, workplace.key(workplace.channel, thread.id), asker)
        placed = replace(placed, turn=replace(placed.turn, id=f"{self.drawn:02}{placed.turn.id}"))
        workplace.engine.views.append(placed)
        await workplace.draw(placed)
        return thread, workplace.public_messages(thread)

    def _all(self, messages: Sequence[Message]) -> str:
        return "".join(answered(message.to_json(), self._names) for message in messages)

    @property
    def _names(self) -> Mapping[str, str]:
        world = self.workplace.discord.world
        users = {user.id: user.name for user in world.users.values()}
        return users | {channel.id: channel.name for channel in world.channels.values()}


@asynccontextmanager
async def a_room() -> AsyncIterator[Room]:
    """Yield a room whose bot is connected and has registered its commands."""
    async with connected_bot() as workplace:
        await workplace.discord.until(lambda: workplace.discord.app.commands.get(""))
        yield Room(workplace)


async def command(words: str, reply: Reply) -> str:
    """Return the reply to a command of Priya, an admin of the server."""
    async with command_bot([reply]) as office:
        options = {"server": "jira"} if words == "mcp show" else {}
        interaction = await office.discord.command(office.priya, words, office.channel, options)
        await office.discord.until(lambda: interaction.messages)
        return "".join(answered(message.to_json(), {}) for message in interaction.messages)


async def form(asked: Form) -> tuple[str, str]:
    """Return the form that a command opens, and the response to a form with an invalid field."""
    opened = replace(asked, intro="", fields=tuple(replace(field, error="") for field in asked.fields))
    async with command_bot([opened], [replace(asked, intro="")]) as office:
        await office.discord.command(office.priya, "mcp add", office.channel)
        drawn = modal(office.discord.modal(office.priya).drawn)
        sent = await office.discord.submit(office.priya, {"Server address": "http://mcp.example.com"})
        await office.discord.until(lambda: sent.messages)
        return drawn, "".join(answered(message.to_json(), {}) for message in sent.messages)


if __name__ == "__main__":
    asyncio.run(main())
