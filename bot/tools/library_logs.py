"""Keeping the MCP library's own log lines off the terminal.

The library logs whole tracebacks for a server's stray line of output, and frames with everything that is in them.
Called once by the toolbox when it starts. What the library says is a debugging matter here: our own lines say what
an operator needs.
"""

from __future__ import annotations

import logging

_LOGGERS = ("mcp", "client")
_TARGET = logging.getLogger(f"{__name__}.mcp")


class _Demoted(logging.Handler):
    """Passes a record's message on as a debugging line of ours, without its traceback and its length."""

    def emit(self, record: logging.LogRecord) -> None:
        if _TARGET.isEnabledFor(logging.DEBUG):
            _TARGET.debug("%s: %.500s", record.name, record.getMessage())


def contain_library_logs() -> None:
    """Turn every line of the library into a debugging line. Doing it twice does nothing more."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _Demoted) for handler in logger.handlers):
            logger.addHandler(_Demoted())
            logger.propagate = False
