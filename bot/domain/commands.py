"""Commands and their replies as data, the same for every platform."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot.domain.conversations import ConversationKey, Member


@dataclass(frozen=True, slots=True)
class Invocation:
    """Somebody typed `/mcp tools weather`: `words` are what follows the command's name."""

    command: str
    words: tuple[str, ...]
    member: Member
    conversation: ConversationKey


@dataclass(frozen=True, slots=True)
class Submission:
    """Somebody sent a form back."""

    form: str
    fields: Mapping[str, str]
    member: Member
    conversation: ConversationKey


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings, every cell plain text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer to a command; a later one replaces an earlier one. `text` is Markdown of our own making,
    whatever came from elsewhere is in the table's cells or in `details`, to be drawn as it stands.
    """

    text: str
    table: Table | None = None
    details: tuple[tuple[str, str], ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """A question with fields, answered by a Submission."""

    id: str
    title: str
    fields: tuple[str, ...]
