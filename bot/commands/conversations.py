"""`/conversations`: what was talked about. Everybody sees their own; admins any of their workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bot.commands.command import Command, Deed, Request
from bot.commands.paging import ROWS, offset, page_of
from bot.commands.parameters import CONFIRM
from bot.commands.parts import CommandParts
from bot.commands.phrases import ago, counted, moment, shortened
from bot.commands.refusals import Refusal
from bot.commands.transcripts import transcript
from bot.domain.commands import Action, Document, Parameter, Reply, Shape, Table, Tone, Verb, Who
from bot.domain.conversations import ConversationKey
from bot.domain.turns import ModelStep, ToolStep
from bot.domain.views import TurnView

SHOWN_TURNS = 10
EXPORTED_TURNS = 10_000
_WHICH = Parameter("conversation", "its id as the list shows it; without one, this conversation", metavar="ID")
_NONE = "There is no such conversation. `/conversations list` lists them."


class Conversations:
    """Lists, shows, deletes and exports."""

    def __init__(self, parts: CommandParts) -> None:
        self._parts = parts

    @property
    def deeds(self) -> tuple[Deed, ...]:
        """The verbs."""
        everybodys = Parameter("all", "everybody's in this workspace, for admins", Shape.FLAG)
        everyone = Who.EVERYONE
        return (
            Deed(Verb("list", "your conversations, the latest first", (everybodys,), everyone, ("ls",)), self._list),
            Deed(Verb("show", "one conversation", (_WHICH,), everyone, ("get", "read")), self._show),
            Deed(
                Verb("delete", "delete a conversation for good", (_WHICH, CONFIRM), everyone, ("remove", "rm")),
                self._delete,
            ),
            Deed(Verb("export", "a conversation as Markdown", (_WHICH,), everyone, ("save",)), self._export),
        )

    async def _list(self, request: Request) -> AsyncIterator[Reply]:
        everybody = request.arguments.given("all")
        if everybody and not self._parts.rights.administers(request.member):
            raise Refusal(f"Only {self._parts.rights.who} can see everybody's. You can use `/conversations list`.")
        person, number = "" if everybody else request.author.principal, request.arguments.page
        # One's own are on the platform one speaks on, also where that is HTTP in another platform's workspace.
        reach = request.conversation.home if everybody else ":".join(str(request.conversation).split(":")[:2])
        found, count = await self._parts.archive.conversations(f"{reach}:", person, ROWS, offset(number))
        if not count:
            yield Reply("No conversations yet.")
            return
        now = self._parts.clock()
        rows = tuple(
            (
                _id(each.key),
                shortened(each.title, 60),
                each.state,
                str(each.turns),
                each.started_by,
                ago(each.updated_at, now),
            )
            for each in found
        )
        yield Reply(
            f"Conversations · {count}",
            Table(("id", "about", "state", "turns", "begun by", "last"), rows),
            page=page_of(number, count, ("conversations", "list", *(("--all",) if everybody else ()))),
        )

    async def _show(self, request: Request) -> AsyncIterator[Reply]:
        key = await self._find(request)
        views = await self._parts.recent(key, SHOWN_TURNS)
        if not views:
            raise Refusal(_NONE)
        rows = tuple(
            (
                moment(view.turn.created_at),
                view.turn.author.name,
                shortened(view.turn.question.text, 80),
                shortened(_came_of_it(view), 120),
            )
            for view in views
        )
        words = (_id(key),)
        yield Reply(
            f"The last {counted(len(views), 'turn')} · times in UTC",
            Table(("when", "who", "asked", "what came of it"), rows),
            details=(("id", _id(key)),),
            actions=(
                Action("Export", ("conversations", "export", *words)),
                Action("Delete", ("conversations", "delete", *words), Tone.DANGER),
            ),
        )

    async def _delete(self, request: Request) -> AsyncIterator[Reply]:
        key = await self._find(request)
        views = await self._parts.recent(key, EXPORTED_TURNS)
        if not views:
            raise Refusal(_NONE)
        typed = request.arguments.one("confirm")
        word = key.thread.strip() or _id(key)
        if not typed:
            calls = sum(isinstance(step, ToolStep) for view in views for step in view.steps)
            yield Reply(
                f"Delete this conversation? {counted(len(views), 'turn')} and {counted(calls, 'call')} go; the audit "
                "stays. This cannot be undone. Type its id to confirm.",
                details=(("id", _id(key)), ("to confirm", word)),
                actions=(Action("Delete", ("conversations", "delete", _id(key)), Tone.DANGER, confirm=word),),
            )
            return
        if typed.strip() not in (word, _id(key)):
            raise Refusal("That was not its id. Nothing was deleted.")
        if not await self._parts.archive.delete(key, request.author):
            raise Refusal("It is not at rest: something runs or waits in it. Stop that first. Nothing was deleted.")
        yield Reply("The conversation is deleted.")

    async def _export(self, request: Request) -> AsyncIterator[Reply]:
        key = await self._find(request)
        views = await self._parts.recent(key, EXPORTED_TURNS)
        if not views:
            raise Refusal(_NONE)
        text = transcript(key, views[0].turn.question.text, views)
        safe = "".join(character if character.isalnum() else "-" for character in _id(key))[:80]
        summary = await self._parts.archive.summary(key)
        left = summary.turns - len(views) if summary is not None else 0
        cut = f" The {counted(left, 'turn')} before them are left out." if left > 0 else ""
        yield Reply(
            f"The conversation as Markdown: {counted(len(views), 'turn')}.{cut}",
            document=Document(f"conversation-{safe}.md", text),
        )

    async def _find(self, request: Request) -> ConversationKey:
        """The conversation that is meant, if this person may see it; all others do not exist."""
        key = _meant(request.arguments.one("conversation"), request.conversation)
        if key is None or key.home != request.conversation.home:
            raise Refusal(_NONE)
        took_part = await self._parts.archive.took_part(key, request.author.principal)
        if not (took_part or self._parts.rights.administers(request.member)):
            raise Refusal(_NONE)
        return key


def conversations_command(parts: CommandParts) -> Command:
    """The command with all its verbs."""
    return Command("conversations", "Conversations", Conversations(parts).deeds, parts.rights, default="list")


def _id(key: ConversationKey) -> str:
    """A conversation within its workspace: `channel:thread`."""
    return ":".join(str(key).split(":")[2:])


def _meant(text: str, here: ConversationKey) -> ConversationKey | None:
    """A whole key, `channel:thread`, or a thread of this channel."""
    own = str(here).split(":")
    parts = text.split(":") if text else own[3:]
    try:
        return ConversationKey.parse(":".join((*own[: 4 - len(parts)], *parts)))
    except ValueError:
        return None


def _came_of_it(view: TurnView) -> str:
    replies = [step.message.text for step in view.steps if isinstance(step, ModelStep) and step.message.text.strip()]
    return replies[-1] if replies else view.turn.failure or view.turn.status.value
