"""One message as it should stand in Discord.

Called by drawings, which make them, and by the surface, which sends them. Knows nothing of how.
"""

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
    """One message of a turn. `name` is the same in every drawing of the turn. `content` is Discord's own Markdown, with
    `components` below it; where it is empty, the components are the message (Components V2). A `file` goes along when
    the message is posted; `unattached` is its content where the file cannot, a message without one is not posted then.
    Slots come in the order in which their messages stand. Where it `asks`, somebody must be able to press its buttons:
    without its layout it must not be out at all. `place` is the channel in which it stands, empty for the conversation.
    `calls` is the id of the one person who is notified when it is posted, nobody's if it is empty.
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
        """The components are all there is."""
        return not self.content
