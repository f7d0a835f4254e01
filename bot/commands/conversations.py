"""`/conversations`: what was talked about. Everybody sees their own; admins any of their workspace."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bot.commands.command import Command, CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.paging import ROWS, offset, page_of
from bot.commands.parameters import CONFIRM
from bot.commands.rejections import CommandRejected
from bot.commands.text_format import format_ago, format_moment, pluralize, shorten
from bot.commands.transcripts import format_transcript
from bot.domain.commands import (
    ActionStyle,
    Parameter,
    ParameterKind,
    Reply,
    ReplyAction,
    ReplyFile,
    RequiredRole,
    Table,
    Verb,
)
from bot.domain.conversations import ConversationKey
from bot.domain.turns import ModelStep, ToolStep
from bot.domain.views import TurnView

SHOWN_TURNS = 10
EXPORTED_TURNS = 10_000
_WHICH = Parameter("conversation", "its id as the list shows it; without one, this conversation", metavar="ID")
_NONE = "There is no such conversation. `/conversations list` lists them."


class Conversations:
    """Lists, shows, deletes and exports."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts

    @property
    def deeds(self) -> tuple[VerbHandler, ...]:
        """The verbs."""
        everybodys = Parameter("all", "everybody's in this workspace, for admins", ParameterKind.FLAG)
        everyone = RequiredRole.EVERYONE
        return (
            VerbHandler(
                Verb("list", "your conversations, the latest first", (everybodys,), everyone, ("ls",)), self._list
            ),
            VerbHandler(Verb("show", "one conversation", (_WHICH,), everyone, ("get", "read")), self._show),
            VerbHandler(
                Verb("delete", "delete a conversation for good", (_WHICH, CONFIRM), everyone, ("remove", "rm")),
                self._delete,
            ),
            VerbHandler(Verb("export", "a conversation as Markdown", (_WHICH,), everyone, ("save",)), self._export),
        )

    async def _list(self, request: CommandContext) -> AsyncIterator[Reply]:
        everybody = request.arguments.given("all")
        if everybody and not self._parts.rights.administers(request.member):
            raise CommandRejected(
                f"Only {self._parts.rights.who} can see everybody's. You can use `/conversations list`."
            )
        person, number = "" if everybody else request.author.principal, request.arguments.page
        # One's own are on the platform one speaks on, also where that is HTTP in another platform's workspace.
        reach = request.conversation.workspace_key if everybody else ":".join(str(request.conversation).split(":")[:2])
        found, count = await self._parts.archive.conversations(f"{reach}:", person, ROWS, offset(number))
        if not count:
            yield Reply("No conversations yet.")
            return
        now = self._parts.clock()
        rows = tuple(
            (
                _id(each.key),
                shorten(each.title, 60),
                each.state,
                str(each.turns),
                each.started_by,
                format_ago(each.updated_at, now),
            )
            for each in found
        )
        yield Reply(
            f"Conversations · {count}",
            Table(("id", "about", "state", "turns", "begun by", "last"), rows),
            page=page_of(number, count, ("conversations", "list", *(("--all",) if everybody else ()))),
        )

    async def _show(self, request: CommandContext) -> AsyncIterator[Reply]:
        key = await self._find(request)
        views = await self._parts.recent(key, SHOWN_TURNS)
        if not views:
            raise CommandRejected(_NONE)
        rows = tuple(
            (
                format_moment(view.turn.created_at),
                view.turn.author.name,
                shorten(view.turn.question.text, 80),
                shorten(_came_of_it(view), 120),
            )
            for view in views
        )
        words = (_id(key),)
        yield Reply(
            f"The last {pluralize(len(views), 'turn')} · times in UTC",
            Table(("when", "who", "asked", "what came of it"), rows),
            details=(("id", _id(key)),),
            actions=(
                ReplyAction("Export", ("conversations", "export", *words)),
                ReplyAction("Delete", ("conversations", "delete", *words), ActionStyle.DANGER),
            ),
        )

    async def _delete(self, request: CommandContext) -> AsyncIterator[Reply]:
        key = await self._find(request)
        views = await self._parts.recent(key, EXPORTED_TURNS)
        if not views:
            raise CommandRejected(_NONE)
        typed = request.arguments.one("confirm")
        word = key.thread.strip() or _id(key)
        if not typed:
            calls = sum(isinstance(step, ToolStep) for view in views for step in view.steps)
            yield Reply(
                f"Delete this conversation? {pluralize(len(views), 'turn')} and {pluralize(calls, 'call')} go; the "
                "audit "
                "stays. This cannot be undone. Type its id to confirm.",
                details=(("id", _id(key)), ("to confirm", word)),
                actions=(
                    ReplyAction("Delete", ("conversations", "delete", _id(key)), ActionStyle.DANGER, confirm=word),
                ),
            )
            return
        if typed.strip() not in (word, _id(key)):
            raise CommandRejected("That was not its id. Nothing was deleted.")
        if not await self._parts.archive.delete(key, request.author):
            raise CommandRejected(
                "It is not at rest: something runs or waits in it. Stop that first. Nothing was deleted."
            )
        yield Reply("The conversation is deleted.")

    async def _export(self, request: CommandContext) -> AsyncIterator[Reply]:
        key = await self._find(request)
        views = await self._parts.recent(key, EXPORTED_TURNS)
        if not views:
            raise CommandRejected(_NONE)
        text = format_transcript(key, views[0].turn.question.text, views)
        safe = "".join(character if character.isalnum() else "-" for character in _id(key))[:80]
        summary = await self._parts.archive.summary(key)
        left = summary.turns - len(views) if summary is not None else 0
        cut = f" The {pluralize(left, 'turn')} before them are left out." if left > 0 else ""
        yield Reply(
            f"The conversation as Markdown: {pluralize(len(views), 'turn')}.{cut}",
            document=ReplyFile(f"conversation-{safe}.md", text),
        )

    async def _find(self, request: CommandContext) -> ConversationKey:
        """The conversation that is meant, if this person may see it; all others do not exist."""
        key = _meant(request.arguments.one("conversation"), request.conversation)
        if key is None or key.workspace_key != request.conversation.workspace_key:
            raise CommandRejected(_NONE)
        took_part = await self._parts.archive.has_participant(key, request.author.principal)
        if not (took_part or self._parts.rights.administers(request.member)):
            raise CommandRejected(_NONE)
        return key


def conversations_command(parts: CommandDependencies) -> Command:
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
