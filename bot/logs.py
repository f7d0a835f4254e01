"""Where log lines go, and how they look. Called once, by the composition root."""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
from collections.abc import Callable
from pathlib import Path

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_MEGABYTE = 1_000_000


class _JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
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
    handler.setFormatter(logging.Formatter(_TEXT) if as_text else _JsonLines())
    _install(handler, level)


def log_to_file(level: str, path: Path) -> None:
    """Log to a file that is kept below two megabytes: a terminal chat shows the conversation and nothing else."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    # What comes from elsewhere may hold half a character; a log line about it must not fail.
    handler = logging.handlers.RotatingFileHandler(
        path, maxBytes=_MEGABYTE, backupCount=1, encoding="utf-8", errors="backslashreplace", delay=True
    )
    handler.setFormatter(logging.Formatter(_TEXT))
    _install(handler, level)


def redact_logs(redact: Callable[[str], str]) -> None:
    """From now on no line leaves without having gone through `redact`, which may learn secrets later."""
    for handler in logging.getLogger().handlers:
        inner = handler.formatter or logging.Formatter(_TEXT)
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
