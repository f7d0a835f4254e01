"""Visible text of a message or a view, without its formatting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fakes.slack.messages import Message

READ = ("text", "title", "rich_text_title", "subtitle", "body", "label", "hint", "description", "details", "output")
NESTED = ("elements", "fields", "accessory", "element", "options", "option_groups", "tasks", "child_blocks", "actions")
SIDES = ("positive_button", "negative_button")
LINES = frozenset({"rich_text_section", "rich_text_preformatted", "rich_text_quote"})


def words_of(message: Message, viewer: str) -> str:
    """Return the texts of a message as one user (by id) sees them, a line each.

    They are the streamed text, then the blocks or else the text, then the files.
    """
    lines: list[str] = []
    if message.stream is not None:
        lines.append(message.stream.plan_title)
        lines += [_task(task) for task in message.stream.tasks.values()]
    lines.append(message.markdown)
    if message.blocks:
        lines += words_in(message.blocks, viewer)
    elif not message.markdown:
        lines.append(message.text)
    lines += [stored.name for stored in message.files]
    return "\n".join(line for line in lines if line)


def words_in(drawn: Any, viewer: str = "") -> list[str]:
    """Return all texts in blocks, a view or a part of one, in order.

    With a viewer, texts hidden from that user are left out. A paragraph of rich text and a row of a table are one line
    each.
    """
    found: list[str] = []
    match drawn:
        case str():
            found = [drawn]
        case list():
            found = [line for item in drawn for line in words_in(item, viewer)]
        case {"visible_to_user_ids": list(seers)} if viewer and viewer not in seers:
            pass
        case {"type": "table", "rows": list(rows)}:
            found = [" | ".join(" ".join(words_in(cell)) for cell in row) for row in rows]
        case {"type": str(kind), "elements": list(pieces)} if kind in LINES:
            found = ["".join(_piece(piece) for piece in pieces)]
        case dict():
            read = [drawn[key] for key in (*READ, *SIDES, *NESTED) if isinstance(drawn.get(key), str | dict | list)]
            found = [line for part in read for line in words_in(part, viewer)]
    return found


def _piece(piece: dict[str, Any]) -> str:
    match piece:
        case {"text": str(text)} | {"type": "link", "url": str(text)} | {"type": "date", "fallback": str(text)}:
            return text
        case {"type": "user", "user_id": str(user)}:
            return f"<@{user}>"
        case {"type": "usergroup", "usergroup_id": str(group)}:
            return f"<!subteam^{group}>"
        case {"type": "broadcast", "range": str(everybody)}:
            return f"<!{everybody}>"
        case {"type": "emoji", "name": str(name)}:
            return f":{name}:"
    return ""


def _task(task: dict[str, Any]) -> str:
    return " ".join(str(task[key]) for key in ("title", "details", "output") if task.get(key))
