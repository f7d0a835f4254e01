"""Keeping the MCP library's own log lines off the terminal.

The library logs whole tracebacks for a server's stray line of output, and frames with everything that is in them.
Called once by the toolbox when it starts. What the library says is a debugging matter here: our own lines say what
an operator needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

_LOGGERS = ("mcp", "client")
_WHOLE_MESSAGES = ("Sending client message: ", "SSE message: ", "Received server message: ")
"""What people have answered a server is in them, and nobody else should read that."""
_TARGET = logging.getLogger(f"{__name__}.mcp")


class _Demoted(logging.Handler):
    """Passes a record's message on as a debugging line of ours, without its traceback and its length, unless it is what
    went over the line.
    """

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__()
        self._redact = redact

    def emit(self, record: logging.LogRecord) -> None:
        if not _TARGET.isEnabledFor(logging.DEBUG):
            return
        said = record.getMessage()
        if not said.startswith(_WHOLE_MESSAGES):
            # Before the cut: what is left of a secret behind it would not be known as one.
            _TARGET.debug("%s: %.500s", record.name, self._redact(said))


def contain_library_logs(redact: Callable[[str], str]) -> None:
    """Turn every line of the library into a debugging line without secrets. Doing it again changes who redacts."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        for handler in [each for each in logger.handlers if isinstance(each, _Demoted)]:
            logger.removeHandler(handler)
        logger.addHandler(_Demoted(redact))
        logger.propagate = False
