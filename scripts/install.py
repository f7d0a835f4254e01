"""Make or complete an environment from a lock file: `python scripts/install.py .venv requirements.lock`.

`make` runs it. It tells what it does and how far it is, and a failure with its cause and fix. Packages that were
downloaded are kept, so that an environment can be made again without a network. An installation that was interrupted
begins again in an empty environment, because a package that was half written looks like a whole one to pip.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

INTERRUPTED = 130
POLL_SECONDS = 0.2
STOP_SECONDS = 10.0
LONGEST_NAME = 30

PINNED = r"""
import pathlib, re, sys
from pip._vendor.packaging.requirements import Requirement
for line in re.findall(r"^[A-Za-z0-9][^\\\n]*", pathlib.Path(sys.argv[1]).read_text("utf-8"), re.MULTILINE):
    requirement = Requirement(line.strip())
    if requirement.marker is None or requirement.marker.evaluate():
        print(requirement.name, str(requirement.specifier).removeprefix("=="))
"""
"""Program for the environment's own Python: prints the packages of a lock file that this platform needs."""

CAUSES = (
    (
        r"No space left on device|Errno 28|Disk quota exceeded",
        "the disk is full",
        "make room, about 600 MB for the environment and the downloads",
    ),
    (
        r"No module named '?(venv|ensurepip)|ensurepip is not available",
        "this Python has no module venv",
        "install it (Debian, Ubuntu: apt install python3-venv), or name another Python: {again} PYTHON=python3.12",
    ),
    (
        (
            r"Failed to establish a new connection|NewConnectionError|Temporary failure in name resolution"
            r"|Name or service not known|nodename nor servname|Network is unreachable|Connection refused"
            r"|ConnectTimeout|ReadTimeout|Read timed out|Connection (reset|aborted)|RemoteDisconnected|ProxyError"
        ),
        "the package index cannot be reached",
        "connect this machine to it, or set PIP_INDEX_URL or HTTPS_PROXY; what is downloaded by then is kept",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError",
        "the certificate of the package index cannot be verified",
        "set PIP_CERT to the certificates of your network, or PIP_INDEX_URL to another index",
    ),
    (
        r"\(from versions: none\)",
        "the package index cannot be reached, or has nothing for this Python",
        "check the connection and PIP_INDEX_URL, or take Python 3.11, 3.12 or 3.13: {again} PYTHON=python3.12",
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "a package is not the one that the lock file names",
        "try again; if it stays so, the index or a proxy changes packages",
    ),
    (
        r"Permission denied|Read-only file system",
        "a file cannot be written",
        "let this user write in this folder and in {cache}",
    ),
    (
        r"Failed building wheel|subprocess-exited-with-error|metadata-generation-failed|No matching distribution found",
        "a package has no ready-made version for this Python",
        "take Python 3.11, 3.12 or 3.13: {again} PYTHON=python3.12 VENV=.venv-3.12",
    ),
)
"""Patterns in what pip or venv print, with the cause and the fix."""

UNFIT = r"No matching distribution found|DO NOT MATCH THE HASHES|invalid|corrupt|BadZipFile"
"""Pattern in what pip prints if downloads are another Python's, or not whole."""


class InstallError(Exception):
    """A step that failed, with all that it printed."""


