"""`make` installs the packages of the lock files, shows its progress, and names a fix where it cannot go on."""

from __future__ import annotations

import base64
import hashlib
import os
import pty
import re
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.files import PROJECT

LIMIT_SECONDS = 100.0
PACKAGES = ("first", "second")
BACKEND = """
import pathlib, zipfile

def build_editable(folder, *_):
    name = "project-1.0"
    with zipfile.ZipFile(pathlib.Path(folder, f"{name}-py3-none-any.whl"), "w") as wheel:
        wheel.writestr(f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\\nName: project\\nVersion: 1.0\\n")
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    return f"{name}-py3-none-any.whl"
"""


class Index(SimpleHTTPRequestHandler):
    """A package index on this machine. While `stalls` is set, files of the second package do not come."""

    stalls = threading.Event()

    def do_GET(self) -> None:
        if "second" in self.path and self.path.endswith(".whl"):
            while self.stalls.is_set():
                time.sleep(0.05)
        super().do_GET()

    def log_message(self, *_: Any) -> None: ...


class Checkout:
    """A folder with the project's Makefile, and an index with the two packages of its lock file."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache = folder / "a clone", folder / "cache"
        (self.folder / "scripts").mkdir(parents=True)
        shutil.copy(PROJECT / "Makefile", self.folder)
        shutil.copy(PROJECT / "scripts/install.py", self.folder / "scripts")
        (self.folder / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        )
        (self.folder / "backend.py").write_text(BACKEND)
        lock = []
        for name in PACKAGES:
            wheel = self._publish(folder / "index/simple" / name, name)
            lock.append(f"{name}==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
        lock.append("third==1.0 ; sys_platform == 'win32' \\\n    --hash=sha256:00\n")
        (self.folder / "requirements.lock").write_text("# This file is made.\n" + "".join(lock))
        self._served = ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=str(folder / "index")))
        threading.Thread(target=self._served.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(self.cache),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_RETRIES": "1",
            "PIP_DEFAULT_TIMEOUT": str(LIMIT_SECONDS),  # 15 s pass while a slow machine comes to stop a stalled one
            "PIP_INDEX_URL": f"http://127.0.0.1:{self._served.server_port}/simple",
        }

    def _publish(self, folder: Path, name: str) -> Path:
        folder.mkdir(parents=True)
        path = folder / f"{name}-1.0-py3-none-any.whl"
        info = f"{name}-1.0.dist-info"
        files = {
            f"{name}.py": f"NAME = {name!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        with zipfile.ZipFile(path, "w") as wheel:
            for file, text in files.items():
                wheel.writestr(file, text)
            wheel.writestr(f"{info}/RECORD", "".join(map(_record, files, files.values())) + f"{info}/RECORD,,\n")
        (folder / "index.html").write_text(f'<a href="{path.name}">{path.name}</a>')
        return path

    def cut_off(self) -> None:
        """Let the index be out of reach."""
        self._served.shutdown()
        self._served.server_close()

    def command(self, *words: str) -> list[str]:
        return ["make", *(words or (".venv/.installed",)), f"PYTHON={sys.executable}"]

    def make(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    def works(self) -> bool:
        """True if both packages are there, whole."""
        program = "import first, second; print(first.NAME, second.NAME)"
        python = self.folder / ".venv/bin/python"
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=30, check=False)
        return done.stdout == "first second\n"


def _record(name: str, text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(text)}\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout(tmp_path)
    Index.stalls.clear()
    yield made
    Index.stalls.clear()
    made.cut_off()


def test_it_tells_each_step_once_and_an_environment_is_made_again_without_a_network(checkout: Checkout) -> None:
    first = checkout.make()
    assert first.returncode == 0, first.stderr
    making, downloading, installing, itself, ready = first.stderr.splitlines()
    assert making == f"making .venv with Python {sys.version.split()[0]} ..."
    assert downloading == f"downloading 2 packages into {checkout.cache}/countersign/wheels, once ..."
    assert installing == "installing 2 packages ..."
    assert itself == "installing countersign itself ..."
    assert ready.startswith(".venv is ready after ")
    assert checkout.works()
    assert checkout.make().stderr == ""
    shutil.rmtree(checkout.folder / ".venv")
    checkout.cut_off()
    again = checkout.make()
    assert (again.returncode, "downloading" in again.stderr) == (0, False), again.stderr
    assert checkout.works()


def test_without_a_network_it_says_so_and_goes_on_later(checkout: Checkout) -> None:
    address = checkout.environment["PIP_INDEX_URL"]
    checkout.environment["PIP_INDEX_URL"] = "http://127.0.0.1:9/simple"
    failed = checkout.make()
    assert failed.returncode == 2
    assert "countersign: the package index cannot be reached. Fix: connect this machine to it" in failed.stderr
    assert "then make .venv/.installed." in failed.stderr
    assert "Traceback" not in failed.stderr
    assert "first" in (checkout.folder / ".venv/install.log").read_text()
    checkout.environment["PIP_INDEX_URL"] = address
    assert checkout.make().returncode == 0
    assert checkout.works()


def test_a_package_that_is_another_than_the_locked_one_is_not_installed(checkout: Checkout) -> None:
    lock = checkout.folder / "requirements.lock"
    lock.write_text(re.sub("sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", lock.read_text()))
    failed = checkout.make()
    assert failed.returncode == 2
    assert "a package is not the one that the lock file names" in failed.stderr
    assert not checkout.works()


def _take_interrupts() -> None:
    """Undo that a shell lets its background jobs, and so a test run among them, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_on_a_terminal_stops_it_and_the_next_call_begins_again(checkout: Checkout) -> None:
    Index.stalls.set()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        checkout.command(),
        cwd=checkout.folder,
        env=checkout.environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=_take_interrupts,  # noqa: PLW1509 - it takes no lock
    )
    os.close(theirs)
    drawn = bytearray()
    while b"downloading 2 of 2 packages: second" not in drawn:
        drawn += os.read(ours, 4096)
    os.killpg(process.pid, signal.SIGINT)
    try:
        while more := os.read(ours, 4096):
            drawn += more
    except OSError:  # Linux says so when nobody writes any longer
        pass
    os.close(ours)
    assert process.wait(LIMIT_SECONDS) != 0
    text = drawn.decode()
    assert "downloading 1 of 2 packages: first" in text
    assert "Stopped. `make .venv/.installed` begins again, with what was downloaded." in text
    assert "Traceback" not in text
    Index.stalls.clear()
    again = checkout.make()
    assert again.returncode == 0, again.stderr
    assert again.stderr.startswith("The last installation was interrupted")
    assert checkout.works()


