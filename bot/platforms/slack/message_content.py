"""Content of a received message: all that Slack displays of it, as Slack's markup.

Blocks and attachments have text that `text` lacks: forwarded messages, previews of links, alerts of apps. `text` may
be a fallback of the blocks; text that both have is returned once. Parts without text are named in brackets, so that the
model knows of them. The result is untrusted data.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bot.chat.message_handler import LONGEST_FORWARDED, PREVIEW_LABEL, MessageContent, ThreadMessage, forwarded_label
from bot.platforms.slack.blocks import escape
from bot.platforms.slack.web_api import object_in, objects_in

LONGEST_TEXT = 40_000
"""Characters of a message; Slack's limit for users."""
MOST_PARTS = 100
"""Attachments of a message, and blocks of each."""
DEEPEST = 5
_LABEL = re.compile(r"(<[^<>|\n]*)\|[^<>\n]*>")
_WORDS = re.compile(r"[^\W_]+")
_MENTION = re.compile(r"<[@!][^<>\n]*>")
_QUOTE = re.compile(r"^[^\S\n]*(?:&gt;|>)(?:(?:&gt;|>){2}.*\Z|[^\n]*)", re.MULTILINE | re.DOTALL)
_SHARED = ("is_share", "is_msg_unfurl")
_ORIGINS = (
    *_SHARED,
    "from_url",
    "original_url",
    "app_unfurl_url",
    "author_name",
    "author_id",
    "service_name",
    "bot_id",
)
_INLINE = {
    **dict.fromkeys(("plain_text", "text", "raw_text", "mrkdwn"), ("text", "{}")),
    "user": ("user_id", "<@{}>"),
    "usergroup": ("usergroup_id", "<!subteam^{}>"),
    "channel": ("channel_id", "<#{}>"),
    "broadcast": ("range", "<!{}>"),
    "emoji": ("name", ":{}:"),
    **dict.fromkeys(("color", "raw_number"), ("value", "{}")),
    "date": ("fallback", "{}"),
    "image": ("alt_text", "[image: {}]"),
}
"""Keys and markup of elements by their types."""
_TEXTS = ("label", "title", "subtitle", "text", "body", "description", "accessory", "element")
_PARTS = ("rich_text_title", "details", "output", "sources", "elements", "child_blocks", "tasks", "actions")
_RUNS = {"rich_text_section": "", "rich_text_preformatted": "", "rich_text_quote": "", "context": " ", "actions": " "}
"""Separators between the elements of blocks that are one paragraph."""


def message_content(message: Mapping[str, Any]) -> MessageContent:
    """Return the content of a message of the events or Web API. Attachments of an app's message are its own text."""
    attachments = objects_in(message, "attachments")[:MOST_PARTS]
    own = [part for part in attachments if not _is_shared(part) and (message.get("bot_id") or _is_table(part))]
    # The fallback of a message of attachments alone may be in `text`, too.
    shown = _merge([str(message.get("text") or "")], _blocks(objects_in(message, "blocks")))
    shown = _merge([shown], map(_attachment, own))[:LONGEST_TEXT]
    return MessageContent(shown, tuple(_forwarded(part) for part in attachments if part not in own))


