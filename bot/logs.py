"""Log handlers, formats and context fields.

The composition root configures the handlers once. Enter `in_context` for a turn, a request or an event: every later
line of the task then carries its id.
"""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Literal

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_MEGABYTE = 1_000_000
_SHORT = 12

Subject = Literal["turn", "conversation", "request"]
"""Context fields of a log line."""

_NOTHING: Mapping[Subject, str] = MappingProxyType({})
_about: ContextVar[Mapping[Subject, str]] = ContextVar("about", default=_NOTHING)


@contextlib.contextmanager
def in_context(*, turn: str = "", conversation: str = "", request: str = "") -> Iterator[None]:
    """Every line of the block, and of tasks that are started in it, says what it is about. What is left out, or empty,
    stays as it was around the block.
    """
    named: dict[Subject, str] = {"turn": turn, "conversation": conversation, "request": request}
    token = _about.set({**_about.get(), **{subject: name for subject, name in named.items() if name}})
    try:
        yield
    finally:
        _about.reset(token)


@contextlib.contextmanager
def out_of_context() -> Iterator[None]:
    """Lines of the block, and of tasks that are started in it, are about nothing: what outlives a turn is not its."""
    token = _about.set(_NOTHING)
    try:
        yield
    finally:
        _about.reset(token)


class _TextLines(logging.Formatter):
    """A line for people; what it is about comes last, shortened: ids are random, and their beginning is enough."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        about = " ".join(f"{subject}={_shortened(subject, name)}" for subject, name in _about.get().items())
        line = super().formatMessage(record)
        return f"{line} [{about}]" if about else line


def _shortened(subject: Subject, name: str) -> str:
    return name if subject == "conversation" else name[:_SHORT]


class _JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, what it is about, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, str] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {str(subject): name for subject, name in _about.get().items()}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _Redacted(logging.Formatter):
    """Another formatter's line without secrets: message, traceback and all."""

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
    """Log to a file that is kept below two megabytes: a terminal chat shows the conversation and nothing else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # What comes from elsewhere may hold half a character; a log line about it must not fail.
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=_MEGABYTE, backupCount=1, encoding="utf-8", errors="backslashreplace", delay=True
    )
    handler.setFormatter(_TextLines())
    _install(handler, level)


def redact_logs(redact: Callable[[str], str]) -> None:
    """From now on no line leaves without having gone through `redact`, which may learn secrets later."""
    for handler in logging.getLogger().handlers:
        inner = handler.formatter or _TextLines()
        handler.setFormatter(_Redacted(inner.inner if isinstance(inner, _Redacted) else inner, redact))


def _install(handler: logging.Handler, level: str) -> None:
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Client libraries tell every request at `info`; ours are the interesting lines.
    for chatty in ("alembic", "httpx2", "httpcore2", "mcp", "openai", "anthropic", "asyncio"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
