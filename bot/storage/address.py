"""Parsing of DATABASE_URL. Imports no database library, so that a locked database is reported before slow imports."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bot.errors import DatabaseError

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,30}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A database in a file, driven by one process."""

    path: Path

    @property
    def name(self) -> str:
        """Name of the database in messages."""
        return str(self.path)

    @property
    def folder(self) -> Path:
        """Folder of this machine's own files: log, typed lines."""
        return self.path.parent


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A database on a server, driven by any number of processes. `url` may hold a password and is never shown.

    `folder` has this machine's own files: log, typed lines.
    """

    url: str = field(repr=False)
    folder: Path = Path("data")

    @property
    def name(self) -> str:
        """Name of the database in messages, without user and password."""
        parts = urlsplit(self.url)
        return f"postgresql://{parts.hostname or 'local'}{parts.path}"


Address = SqliteFile | PostgresServer


def read_address(url: str, folder: Path = Path("data")) -> Address:
    """Parse `sqlite:///path` or `postgresql://…`, with the folder of this machine's own files for the latter. Raises
    DatabaseError for any other address.
    """
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _POSTGRES:
        return PostgresServer(_check_url(f"postgresql://{rest}"), folder)
    path, question_mark, _ = url.removeprefix(_SQLITE).partition("?")
    path = unquote(path)
    if not url.startswith(_SQLITE) or path in ("", ":memory:") or "\0" in path:
        # Only the scheme is repeated, because the rest may hold a password.
        setting = f"DATABASE_URL ({scheme}:…)" if separator and _SCHEME.fullmatch(scheme) else "DATABASE_URL"
        raise DatabaseError(
            f"{setting} is not a supported database address.",
            "use sqlite:///path/to/file.db or postgresql://user:password@host/database",
        )
    if question_mark:
        raise DatabaseError(
            "DATABASE_URL (sqlite:…) has a ?, behind which nothing would be read.",
            "write %3F for a ? in the name of a file or folder; options are not supported",
        )
    return SqliteFile(Path(path))


def _check_url(url: str) -> str:
    """Return the URL of one server. Raises DatabaseError if it is ambiguous: a password's unescaped `/` or `@` would
    leave a part of the password in the host, which is shown in messages.
    """
    if not _is_unambiguous(url):
        raise DatabaseError(
            "DATABASE_URL (postgresql:…) is not the address of one server.",
            "write postgresql://user:password@host:port/database; in a user or a password, % is %25, / is %2F, @ is "
            "%40, # is %23 and ? is %3F",
        )
    return url


def _is_unambiguous(url: str) -> bool:
    try:
        parts = urlsplit(url)
        hosts = [] if parts.port == 0 else parts.netloc.rpartition("@")[2].split(",")
    except ValueError:  # a port that is not a number, or half an IPv6 address
        return False
    is_complete = parts.netloc.count("@") == url.count("@") <= 1 and not parts.fragment
    return is_complete and len(hosts) == 1 and not re.search(r"%(?![0-9a-fA-F]{2})", url)
