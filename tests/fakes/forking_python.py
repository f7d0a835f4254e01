"""A `python` that starts programs by the fork server, which has their modules loaded.

As a process it stands in for the program: it passes on its streams and the signals to end, ends with the program's
status, and the program is killed with it. `programs` puts it, under the name `python`, next to the server's socket.
Command lines without a module or a file run in the real interpreter. It is run without `site`, to start fast.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from types import FrameType

NUMBER = struct.Struct("!i")
SOCKET = "socket"
STREAMS = (0, 1, 2)


def main() -> None:
    """Become the program of the command line."""
    arguments = sys.argv[1:]
    if arguments[:2] == ["-P", "-m"]:  # the folder is not on the path of a forked program in any case
        begin(arguments[2:])
    elif arguments[:1] == ["-m"]:
        begin(arguments[1:])
    elif arguments and arguments[0].endswith(".py"):
        begin(arguments)
    else:
        os.execv(sys.executable, [sys.executable, *arguments])


def begin(program: list[str]) -> None:
    """Have it begun, wait, and end like it."""
    asked = {"arguments": program, "folder": os.getcwd(), "environment": dict(os.environ), "terminal": False}  # noqa: PTH109 - no paths, no loading
    told, theirs = socket.socketpair()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.connect(sys.argv[0].removesuffix("python") + SOCKET)
    socket.send_fds(server, [json.dumps(asked).encode()], [*STREAMS, theirs.fileno()])
    theirs.close()
    for stream in STREAMS:
        os.close(stream)  # a reader of the program's output must not wait for the end of this process
    pid = NUMBER.unpack(told.recv(NUMBER.size))[0]
    server.close()

    def hand_on(number: int, _frame: FrameType | None) -> None:
        os.kill(pid, number)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, hand_on)
    status = NUMBER.unpack(told.recv(NUMBER.size))[0]
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
