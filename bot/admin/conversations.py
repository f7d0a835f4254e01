"""`/conversations`: list, show, delete and export. Users see their own; admins all of their workspace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from bot.admin.command import CONFIRM, CommandContext, CommandRejected, Verbs, verb
from bot.admin.text_format import (
    ROWS,
    format_ago,
    format_moment,
    offset,
    page_of,
    sentences,
    shorten,
    shorten_to_cells,
    status_word,
)
from bot.domain.commands import (
    ActionStyle,
    Parameter,
    ParameterKind,
    Reply,
    ReplyAction,
    ReplyFile,
    RequiredRole,
    Table,
)
from bot.domain.conversations import CONSOLE, ConversationKey
from bot.domain.messages import FilePart, ImagePart, StoredFile, TextPart
from bot.domain.turns import ModelStep, ToolStep, TurnStatus, TurnView
from bot.i18n import _, current_time_zone, format_number, format_time_zone, gettext_lazy, ngettext
from bot.ports import ReportingStore

# -------------------- transcripts

CONTENT_DELETED = gettext_lazy("What was asked, answered and returned is deleted.")
_TICKS = re.compile(r"`+")


def format_transcript(conversation: ConversationKey, title: str, views: Sequence[TurnView]) -> str:
    """Return a conversation as Markdown, oldest turn first. Calls and results are in fences that their text cannot
    close.
    """
    sections = [
        "# " + (_heading(title) or _("Conversation")),
        _(
            "{conversation}, {turns}, times in {zone}",
            conversation=inline_code(str(conversation)),
            turns=ngettext("{n} turn", "{n} turns", len(views)),
            zone=format_time_zone(),
        ),
    ]
    for view in views:
        sections += _turn(view)
    return "\n\n".join(part for part in sections if part) + "\n"


def format_code_block(text: str, language: str = "") -> str:
    """Return text in a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}{language}\n{text}\n{fence}"


def inline_code(text: str) -> str:
    """Return text as inline code, also if it contains backticks."""
    line = " ".join(text.split())
    longest = max((len(run) for run in _TICKS.findall(line)), default=0)
    ticks = "`" * (longest + 1)
    room = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{room}{line}{room}{ticks}" if line else ""


def _turn(view: TurnView) -> Iterator[str]:
    turn = view.turn
    when = datetime.fromtimestamp(turn.created_at, current_time_zone())
    yield f"## {inline_code(turn.author.name or turn.author.id)} · {when:%Y-%m-%d %H:%M}"
    if turn.content_deleted:
        yield f"_{CONTENT_DELETED}_"
        return
    if turn.question.agent_name:
        yield _("Agent: {name}", name=inline_code(turn.question.agent_name))
    # As a quote, no line of a user's text becomes a heading.
    yield "\n".join(f"> {line}".rstrip() for line in turn.question.text.splitlines() or [""])
    for attachment in turn.question.attachments:
        yield _(
            "Attached: {file} ({mime_type}, {size} bytes)",
            file=inline_code(attachment.name),
            mime_type=inline_code(attachment.mime_type),
            size=attachment.size,
        )
    for step in view.steps:
        yield from _reply(step) if isinstance(step, ModelStep) else _call(step)
    if not turn.status.ended:
        yield _("_This turn has not ended._")
    elif turn.failure:
        reason = inline_code(turn.failure)
        stopped = turn.status is TurnStatus.CANCELLED
        yield _("_Stopped:_ {reason}", reason=reason) if stopped else _("_Failed:_ {reason}", reason=reason)


def _reply(step: ModelStep) -> Iterator[str]:
    if step.message.text.strip():
        yield _close_fence(step.message.text)
    for note in step.notes:
        yield _("_Note:_ {text}", text=inline_code(note))


def _call(step: ToolStep) -> Iterator[str]:
    name = f"{step.tool.server}.{step.tool.name}" if step.tool is not None else step.call.name
    yield _("### Call {tool}: {status}", tool=inline_code(name), status=status_word(step.status))
    yield format_code_block(_arguments(step), "json")
    if step.approval is not None and step.approval.decided_by:
        decided = _("Decided by {who}", who=inline_code(step.approval.decided_by))
        yield f"{decided}: {inline_code(step.approval.reason)}" if step.approval.reason else decided
    if step.result is None:
        return
    if step.result.text:
        yield format_code_block(step.result.shown_text)
    yield from (_file(part) for part in step.result.parts if not isinstance(part, TextPart))


def _file(part: ImagePart | FilePart | StoredFile) -> str:
    size = part.size if isinstance(part, StoredFile) else len(part.data)
    mime_type = inline_code(part.mime_type)
    if isinstance(part, ImagePart) or (isinstance(part, StoredFile) and part.is_image):
        return _("_An image,_ {mime_type} _, {size} bytes._", mime_type=mime_type, size=size)
    file = inline_code(part.name)
    return _("_A file,_ {file} _,_ {mime_type} _, {size} bytes._", file=file, mime_type=mime_type, size=size)


