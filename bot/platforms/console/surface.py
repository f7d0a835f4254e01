"""The terminal as a Surface: all conversations of the person who sits at it.

Called by whoever draws turns. How a view becomes letters is the drawing's business: a live screen, plain streams or
JSON lines.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.views import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.console.files import SavedFile, save_files
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.turn_tracker import TurnTracker
from bot.rendering.text_safety import single_line

SLOT = "reply"
COMPLETE = "complete"


class Drawing(Protocol):
    """Puts views in front of the person; when a method returns, it is out. Raises OSError if nobody can see it."""

    def append_own(self, view: TurnView) -> None:
        """Draw a turn that was asked from here, as it stands."""

    def append_foreign(self, view: TurnView, heading: str) -> None:
        """Draw a turn of another process or another conversation, as far as it is worth it; `heading` says where it
        comes from.
        """

    def notice(self, text: str) -> None:
        """Say something outside a turn."""


class ConsoleSurface:
    """Draws turns in the terminal, each one completely once, also across processes. What tools returned in files is
    written into the folder `files`; without one it stays where it is.
    """

    def __init__(self, person: LocalUser, watch: TurnTracker, drawing: Drawing, files: Path | None = None) -> None:
        self._person = person
        self._watch = watch
        self._drawing = drawing
        self._files = files
        watch.draw = self._draw_ours

    @property
    def key_prefix(self) -> str:
        """All conversations of this person; where other processes work beside this one, the one that is open here:
        nobody can read an answer in somebody else's terminal.
        """
        if self._watch.shared:
            return f"{self._person.key(self._watch.conversation)}:"
        return self._person.reach

    @property
    def min_interval(self) -> float:
        """Seconds between two drawings of one turn: a terminal is fast, an eye is not."""
        return 0.05

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Draw a turn. One that was drawn to its end is not drawn again, which is all there is to be remembered."""
        ours = await self._watch.ours(view.turn.id)
        complete = self._watch.shown(view.turn.id) or (not ours and refs.get(SLOT) == COMPLETE)
        # First, so that no line about a file comes into the midst of a reply.
        if not complete and self._files is not None:
            async for each in save_files(self._files, view, refs):
                self._tell_of(each)
                yield each.drawn
        if not (complete or self._watch.overtaken(view)):
            try:
                self._draw(view, ours=ours)
            except OSError as error:
                self._watch.gone.set()
                self._watch.drew(view)
                raise DeliveryFailed(f"The terminal does not take output: {error}.", permanent=True) from error
        try:
            if view.turn.status.ended:
                yield PostedMessage(SLOT, COMPLETE)
        finally:
            self._watch.drew(view)

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Say something to the person; there is nobody else here."""
        if not audience.conversation.startswith(self._person.reach):
            raise DeliveryFailed("That conversation is not in this terminal.", permanent=True)
        try:
            self._drawing.notice(notice.text)
        except OSError as error:
            raise DeliveryFailed(f"The terminal does not take output: {error}.", permanent=True) from error

    async def member(self, author: Author, where: ConversationKey) -> Member:
        """The person at the terminal has the rights of the one who started the program, anybody else none."""
        here = str(where).startswith(self._person.reach)
        return self._person.member if here and author.principal == self._person.author.principal else Member(author)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Raises NotFound: nothing is uploaded in a terminal."""
        raise NotFound(f"The terminal has no upload {attachment.name!r}.")

    def _tell_of(self, file: SavedFile) -> None:
        told = f"could not be saved: {single_line(file.problem, 200)}" if file.problem else f"is in {file.drawn.ref}"
        with suppress(OSError):  # nobody can see it, which the next drawing finds out
            self._drawing.notice(f"{file.name} {told}")

    def _draw(self, view: TurnView, *, ours: bool) -> None:
        if ours:
            self._drawing.append_own(view)
        elif not self._watch.from_another_window(view):
            conversation = single_line(view.turn.conversation.thread, 60)
            self._drawing.append_foreign(view, f"While you were away (conversation {conversation}): {_question(view)}")
        elif view.turn.status.ended:  # until then that window shows it, and asks what there is to be decided
            self._drawing.append_foreign(view, f"From another window: {_question(view)}")

    def _draw_ours(self, view: TurnView) -> None:
        """Draw a turn of ours that another process drives."""
        try:
            self._drawing.append_own(view)
        except OSError:
            self._watch.gone.set()
        self._watch.drew(view)


def _question(view: TurnView) -> str:
    return single_line(view.turn.question.text, 80)
