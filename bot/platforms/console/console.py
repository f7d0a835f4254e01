"""The terminal as a surface: turns are rendered, and their files saved.

prompt_toolkit is imported for the screen only, rich when the screen first renders Markdown.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.errors import DeliveryFailed, NotFound
from bot.i18n import _, gettext_lazy
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.turn_tracker import TurnTracker
from bot.rendering.text_safety import single_line
from bot.rendering.timeline import LEFT_OUT, returned_files

log = logging.getLogger(__name__)

LARGEST = 20 * 1024 * 1024
"""Bytes of a file that is saved."""
_NAME_LENGTH = 120
SLOT = "reply"
COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams of a process and its environment."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]

    @property
    def interactive(self) -> bool:
        """True if a user is at a terminal with cursor control."""
        return self.stdin.isatty() and self.stdout.isatty() and self.environ.get("TERM", "") not in ("dumb", "unknown")


def process_streams() -> Streams:
    """Return the streams of this process."""
    import sys  # noqa: PLC0415 - nothing else here touches the process

    return Streams(sys.stdin, sys.stdout, sys.stderr, os.environ)


class Drawing(Protocol):
    """Output of views; a method returns after writing. Raises OSError if the output is closed."""

    def append_own(self, view: TurnView) -> None:
        """Write a turn of this terminal in its current state."""

    def append_foreign(self, view: TurnView, heading: str) -> None:
        """Write a turn of another process or conversation in short; `heading` names its origin."""

    def notice(self, text: str) -> None:
        """Write a notice."""


class ConsoleSurface:
    """Renders turns in the terminal, each completely once, also across processes. Tool files are saved in the folder
    `files`, if set.
    """

    min_interval = 0.05
    """Seconds between two deliveries of one turn, for readability."""

    def __init__(self, user: LocalUser, tracker: TurnTracker, drawing: Drawing, files: Path | None = None) -> None:
        self._user = user
        self._tracker = tracker
        self._drawing = drawing
        self._files = files
        tracker.draw = self._draw_own

    @property
    def key_prefixes(self) -> tuple[str, ...]:
        """Key prefixes of the conversations of this terminal, because others show their own."""
        return tuple(f"{self._user.key(conversation)}:" for conversation in self._tracker.conversations)

    def on_open(self, notify: Callable[[Sequence[ConversationKey]], None]) -> None:
        """Call `notify` with the conversations of this terminal whenever they change."""
        self._tracker.on_open = lambda names: notify([self._user.key(name) for name in names])

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Render a turn. A completely rendered turn is not rendered again; its ref records that."""
        ours = await self._tracker.is_own(view.turn.id)
        complete = self._tracker.was_rendered(view.turn.id) or (not ours and refs.get(SLOT) == COMPLETE)
        # First, so that no line about a file comes into the midst of a reply.
        if not complete and self._files is not None:
            async for saved in self._save_files(self._files, view, refs):
                yield saved
            complete = complete or self._tracker.was_rendered(view.turn.id)
        if not (complete or self._tracker.is_outdated(view)):
            # A poll of the database must not render it again while its ref is stored.
            self._tracker.mark_rendered(view)
            try:
                self._draw(view, ours=ours)
            except OSError as error:
                self._tracker.closed.set()
                self._tracker.record(view)
                raise _no_output(error) from error
        try:
            if view.turn.status.ended:
                yield PostedMessage(SLOT, COMPLETE)
        finally:
            self._tracker.record(view)

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        """Write a notice; all audiences are the user of the terminal."""
        if not audience.conversation.startswith(self._user.key_prefix):
            raise DeliveryFailed(gettext_lazy("That conversation is not in this terminal."), permanent=True)
        try:
            self._drawing.notice(f"{notice.text} {notice.card_url}".rstrip())
        except OSError as error:
            raise _no_output(error) from error

    async def member(self, author: Author, conversation: ConversationKey) -> Member:
        """Return the user with the rights of the process owner; other users have none."""
        here = str(conversation).startswith(self._user.key_prefix)
        return self._user.member if here and author.principal == self._user.author.principal else Member(author)

    async def fetch(self, attachment: Attachment) -> bytes:
        """Return what came with a question of this process. Raises NotFound for anything else."""
        if (data := self._tracker.uploads.get(attachment.id)) is not None:
            return data
        raise NotFound(gettext_lazy("The terminal has no upload {name}.", name=repr(attachment.name)))

    def announce(self, text: str) -> None:
        """Write a line that belongs to no turn."""
        with suppress(OSError):  # the terminal is gone, which the next output detects
            self._drawing.notice(text)

    async def _save_files(self, folder: Path, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        """Save new files, readable by the user only. The ref of a file is its path."""
        for file in returned_files(view, LARGEST):
            if file.slot in refs:
                continue
            name = single_line(file.name.replace("/", "_").replace("\\", "_"), _NAME_LENGTH).lstrip(".") or "file"
            path = folder / f"{view.turn.id[:12]}-{file.slot}-{name}"
            try:
                await asyncio.to_thread(_write, path, await file.read())
            except (NotFound, OSError) as error:
                log.warning("turn %s: file not saved: %s", view.turn.id, error)
                self.announce(
                    _("{file} could not be saved: {problem}", file=name, problem=single_line(str(error), 200))
                )
                yield PostedMessage(file.slot, LEFT_OUT)
            else:
                self.announce(_("{file} is in {path}", file=name, path=path))
                yield PostedMessage(file.slot, str(path))

    def _draw(self, view: TurnView, *, ours: bool) -> None:
        question = single_line(view.turn.question.text, 80)
        conversation = single_line(view.turn.conversation.thread, 60)
        if ours:
            self._drawing.append_own(view)
        elif self._tracker.from_another_window(view):
            if view.turn.status.ended:  # until then the other window shows it, and asks for decisions
                self._drawing.append_foreign(view, _("From another window: {question}", question=question))
        elif self._tracker.waited_at_start(view.turn.id):
            heading = _("In conversation {conversation}: {question}", conversation=conversation, question=question)
            self._drawing.append_foreign(view, heading)
        else:
            heading = _(
                "While you were away (conversation {conversation}): {question}",
                conversation=conversation,
                question=question,
            )
            self._drawing.append_foreign(view, heading)

    def _draw_own(self, view: TurnView) -> None:
        """Render a turn of this terminal that another process drives."""
        try:
            self._drawing.append_own(view)
        except OSError:
            self._tracker.closed.set()
        self._tracker.record(view)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as target:
        target.write(data)


def _no_output(error: OSError) -> DeliveryFailed:
    return DeliveryFailed(gettext_lazy("The terminal does not take output: {error}.", error=error), permanent=True)