def _arguments(step: ToolStep) -> str:
    if step.call.unreadable:
        return step.call.unreadable
    return json.dumps(step.masked_arguments, ensure_ascii=False, indent=2, default=str)


def _close_fence(text: str) -> str:
    """Close an open fence at the end of a reply, so that the rest of the document is unaffected."""
    fence = ""
    for line in text.splitlines():
        mark = re.match(r" {0,3}(`{3,}|~{3,})(.*)", line)
        if mark is None:
            continue
        if not fence:
            fence = mark[1]
        elif mark[1][0] == fence[0] and len(mark[1]) >= len(fence) and not mark[2].strip():
            fence = ""
    return f"{text.rstrip()}\n{fence}" if fence else text.strip("\n")


def _heading(title: str) -> str:
    line = " ".join(title.split())
    return inline_code(line[:200]) if line else ""


SHOWN_TURNS = 10
MOST_MATCHES = 6
_TERMINAL_CELLS = 32
"""Width of a title in a terminal, with which a row takes 80 columns."""
EXPORTED_TURNS = 10_000
_WHICH = Parameter("conversation", "its id as the list shows it; without one, this conversation", metavar="ID")
_NONE = gettext_lazy("There is no such conversation. `/conversations list` lists them.")


class Conversations(Verbs):
    """Verbs of `/conversations`."""

    @verb(
        "list",
        "your conversations, the latest first",
        (Parameter("all", "everybody's in this workspace, for admins", ParameterKind.FLAG),),
        who=RequiredRole.EVERYONE,
        aliases=("ls",),
        reads=True,
    )
    async def _list(self, request: CommandContext) -> Reply:
        everybody, here = request.arguments.has("all"), request.conversation
        is_terminal = here.platform == CONSOLE
        if everybody and not self._dependencies.rights.administers(request.member):
            raise CommandRejected(
                _(
                    "Only {who} can see everybody's. You can use `/conversations list`.",
                    who=self._dependencies.rights.who,
                )
            )
        person, number = "" if everybody else request.author.principal, request.arguments.page
        # A user's own conversations are on the user's platform, also over HTTP in another platform's
        # workspace.
        reach = request.conversation.workspace_key if everybody else ":".join(str(request.conversation).split(":")[:2])
        summaries, count = await self._dependencies.stores.archive.conversations(
            f"{reach}:", person, ROWS, offset(number)
        )
        if not count:
            return Reply(_("No conversations yet."))
        now = self._dependencies.clock()
        # A terminal is narrow, and shows whole lines: there, every conversation of one's own was begun by oneself.
        names_beginner = everybody or not is_terminal
        rows = tuple(
            (
                _id(summary.key, here),
                shorten_to_cells(summary.title, _TERMINAL_CELLS) if is_terminal else shorten(summary.title, 60),
                status_word(summary.state),
                str(summary.turns),
                *((summary.started_by,) if names_beginner else ()),
                format_ago(summary.updated_at, now),
            )
            for summary in summaries
        )
        return Reply(
            _("Conversations · {count}", count=format_number(count)),
            Table(
                (
                    "id",
                    "about",
                    "state",
                    "turns",
                    *((gettext_lazy("begun by"),) if names_beginner else ()),
                    "last",
                ),
                rows,
                tuple(("conversations", "show", row[0]) for row in rows),
            ),
            page=page_of(number, count, ("conversations", "list", *(("--all",) if everybody else ()))),
        )

    @verb("show", "one conversation", (_WHICH,), who=RequiredRole.EVERYONE, aliases=("get", "read"), reads=True)
    async def _show(self, request: CommandContext) -> Reply:
        key = await self._find(request)
        views = await self._turns(key, SHOWN_TURNS)
        rows = tuple(
            (
                format_moment(view.turn.created_at),
                view.turn.author.name,
                shorten(view.turn.question.text, 80),
                str(CONTENT_DELETED) if view.turn.content_deleted else shorten(_came_of_it(view), 120),
            )
            for view in views
        )
        words = (_id(key, request.conversation),)
        return Reply(
            ngettext(
                "The last {n} turn · times in {zone}",
                "The last {n} turns · times in {zone}",
                len(views),
                zone=format_time_zone(),
            ),
            Table(("when", "who", "asked", "what came of it"), rows),
            details=((gettext_lazy("id"), _id(key, request.conversation)),),
            actions=(
                ReplyAction(_("Export"), ("conversations", "export", *words)),
                ReplyAction(_("Delete"), ("conversations", "delete", *words), ActionStyle.DANGER),
            ),
        )

    @verb(
        "delete",
        "delete a conversation for good",
        (_WHICH, CONFIRM),
        who=RequiredRole.EVERYONE,
        aliases=("remove", "rm"),
    )
    async def _delete(self, request: CommandContext) -> Reply:
        key = await self._find(request)
        views = await self._turns(key, EXPORTED_TURNS)
        typed = request.arguments.get("confirm")
        shown = _id(key, request.conversation)
        word = key.thread.strip() or shown
        if not typed:
            calls = sum(isinstance(step, ToolStep) for view in views for step in view.steps)
            return Reply(
                _(
                    "Delete this conversation? {turns} and {calls} go; the audit stays. This cannot be undone. Type "
                    "its id to confirm.",
                    turns=ngettext("{n} turn", "{n} turns", len(views)),
                    calls=ngettext("{n} call", "{n} calls", calls),
                ),
                details=((gettext_lazy("id"), shown), (gettext_lazy("to confirm"), word)),
                actions=(
                    ReplyAction(_("Delete"), ("conversations", "delete", shown), ActionStyle.DANGER, confirm=word),
                ),
            )
        if typed.strip() not in (word, shown, _id(key)):
            raise CommandRejected(_("That was not its id. Nothing was deleted."))
        if not await self._dependencies.stores.archive.delete(key, request.author):
            raise CommandRejected(
                _("It is not at rest: something runs or waits in it. Stop that first. Nothing was deleted.")
            )
        return Reply(_("The conversation is deleted."))

    @verb("export", "a conversation as Markdown", (_WHICH,), who=RequiredRole.EVERYONE, aliases=("save",), reads=True)
    async def _export(self, request: CommandContext) -> Reply:
        key = await self._find(request)
        views = await self._turns(key, EXPORTED_TURNS)
        text = format_transcript(key, views[0].turn.question.text, views)
        safe = "".join(character if character.isalnum() else "-" for character in _id(key))[:80]
        summary = await self._dependencies.stores.archive.summary(key)
        omitted = summary.turns - len(views) if summary is not None else 0
        cut = (
            ngettext("The {n} turn before them are left out.", "The {n} turns before them are left out.", omitted)
            if omitted > 0
            else ""
        )
        return Reply(
            sentences(
                ngettext(
                    "The conversation as Markdown: {n} turn.", "The conversation as Markdown: {n} turns.", len(views)
                ),
                cut,
            ),
            document=ReplyFile(f"conversation-{safe}.md", text),
        )

    async def _turns(self, key: ConversationKey, most: int) -> Sequence[TurnView]:
        """Return the last turns of a conversation. Raises CommandRejected without any."""
        if views := await self._dependencies.process.recent_turns(key, most):
            return views
        raise CommandRejected(_NONE)

    async def _find(self, request: CommandContext) -> ConversationKey:
        """Return the named conversation if the user may see it. Raises CommandRejected otherwise."""
        typed, here = request.arguments.get("conversation"), request.conversation
        key = _parse_key(typed, here)
        if typed and key is not None and key.platform == CONSOLE and key.channel == here.channel:
            matches = await find_conversations(self._dependencies.stores.archive, key)
            if len(matches) > 1:
                raise CommandRejected(ambiguous_id(key.thread, matches))
            key = matches[0] if matches else key
        if key is None or key.workspace_key != request.conversation.workspace_key:
            raise CommandRejected(_NONE)
        took_part = await self._dependencies.stores.archive.has_participant(key, request.author.principal)
        if not (took_part or self._dependencies.rights.administers(request.member)):
            raise CommandRejected(_NONE)
        return key