class Progress:
    """Lines on standard error: one for each step, on a terminal with how far it is."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._began = time.monotonic()
        self._width = 0

    def step(self, text: str) -> None:
        """Begin a step."""
        self._began = time.monotonic()
        if not self._live:
            self._write(f"{text} ...\n")

    def at(self, text: str) -> None:
        """Say how far the step is, on a terminal."""
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            line = f"{text} ({time.monotonic() - self._began:.0f} s)"[:width]
            self._write(f"\r{line:<{self._width}}")
            self._width = len(line)

    def done(self, text: str) -> None:
        """End a step: on a terminal this line takes the place of those before."""
        if self._live:
            line = f"{text} ({time.monotonic() - self._began:.0f} s)"
            self._write(f"\r{line:<{self._width}}\n")
            self._width = 0

    def say(self, text: str) -> None:
        """Write a line of its own."""
        self._write(f"\n{text}\n" if self._width else f"{text}\n")
        self._width = 0

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


@dataclass(frozen=True)
class Environment:
    """The environment to make, and where downloads are kept."""

    folder: Path
    cache: Path
    progress: Progress

    @property
    def python(self) -> str:
        """Path of its interpreter."""
        return str(self.folder / "bin" / "python")

    @property
    def unfinished(self) -> Path:
        """File that is there while packages are being installed."""
        return self.folder / ".installing"

    def create(self) -> None:
        """Make the environment, or make it again if an installation in it was interrupted or it has no pip."""
        if self.unfinished.exists():
            self.progress.say("The last installation was interrupted: it begins again, with what was downloaded.")
        elif self._works():
            return
        self.progress.step(f"making {self.folder} with Python {sys.version.split()[0]}")
        self.progress.at(f"making {self.folder}")
        self.folder.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", "--clear", str(self.folder)], _ignore)
        self.progress.done(f"made {self.folder} with Python {sys.version.split()[0]}")

    def pinned(self, lock: Path) -> list[tuple[str, str]]:
        """Return names and versions of the packages that a lock file has for this platform."""
        lines = _run([self.python, "-c", PINNED, str(lock)], _ignore).splitlines()
        return [(name, version) for name, version in (line.split() for line in lines)]

    def download(self, lock: Path, packages: Sequence[tuple[str, str]]) -> None:
        """Download what is not there yet."""
        total, begun = len(packages), 0
        self.progress.step(f"downloading {total} packages into {self.cache}, once")

        def follow(line: str) -> None:
            nonlocal begun
            if match := re.match(r"Collecting ([^\s=<>;\[]+)", line):
                begun += 1
                self.progress.at(f"downloading {min(begun, total)} of {total} packages: {match[1][:LONGEST_NAME]}")

        options = ["--require-hashes", "--requirement", str(lock), "--find-links", str(self.cache)]
        self.pip(["download", "--progress-bar", "off", *options, "--dest", str(self.cache)], follow)
        self.progress.done(f"downloaded {total} packages into {self.cache}")

    def install(self, lock: Path, packages: Sequence[tuple[str, str]]) -> None:
        """Install from the downloads alone."""
        total = len(packages)
        self.progress.step(f"installing {total} packages")
        with _ticking(lambda: self.progress.at(f"installing {min(self._count(), total)} of {total} packages")):
            options = ["--require-hashes", "--requirement", str(lock), "--find-links", str(self.cache)]
            self.pip(["install", "--no-index", *options], _ignore)
        self.progress.done(f"installed {total} packages")

    def install_project(self, folder: Path) -> None:
        """Install the project in this folder, which stays where it is."""
        self.progress.step("installing countersign itself")
        self.progress.at("installing countersign itself")
        self.pip(["install", "--no-deps", "--no-build-isolation", "--editable", str(folder)], _ignore)
        self.progress.done("installed countersign itself")

    def pip(self, arguments: Sequence[str], follow: Callable[[str], None]) -> None:
        """Run pip in the environment. Raises InstallError."""
        _run([self.python, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments], follow)

    def has_downloaded(self, packages: Sequence[tuple[str, str]]) -> bool:
        """True if there is a file for each package, though maybe for another Python."""
        names = {_normalized("-".join(path.name.split("-")[:2])) for path in self.cache.glob("*.whl")}
        return all(_normalized(f"{name}-{version}") in names for name, version in packages)

    def _works(self) -> bool:
        try:
            _run([self.python, "-c", "import pip"], _ignore)
        except (InstallError, OSError):
            return False
        return True

    def _count(self) -> int:
        """Return how many packages are there, without pip and setuptools of venv."""
        return sum(1 for _ in self.folder.glob("lib/python3*/site-packages/*.dist-info/RECORD")) - 1


def main() -> int:
    """Install. Return the exit code."""
    parser = argparse.ArgumentParser(description="Make or complete an environment from a lock file.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("lock", type=Path)
    parser.add_argument("--again", default="make", help="the command that would try again, for messages")
    given = parser.parse_args()
    progress, began = Progress(), time.monotonic()
    cache = _cache(given.folder)
    environment = Environment(given.folder, cache, progress)
    try:
        _install(environment, given.lock)
    except KeyboardInterrupt:
        progress.say(f"Stopped. `{given.again}` begins again, with what was downloaded.")
        return INTERRUPTED
    except (InstallError, OSError) as error:
        log = _write_log(given.folder, str(error))
        progress.say(_explain(str(error), given.again, cache, log))
        return 1
    progress.say(f"{given.folder} is ready after {time.monotonic() - began:.0f} s.")
    return 0


def _install(environment: Environment, lock: Path) -> None:
    environment.create()
    packages = environment.pinned(lock)
    environment.unfinished.touch()
    if environment.has_downloaded(packages):
        try:
            environment.install(lock, packages)
        except InstallError as error:
            if not re.search(UNFIT, str(error)):
                raise
            environment.download(lock, packages)
            environment.install(lock, packages)
    else:
        environment.download(lock, packages)
        environment.install(lock, packages)
    environment.install_project(Path())
    environment.unfinished.unlink()


def _cache(folder: Path) -> Path:
    """Return the folder of downloads: the user's cache, or one in the environment if that cannot be written."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path(os.environ.get("HOME") or "/") / ".cache"
    cache = base / "countersign" / "wheels"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return folder / ".wheels"
    return cache if os.access(cache, os.W_OK) else folder / ".wheels"


