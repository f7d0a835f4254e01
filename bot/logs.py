"""Log handlers, formats and context fields.

The composition root configures the handlers once. Enter `in_context` for a turn, a request or an event: every later
line of the task then carries its id. Lines are English in every task: errors in them may speak to a viewer, too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TextIO

from bot.i18n import DEFAULT_LANGUAGE, use_language

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_MEGABYTE = 1_000_000
_SHORT = 12

Subject = Literal["turn", "conversation", "request"]
"""Context fields of a log line."""

_NO_CONTEXT: Mapping[Subject, str] = MappingProxyType({})
_context: ContextVar[Mapping[Subject, str]] = ContextVar("about", default=_NO_CONTEXT)


@contextlib.contextmanager
def in_context(*, turn: str = "", conversation: str = "", request: str = "") -> Iterator[None]:
    """Add fields to all log lines of the block and of tasks that start in it. Empty fields keep their outer value."""
    named: dict[Subject, str] = {"turn": turn, "conversation": conversation, "request": request}
    token = _context.set({**_context.get(), **{subject: name for subject, name in named.items() if name}})
    try:
        yield
    finally:
        _context.reset(token)


@contextlib.contextmanager
def out_of_context() -> Iterator[None]:
    """Remove all fields from log lines of the block and of tasks that start in it, for tasks that outlive a turn."""
    token = _context.set(_NO_CONTEXT)
    try:
        yield
    finally:
        _context.reset(token)


class _TextLines(logging.Formatter):
    """Formatter of text lines, with shortened context fields at the end."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        with use_language(DEFAULT_LANGUAGE):
            return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - name of the overridden method
        fields = " ".join(f"{subject}={_shorten(subject, name)}" for subject, name in _context.get().items())
        line = super().formatMessage(record)
        return f"{line} [{fields}]" if fields else line


def _shorten(subject: Subject, name: str) -> str:
    return name if subject == "conversation" else name[:_SHORT]


class _JsonLines(logging.Formatter):
    """Formatter of one JSON object a line: time, level, logger, message, context fields and traceback."""

    def format(self, record: logging.LogRecord) -> str:
        with use_language(DEFAULT_LANGUAGE):
            return self._json(record)

    def _json(self, record: logging.LogRecord) -> str:
        entry: dict[str, str] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {str(subject): name for subject, name in _context.get().items()}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _Redacted(logging.Formatter):
    """Formatter that redacts the line and traceback of another formatter."""

    def __init__(self, inner: logging.Formatter, redact: Callable[[str], str]) -> None:
        super().__init__()
        self.inner = inner
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(self.inner.format(record))


def log_to_stderr(level: str, style: str) -> None:
    """Log to standard error, as `text` or `json`; `auto` is text on a terminal and JSON elsewhere."""
    handler = logging.StreamHandler()
    as_text = style == "text" or (style == "auto" and sys.stderr.isatty())
    handler.setFormatter(_TextLines() if as_text else _JsonLines())
    _install(handler, level)


def log_to_file(level: str, path: Path) -> None:
    """Log to a file of at most two megabytes, for the terminal chat, which shows only the conversation."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # Foreign text may contain lone surrogates, which must not make a log line fail.
    handler = _SharedFile(
        path, maxBytes=_MEGABYTE, backupCount=1, encoding="utf-8", errors="backslashreplace", delay=True
    )
    handler.setFormatter(_TextLines())
    _install(handler, level)


def redact_logs(redact: Callable[[str], str]) -> None:
    """Apply `redact` to all later lines."""
    for handler in logging.getLogger().handlers:
        inner = handler.formatter or _TextLines()
        handler.setFormatter(_Redacted(inner.inner if isinstance(inner, _Redacted) else inner, redact))


class _SharedFile(logging.handlers.RotatingFileHandler):
    """A file of which another process may begin a new one: then that one is written to."""

    def shouldRollover(self, record: logging.LogRecord) -> int:  # noqa: N802 - the library's name
        """Return True if this process has to begin a new file."""
        if self.stream is not None and not _is_file_of(self.stream, Path(self.baseFilename)):
            self.stream.close()
            self.stream = self._open()
        return super().shouldRollover(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Lose a line that cannot be written: a traceback would be in the midst of the conversation."""


def _is_file_of(stream: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(stream.fileno()), path.stat())
    except OSError:
        return False


def _install(handler: logging.Handler, level: str) -> None:
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Client libraries log every request at `info`.
    for chatty in ("alembic", "httpx2", "httpcore2", "mcp", "openai", "anthropic", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