async def find_conversations(archive: ReportingStore, beginning: ConversationKey) -> Sequence[ConversationKey]:
    """Return up to MOST_MATCHES conversations with this beginning of a thread, newest first; a full match alone."""
    if await archive.summary(beginning) is not None:
        return (beginning,)
    summaries, _count = await archive.conversations(str(beginning), "", MOST_MATCHES, 0)
    return [summary.key for summary in summaries]


def ambiguous_id(typed: str, matches: Sequence[ConversationKey]) -> str:
    """Return the sentence about the beginning of several ids."""
    ids = ", ".join(key.thread for key in matches)
    return _("{beginning} is the beginning of several ids: {ids}", beginning=typed, ids=ids)


def _id(key: ConversationKey, here: ConversationKey | None = None) -> str:
    """Return the id of a conversation within its workspace: `channel:thread`; the thread alone for one of the same user
    in a terminal.
    """
    if here is not None and key.platform == CONSOLE and (key.workspace, key.channel) == (here.workspace, here.channel):
        return str(key).split(":")[3]
    return ":".join(str(key).split(":")[2:])


def _parse_key(text: str, conversation: ConversationKey) -> ConversationKey | None:
    """Parse a whole key, `channel:thread`, or a thread of this channel. Return None if it is invalid."""
    own = str(conversation).split(":")
    words = text.split(":") if text else own[3:]
    try:
        return ConversationKey.parse(":".join((*own[: 4 - len(words)], *words)))
    except ValueError:
        return None


def _came_of_it(view: TurnView) -> str:
    replies = [step.message.text for step in view.steps if isinstance(step, ModelStep) and step.message.text.strip()]
    return replies[-1] if replies else view.turn.failure or status_word(view.turn.status)