def _run(command: Sequence[str], follow: Callable[[str], None]) -> str:
    """Run a program to its end, pass each line to `follow`, and return its output. Raises InstallError with it."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            follow(line)
        code = process.wait()
    except KeyboardInterrupt:
        _end(process)
        raise
    output = "".join(lines)
    if code != 0:
        raise InstallError(output or f"{command[0]} ended with code {code}")
    return output


def _end(process: subprocess.Popen[str]) -> None:
    """Let a program end that got the same Ctrl-C, else end it."""
    process.terminate()
    try:
        process.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@contextmanager
def _ticking(function: Callable[[], None]) -> Iterator[None]:
    """Call a function over and over while the block runs."""
    stopped = threading.Event()

    def tick() -> None:
        while not stopped.wait(POLL_SECONDS):
            function()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _ignore(_line: str) -> None: ...


def _normalized(name: str) -> str:
    return re.sub(r"[-_.+]+", "-", name).lower()


def _explain(output: str, again: str, cache: Path, log: Path | None) -> str:
    """Return cause and fix in one line, and where the rest is."""
    cause, fix = next(_causes(output), ("the packages could not be installed", "read the last lines"))
    lines = [f"countersign: {cause}. Fix: {fix.format(again=again, cache=cache)}; then {again}."]
    errors = [line for line in output.splitlines() if re.search("error|not |fail", line, re.IGNORECASE)]
    lines += [f"  {line.strip()[:200]}" for line in (errors or output.splitlines())[-2:]]
    return "\n".join(lines + ([f"  All that was printed: {log}"] if log else []))


def _causes(output: str) -> Iterator[tuple[str, str]]:
    for pattern, cause, fix in CAUSES:
        if re.search(pattern, output):
            yield cause, fix


def _write_log(folder: Path, output: str) -> Path | None:
    log = folder / "install.log"
    try:
        log.write_text(output, encoding="utf-8")
    except OSError:
        return None
    return log


if __name__ == "__main__":
    sys.exit(main())
