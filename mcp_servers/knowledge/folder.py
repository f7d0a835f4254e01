"""Files of the folder that are documents, and their texts.

Only files inside the folder are read. Hidden files are ignored and linked folders are not followed. A link to a
file counts only if its target is in the folder.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
import time
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

MARKDOWN = frozenset({".md", ".markdown"})
ENDINGS = MARKDOWN | {".txt", ".text"}

LARGEST_FILE = 2 * 1024 * 1024
"""Maximum size of a file in bytes."""

MOST_FILES = 50_000

YOUNG = 2.0
"""Seconds after a change in which a file is read on every refresh, because a second change may have the same time
stamp.
"""

_ENCODINGS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MEANINGLESS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff]")


class Refused(Exception):
    """The request cannot be answered. The message has the reason and a remedy."""


class NotRead(Exception):
    """The file cannot be a document. The message is the reason, as the end of a sentence."""


class NotReadNow(NotRead):
    """The file cannot be read now. It is read again even if it has not changed."""


@dataclass(frozen=True, slots=True)
class File:
    """File that is a document, or is left out with a `problem`.

    `id` is its path within the folder, with slashes. `path` is the real path of its content, also within the
    folder. `modified` is in epoch seconds. `mark` changes when the file does; it is empty for a file changed too
    recently. `problem` is empty for a document.
    """

    id: str
    path: str
    modified: float = 0.0
    mark: str = ""
    problem: str = ""


class Folder:
    """The folder at one path, which may be a link. Subfolders of the `excluded` names are left out. All methods block
    on the disk.
    """

    def __init__(self, path: Path, *, excluded: Collection[str] = (), now: Callable[[], float] = time.time) -> None:
        self._path = path
        self._excluded = excluded
        self._now = now

    def files(self) -> Iterator[File]:
        """Yield the files in a fixed order. Raises Refused if the folder is missing or has too many files."""
        root = os.path.realpath(self._path)
        folders = [root]
        count = 0
        while folders:
            for entry in self._entries(folders.pop(), root):
                if entry.is_dir(follow_symlinks=False):
                    folders += [] if entry.name in self._excluded else [entry.path]
                elif Path(entry.name).suffix.lower() in ENDINGS and (file := self._file(entry, root)):
                    count += 1
                    if count > MOST_FILES:
                        raise Refused(
                            f"There are more than {MOST_FILES:,} documents in {self._path}. "
                            "Set KNOWLEDGE_FOLDER to a folder with fewer."
                        )
                    yield file

    def text(self, file: File) -> str:
        """Return a file's text with plain line ends, without control characters. Raises NotRead, NotReadNow."""
        try:
            with os.fdopen(self._open_within(file.path), "rb") as opened:
                if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    raise NotRead("it is not a regular file")
                return decode_text(opened.read(LARGEST_FILE + 1))
        except OSError as error:
            raise NotReadNow(f"it cannot be read ({error.strerror})") from error

    def _entries(self, folder: str, root: str) -> list[os.DirEntry[str]]:
        """Return the visible entries of a folder, sorted; none if listing is forbidden."""
        try:
            with os.scandir(folder) as entries:
                return sorted((entry for entry in entries if entry.name[0] != "."), key=lambda entry: entry.name)
        except OSError as error:
            if folder != root:
                return []
            raise Refused(
                f"The folder {self._path} cannot be read ({error.strerror}). "
                "Bring it back or check its permissions, or set KNOWLEDGE_FOLDER to another one."
            ) from error

    def _file(self, entry: os.DirEntry[str], root: str) -> File | None:
        """Return an entry as a file, or None for another kind."""
        name, problem = _identifier(_within(root, entry.path))
        try:
            path = _target(entry, root)
            status = entry.stat()
        except NotRead as reason:
            return File(name, "", problem=str(reason))
        except OSError as error:
            return File(name, "", problem=f"it cannot be read ({error.strerror})")
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > LARGEST_FILE:
            problem = problem or f"it has {status.st_size:,} bytes, and {LARGEST_FILE:,} is the most"
        young = abs(self._now() - max(status.st_mtime, status.st_ctime)) < YOUNG
        mark = "" if young else f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_size} {status.st_ino}"
        return File(name, path, status.st_mtime, mark, problem)

    def _open_within(self, path: str) -> int:
        """Open a file within the folder one path component at a time, so that a link created meanwhile is not
        followed.
        """
        *folders, name = Path(path).parts
        at = os.open(os.path.realpath(self._path), _FOLDER)
        try:
            for folder in folders:
                inner = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = inner
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        finally:
            os.close(at)


def decode_text(content: bytes) -> str:
    """Decode UTF-8, or the encoding of a byte order mark. Invalid bytes become replacement characters. Raises
    NotRead for binary or too long content.
    """
    if len(content) > LARGEST_FILE:
        raise NotRead(f"it has more than {LARGEST_FILE:,} bytes")
    mark, encoding = next((pair for pair in _ENCODINGS if content.startswith(pair[0])), (b"", "utf-8"))
    if b"\0" in content and encoding == "utf-8":
        raise NotRead("it is not text")
    text = content.removeprefix(mark).decode(encoding, "replace")
    return _MEANINGLESS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _target(entry: os.DirEntry[str], root: str) -> str:
    """Return the real path of an entry's content. Raises NotRead if it is outside of the folder."""
    if not entry.is_symlink():
        return _within(root, entry.path)
    path = os.path.realpath(entry.path)
    if os.path.commonpath((root, path)) != root:
        raise NotRead("it is a link that leads out of the folder")
    return _within(root, path)


def _within(root: str, path: str) -> str:
    return path[len(root) :].lstrip(os.sep)


def _identifier(path: str) -> tuple[str, str]:
    """Return the id of the file at a path, and its problem. A name that is not valid Unicode is escaped in the id
    and is a problem.
    """
    if path.isascii() and path.isprintable():
        return path, ""
    name = unicodedata.normalize("NFC", path)
    if not any(map(_unwritable, name)):
        return name, ""
    escaped = "".join(ascii(character)[1:-1] if _unwritable(character) else character for character in name)
    return escaped, "its name cannot be written"


def _unwritable(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
