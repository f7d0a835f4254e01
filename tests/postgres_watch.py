"""Remove a PostgreSQL server once no test process uses it: `python tests/postgres_watch.py FOLDER`.

Each process that uses the server holds a shared lock on FOLDER/lock. The kernel releases it however the process ends,
so an exclusive lock means that all of them have ended. Only the standard library is imported, for a fast start.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

STOP_SECONDS = 10.0


def main() -> None:
    """Wait in the background for the end of the users, then stop what they left."""
    if os.fork():
        os._exit(0)
    folder = Path(sys.argv[1])
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(OSError, ValueError, IndexError):
            _stop(int((folder / "data" / "postmaster.pid").read_text().splitlines()[0]))
        shutil.rmtree(folder, ignore_errors=True)


def _stop(process: int) -> None:
    """Stop the server at once; what it stores is removed anyway. Raises ProcessLookupError when it has ended."""
    os.kill(process, signal.SIGQUIT)
    deadline = time.monotonic() + STOP_SECONDS
    while time.monotonic() < deadline:
        os.kill(process, 0)
        time.sleep(0.05)
    os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main()
