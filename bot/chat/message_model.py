"""Message of the bot without the syntax of a platform; a renderer of each platform makes a native one of it.

Text is literal: it has no markup, mention or link, with any characters. Only spans carry style, and only
the renderer escapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from string import Formatter

from bot.chat.actions import Action
from bot.domain.conversations import Author
from bot.i18n import format_time, format_time_zone
from bot.rendering.call_arguments import CardArgument


@dataclass(frozen=True, slots=True)
class Text:
    """Literal text. `limit` is the maximum number of characters on a platform with small messages, 0 for none. A web
    address in `unlinked` text does not become a link.
    """

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    limit: int = 0
    unlinked: bool = False


@dataclass(frozen=True, slots=True)
class Mention:
    """A user: a mention if `Message.notifies` has the user, or if it can be shown without a notification; otherwise the
    name.
    """

    user: Author


@dataclass(frozen=True, slots=True)
class GroupMention:
    """A group or role of users, by its principal. It is shown as `Mention` is."""

    principal: str
    name: str


class TimeFormat(Enum):
    """Format of a time in the reader's time zone."""

    CLOCK = "clock"
    """Hours and minutes."""
    EXPIRY = "expiry"
    """Date and time, or the time that remains."""


@dataclass(frozen=True, slots=True)
class Time:
    """A time in epoch seconds. `fallback` is for clients that cannot display local times."""

    at: float
    format: TimeFormat
    fallback: str


def clock_time(at: float) -> Time:
    """Return a time of day."""
    return Time(at, TimeFormat.CLOCK, f"{format_time(at)} {format_time_zone()}")


@dataclass(frozen=True, slots=True)
class Link:
    """A link of the bot's own, never of outside text."""

    url: str
    text: str


@dataclass(frozen=True, slots=True)
class ChannelLink:
    """A channel by its id. Clients show the name only to users with access."""

    channel: str


Span = Text | Mention | GroupMention | Time | Link | ChannelLink
Spans = tuple[Span, ...]


def fill_spans(text: str, /, **values: Span | Spans) -> Spans:
    """Return a translated text with spans in place of its open values: `fill_spans(_("Asked by {user}"), user=…)`."""
    spans: list[Span] = []
    for literal, name, _spec, _conversion in Formatter().parse(text):
        if literal:
            spans.append(Text(literal))
        if name is not None:
            value = values[name]
            spans += value if isinstance(value, tuple) else (value,)
    return tuple(spans)


@dataclass(frozen=True, slots=True)
class _TextBlock:
    text: str


class Title(_TextBlock):
    """Title of a part of a page."""


@dataclass(frozen=True, slots=True)
class Heading(_TextBlock):
    """Title of a card or of a call on it."""

    limit: int = 0


@dataclass(frozen=True, slots=True)
class _SpansBlock:
    spans: Spans


class Paragraph(_SpansBlock):
    """Running text. A line end in a span starts a new line."""


class Footer(_SpansBlock):
    """Secondary facts below a card."""


@dataclass(frozen=True, slots=True)
class Details:
    """Secondary lines of a call. A renderer without room keeps the first one. `limit` is that of each line."""

    lines: tuple[str, ...]
    limit: int = 0


class Quote(_TextBlock):
    """Text of another author, possibly with several lines. Its web addresses do not become links."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments of a call. They take the room that the rest of the message leaves; omitted ones are counted."""

    arguments: tuple[CardArgument, ...]


class Markdown(_TextBlock):
    """Text in Markdown: of the model, formatted for the platform, or of a command."""


class Code(_TextBlock):
    """Text that is shown literally, in a font of equal widths."""


@dataclass(frozen=True, slots=True)
class Caption:
    """Small lines of plain text, such as the state of a tool call."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of literal cells below headings."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with literal values, possibly of several lines. If `unlinked` is True, web addresses are no links."""

    facts: tuple[tuple[str, str], ...]
    unlinked: bool = False


@dataclass(frozen=True, slots=True)
class Feedback:
    """Buttons for feedback on the answer of a turn."""

    turn_id: str


@dataclass(frozen=True, slots=True)
class Rule:
    """A line between two parts."""


class ButtonStyle(Enum):
    """Emphasis of a button."""

    PLAIN = "plain"
    PRIMARY = "primary"
    POSITIVE = "positive"
    DANGER = "danger"


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Question before the action of a button: a dialog, or a message of its own."""

    title: str
    text: str
    confirm: str


@dataclass(frozen=True, slots=True)
class Button:
    """A button and its action. A button whose action cannot be encoded on a platform is omitted there."""

    label: str
    action: Action
    style: ButtonStyle = ButtonStyle.PLAIN
    confirmation: Confirmation | None = None


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """An entry of a menu and its action; `hint` explains it in a sentence."""

    label: str
    hint: str
    action: Action


@dataclass(frozen=True, slots=True)
class LinkButton:
    """A button that opens an https page."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Buttons:
    """Buttons in as many rows as they need. `more` are rarer actions, for platforms with room for a menu. `links` come
    first.
    """

    buttons: tuple[Button, ...]
    more: tuple[MenuEntry, ...] = ()
    links: tuple[LinkButton, ...] = ()


Block = (
    Title
    | Heading
    | Paragraph
    | Footer
    | Details
    | Quote
    | Arguments
    | Markdown
    | Code
    | Caption
    | Table
    | Facts
    | Feedback
    | Rule
    | Buttons
)


class Tone(Enum):
    """Color of a card."""

    PENDING = "pending"
    DANGER = "danger"
    SUCCESS = "success"
    NEUTRAL = "neutral"


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    `name` is the same in every delivery of its turn. `tone` is None for a message without a frame. `alert` begins the
    text of its notification. `notifies` are the principals of users and groups that are notified when it is posted, and
    by no later edit. If `asks` is True, it has buttons that a user needs, so it must not be posted without them.
    """

    name: str
    blocks: tuple[Block, ...]
    tone: Tone | None = None
    alert: str = ""
    notifies: frozenset[str] = frozenset()
    asks: bool = False
