"""`python -m mcp_servers.weather`: one server on standard input and output, until the input ends."""

from __future__ import annotations

import signal

# Before the libraries load, because Ctrl-C in a terminal reaches every process and would print a traceback.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from mcp_servers.weather.server import main  # noqa: E402  the line above must come first

if __name__ == "__main__":
    main()