def files_of(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the files of a message and of those that it forwards."""
    for part in (message, *objects_in(message, "attachments")):
        yield from objects_in(part, "files")


def addressing_text(message: Mapping[str, Any]) -> str:
    """Return the part of a message that mentions count in: neither quotes nor forwarded messages."""
    text, blocks = str(message.get("text") or ""), "\n".join(_blocks(objects_in(message, "blocks")))
    unquoted = _QUOTE.sub("", blocks)
    quoted = {*_MENTION.findall(blocks)} - {*_MENTION.findall(unquoted)}
    return _MENTION.sub(lambda match: "" if match[0] in quoted else match[0], _QUOTE.sub("", text)) + unquoted


def _is_shared(part: Mapping[str, Any]) -> bool:
    return any(part.get(name) for name in _SHARED)


def _is_table(part: Mapping[str, Any]) -> bool:
    kinds = {block.get("type") for block in objects_in(part, "blocks")}
    return kinds == {"table"} and not any(part.get(name) for name in _ORIGINS)


def _forwarded(part: Mapping[str, Any]) -> ThreadMessage:
    author, place = (str(part.get(name) or "") for name in ("author_name", "channel_name"))
    label = forwarded_label(author, place) if _is_shared(part) else PREVIEW_LABEL
    return ThreadMessage("", str(part.get("author_id") or ""), label, _attachment(part)[:LONGEST_FORWARDED])


def _attachment(part: Mapping[str, Any], depth: int = 1) -> str:
    title, link = (str(part.get(name) or "") for name in ("title", "title_link"))
    shown = () if _is_shared(part) else ("author_name", "footer")
    texts = [str(part.get(name) or "") for name in ("pretext", *shown[:1])]
    texts += [f"<{link}|{title}>" if title and link else title or link, str(part.get("text") or "")]
    fields = objects_in(part, "fields")
    texts += [f"{field.get('title') or ''}: {field.get('value') or ''}".strip(": ") for field in fields]
    texts += [f"[file: {escape(file.get('name') or 'file')}]" for file in objects_in(part, "files")]
    texts += [str(part.get(name) or "") for name in shown[1:]]
    texts += [_inline(action) for action in objects_in(part, "actions")]
    messages = [object_in(inner, "message") for inner in objects_in(part, "message_blocks")]
    blocks = _blocks(objects_in(part, "blocks"))
    if depth < DEEPEST:
        inner = [*filter(None, messages), *objects_in(part, "attachments")][:MOST_PARTS]
        blocks += [_attachment(each, depth + 1) for each in inner]
    image = "[image]" if part.get("image_url") or part.get("thumb_url") else ""
    text = _merge(texts, blocks) or str(part.get("fallback") or "")
    return "\n".join(filter(None, (text, image))) or "[an attachment without text]"


def _merge(texts: Iterable[str], blocks: Iterable[str]) -> str:
    """Return texts and blocks without those whose words follow each other in the others."""
    text, blocks = "\n".join(filter(None, texts)), [*filter(None, blocks)]
    known, shown = _normalize(text), "\n".join(blocks)
    more = [block for block in blocks if _normalize(block) not in known]
    return shown if more and known in _normalize(shown) else "\n".join(filter(None, (text, *more)))


def _normalize(text: str) -> str:
    """Return the words of a text. One of marks alone, such as emoji, stays as it is."""
    words = _WORDS.findall(_LABEL.sub(r"\1>", html.unescape(text)))
    return f" {' '.join(words).lower()} " if words else text.strip()


def _blocks(blocks: Iterable[Mapping[str, Any]]) -> list[str]:
    return [text for block in [*blocks][:MOST_PARTS] for text in _block(block, 1) if text.strip()]


def _block(block: Mapping[str, Any], depth: int) -> Iterator[str]:
    kind, rows = str(block.get("type")), block.get("rows")
    if kind in _RUNS:
        text = _RUNS[kind].join(map(_inline, objects_in(block, "elements")))
        yield "&gt; " + text.replace("\n", "\n&gt; ") if kind == "rich_text_quote" else text
    elif isinstance(rows, list):
        for row in rows:
            cells = [cell for cell in row if isinstance(cell, dict)] if isinstance(row, list) else ()
            yield " | ".join(_inline(cell) or " ".join(_block(cell, depth + 1)) for cell in cells)
    elif kind in ("url", "button"):
        yield _inline(block)
    elif kind not in ("divider", "context_actions"):
        texts = [*map(_inline, (*map(block.get, _TEXTS), *objects_in(block, "fields"), block))]
        inner = [part for name in _PARTS for part in (objects_in(block, name) or [object_in(block, name)]) if part]
        texts += [text for part in inner if depth < DEEPEST for text in _block(part, depth + 1)]
        yield from filter(None, texts) if any(texts) else [f"[a part that cannot be read: {escape(kind)[:40]}]"]


def _inline(part: Any) -> str:
    """Return an element or text object as markup; empty if it has no text."""
    if not isinstance(part, dict):
        return part if isinstance(part, str) else ""
    kind = str(part.get("type"))
    if kind in ("link", "url"):
        return f"<{part.get('url')}|{escape(part.get('text') or part.get('url') or '')}>"
    if kind == "button":
        label = _inline(part.get("text"))
        return f"[button: <{part['url']}|{label}>]" if part.get("url") else f"[button: {label}]"
    choices = [part.get("placeholder"), *(option.get("text") for option in objects_in(part, "options"))]
    if shown := ", ".join(filter(None, map(_inline, choices))):
        return f"[choice: {shown}]"
    name, markup = _INLINE.get(kind, ("", ""))
    text = str(part.get(name) or "")
    return markup.format(text if kind == "mrkdwn" else escape(text)) if text or kind == "image" else ""
