"""A conversation as Markdown, to keep: every question, reply and call, as it stood.

Text of people, models and tools stands in it as it was written; calls and results are fenced, and no fence can be
closed by what is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from bot.commands.text_format import pluralize
from bot.domain.argument_secrets import lookalikes, with_masks
from bot.domain.conversations import ConversationKey
from bot.domain.messages import FilePart, ImagePart, StoredFile
from bot.domain.turns import ModelStep, ToolStep, TurnStatus
from bot.domain.views import TurnView

_TICKS = re.compile(r"`+")


def format_transcript(conversation: ConversationKey, title: str, views: Sequence[TurnView]) -> str:
    """The whole conversation, the oldest turn first."""
    parts = [
        f"# {_heading(title) or 'Conversation'}",
        f"{inline_code(str(conversation))}, {pluralize(len(views), 'turn')}, times in UTC",
    ]
    for view in views:
        parts += _turn(view)
    return "\n\n".join(part for part in parts if part) + "\n"


def fence(text: str, language: str = "") -> str:
    """Text in a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}{language}\n{text}\n{fence}"


def inline_code(text: str) -> str:
    """Text as code within a line, whatever backticks are in it."""
    line = " ".join(text.split())
    longest = max((len(run) for run in _TICKS.findall(line)), default=0)
    ticks = "`" * (longest + 1)
    room = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{room}{line}{room}{ticks}" if line else ""


def _turn(view: TurnView) -> Iterator[str]:
    turn = view.turn
    when = datetime.fromtimestamp(turn.created_at, UTC)
    yield f"## {inline_code(turn.author.name or turn.author.id)} · {when:%Y-%m-%d %H:%M}"
    yield _quoted(turn.question.text)
    for attachment in turn.question.attachments:
        yield f"Attached: {inline_code(attachment.name)} ({inline_code(attachment.mime_type)}, {attachment.size} bytes)"
    for step in view.steps:
        yield from _reply(step) if isinstance(step, ModelStep) else _call(step)
    if not turn.status.ended:
        yield "_This turn has not ended._"
    elif turn.failure:
        how = "Stopped" if turn.status is TurnStatus.CANCELLED else "Failed"
        yield f"_{how}:_ {inline_code(turn.failure)}"


def _reply(step: ModelStep) -> Iterator[str]:
    if step.message.text.strip():
        yield _closed(step.message.text)
    for note in step.notes:
        yield f"_Note:_ {inline_code(note)}"


def _call(step: ToolStep) -> Iterator[str]:
    name = f"{step.tool.server}.{step.tool.name}" if step.tool is not None else step.call.name
    yield f"### Call {inline_code(name)}: {step.status.value}"
    yield fence(_arguments(step), "json")
    if step.approval is not None and step.approval.decided_by:
        reason = f": {inline_code(step.approval.reason)}" if step.approval.reason else ""
        yield f"Decided by {inline_code(step.approval.decided_by)}{reason}"
    if step.result is None:
        return
    if step.result.text:
        yield fence(step.result.text)
    for part in step.result.parts:
        match part:
            case ImagePart(data, mime_type):
                yield f"_An image,_ {inline_code(mime_type)} _, {len(data)} bytes._"
            case StoredFile(_, mime_type, _, size) if part.is_image:
                yield f"_An image,_ {inline_code(mime_type)} _, {size} bytes._"
            case StoredFile(_, mime_type, file, size):
                yield f"_A file,_ {inline_code(file)} _,_ {inline_code(mime_type)} _, {size} bytes._"
            case FilePart(data, mime_type, file):
                yield f"_A file,_ {inline_code(file)} _,_ {inline_code(mime_type)} _, {len(data)} bytes._"
            case _:
                continue


def _arguments(step: ToolStep) -> str:
    if step.call.unreadable:
        return step.call.unreadable
    stored = step.approval.secrets if step.approval is not None else ()
    shown = with_masks(step.call.arguments, stored, lookalikes(step.call.arguments, stored))
    return json.dumps(shown, ensure_ascii=False, indent=2, default=str)


def _quoted(text: str) -> str:
    """What a person said, so that no line of it can be taken for a heading of ours."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines() or [""])


def _closed(text: str) -> str:
    """A reply with an open fence at its end closed, so that it does not swallow what follows."""
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
