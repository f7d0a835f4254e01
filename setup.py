"""Build of the package: the default files are those of the last commit.

`bot/defaults` is a link to `config/`, which the users of a clone edit. Their servers are not for other installations.
"""

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.errors import SetupError

PROJECT = Path(__file__).resolve().parent


def restore_committed(defaults: Path) -> list[str]:
    """Replace the files of a built folder by those of the last commit, if this is a clone. Return the names of those
    that were different. Raises SetupError if git cannot tell.
    """
    if not (PROJECT / ".git").exists() or not defaults.is_dir():
        return []
    committed = set(_git("ls-tree", "--name-only", "HEAD", "config/").decode().splitlines())
    changed = []
    for path in sorted(defaults.iterdir()):
        name = f"config/{path.name}"
        content = _git("show", f"HEAD:{name}") if name in committed else None
        if content == path.read_bytes():
            continue
        changed.append(name)
        path.unlink()  # it may be a hard link to the clone's own file
        if content is not None:
            path.write_bytes(content)
    return changed


def _git(*words: str) -> bytes:
    try:
        # A build runs this clone's code already, also if another user owns the folder, as in a container.
        command = ["git", "-c", f"safe.directory={PROJECT}", "-C", str(PROJECT), *words]
        done = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        problem = getattr(error, "stderr", b"").decode(errors="replace").strip() or error
        message = (
            f"The files of config/ may be your own, and git cannot tell which are committed: {problem}. "
            "Fix: build where git reads this clone, or from a copy without .git whose config/ is for everybody"
        )
        raise SetupError(message) from error
    return done.stdout


class BuildPy(build_py):
    """Copy of the modules and the default files."""

    def run(self) -> None:
        """Build. An editable installation reads the clone's own files."""
        super().run()
        if not self.editable_mode:
            for name in restore_committed(Path(self.build_lib, "bot", "defaults")):
                self.warn(f"{name} differs from the last commit, which is what is packed")


class Sdist(sdist):
    """Archive of the source."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Make the tree that is packed."""
        super().make_release_tree(base_dir, files)
        restore_committed(Path(base_dir, "bot", "defaults"))


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