@pytest.mark.parametrize(("code", "printed"), [(0, ""), (130, ""), (1, "Error 1")])
def test_a_chat_that_was_left_by_ctrl_c_is_no_error(checkout: Checkout, code: int, printed: str) -> None:
    program = checkout.folder / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nexit {code}\n", encoding="utf-8")
    program.chmod(0o755)
    left = subprocess.run(
        ["make", "chat", "--old-file=.venv/.installed", "BIN=bin"],
        cwd=checkout.folder,
        env=checkout.environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert (left.returncode == 0) is (not printed)
    assert printed in left.stderr if printed else not left.stderr


def test_a_python_that_is_too_old_or_missing_is_named_with_one_that_would_do(checkout: Checkout) -> None:
    for wrong in ("/bin/false", "no-such-python"):
        failed = subprocess.run(
            ["make", "chat", f"PYTHON={wrong}"],
            cwd=checkout.folder,
            env=checkout.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert failed.returncode == 2
        assert f"countersign needs Python 3.11 or newer; '{wrong}' is not. Fix: make chat PYTHON=" in failed.stderr


@pytest.mark.parametrize(
    ("printed", "cause"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("/usr/bin/python3: No module named venv", "no module venv"),
        ("created successfully because ensurepip is not available.  On Debian/Ubuntu", "no module venv"),
        ("OSError: [Errno 13] Permission denied: '/srv/.venv/bin'", "cannot be written"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "certificate"),
        ("  error: subprocess-exited-with-error", "no ready-made version for this Python"),
        ("Could not find a version that satisfies the requirement x==1 (from versions: none)", "cannot be reached, or"),
        ("Something that nobody has seen", "could not be installed"),
    ],
)
def test_a_cause_that_stops_it_is_printed_with_a_fix(printed: str, cause: str) -> None:
    explain = runpy.run_path(str(PROJECT / "scripts/install.py"))["_explain"]
    first, *rest = explain(f"before\n{printed}\n", "make chat", Path("/cache"), Path(".venv/install.log")).splitlines()
    assert cause in first
    assert first.endswith("; then make chat.")
    assert any(printed in line for line in rest)
