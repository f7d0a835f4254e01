"""A run of the tests is killed: nothing that it started stays, neither a PostgreSQL nor a program or its server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.fakes.programs import ROOT, START_SECONDS

RUN = """
import os, sys
from pathlib import Path
from tests.fakes.programs import Program
from tests.postgres import running_server

reading, writing = os.pipe()
null = os.open(os.devnull, os.O_RDWR)
program = Program([sys.argv[1]], Path.cwd(), os.environ, (null, writing, writing))
with running_server() as server, os.fdopen(reading) as said:
    server.empty()
    print(program.pid, said.readline().strip(), flush=True)
    sys.stdin.read()
"""
DEAF = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print(os.getppid(), flush=True)
while True:
    time.sleep(60)
"""


def test_a_killed_run_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    deaf = tmp_path / "deaf.py"
    deaf.write_text(DEAF)
    # The path of a socket has at most 107 characters.
    files = Path(tempfile.mkdtemp(prefix="k"))
    environment = {**os.environ, "TMPDIR": str(files), "PYTEST_XDIST_TESTRUNUID": "killed"}
    with subprocess.Popen(
        (sys.executable, "-c", RUN, str(deaf)), cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        pids.append(int((files / "csgn-killed" / "data" / "postmaster.pid").read_text().splitlines()[0]))
        assert all(_is_alive(pid) for pid in pids)
        run.kill()
    deadline = time.monotonic() + START_SECONDS
    while any(_is_alive(pid) for pid in pids) or any(files.glob("csgn-*")):
        assert time.monotonic() < deadline, (pids, list(files.iterdir()))
        time.sleep(0.05)
    shutil.rmtree(files)


def _is_alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z"  # not every container has a process that collects the ended ones
    return False
