"""Outgoing message: one message as it should be in Discord."""

from __future__ import annotations

from dataclasses import dataclass

from bot.platforms.discord.components import Component


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file that goes along with a message."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """One message of a turn. `name` is the same in every delivery of the turn. `content` is Discord Markdown, with
    `components` below it; if empty, the components are the message (Components V2). A `file` is attached when the
    message is posted. `unattached` replaces the content if the upload is rejected; without it the message is omitted
    then. Messages are listed in their order in Discord. If `asks` is True, the message has buttons that a user needs:
    it must not be posted without its layout. `place` is its channel, empty for the conversation's. `calls` is the id of
    the user who is notified by the post, empty for none.
    """

    name: str
    content: str = ""
    components: tuple[Component, ...] = ()
    file: FileUpload | None = None
    asks: bool = False
    unattached: str = ""
    place: str = ""
    calls: str = ""

    @property
    def laid_out(self) -> bool:
        """True if the message has components only."""
        return not self.content
