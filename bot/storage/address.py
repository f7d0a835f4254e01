"""Reading DATABASE_URL. Loads no database library, so that a held database is noticed before anything is."""

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
        """What messages call it."""
        return str(self.path)

    @property
    def folder(self) -> Path:
        """Where the files that belong to a database on this machine are kept: log, typed lines."""
        return self.path.parent


@dataclass(frozen=True, slots=True)
class PostgresServer:
    """A database on a server, driven by any number of processes. `url` may hold a password and is never shown."""

    url: str = field(repr=False)

    @property
    def name(self) -> str:
        """What messages call it: no user, no password."""
        parts = urlsplit(self.url)
        return f"postgresql://{parts.hostname or 'local'}{parts.path}"

    @property
    def folder(self) -> Path:
        """Where the files that belong to this machine are kept: log, typed lines."""
        return Path("data")


Address = SqliteFile | PostgresServer


def read_address(url: str) -> Address:
    """The database that `sqlite:///path` or `postgresql://...` names. Raises DatabaseError for any other address."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _POSTGRES:
        return PostgresServer(_checked(f"postgresql://{rest}"))
    path = unquote(url.removeprefix(_SQLITE).partition("?")[0])
    if not url.startswith(_SQLITE) or path in ("", ":memory:"):
        # Only the scheme is repeated: the rest may hold a password, and all of it does that has no scheme.
        said = f"DATABASE_URL ({scheme}:…)" if separator and _SCHEME.fullmatch(scheme) else "DATABASE_URL"
        raise DatabaseError(
            f"{said} is no address this release can use.",
            "use sqlite:///path/to/file.db or postgresql://user:password@host/database",
        )
    return SqliteFile(Path(path))


def _checked(url: str) -> str:
    """An address of one server that can be read in one way only: what a password's `/` or `@` cuts off would pass for
    a host, and hosts are shown.
    """
    if not _clear(url):
        raise DatabaseError(
            "DATABASE_URL (postgresql:…) is no address of one server.",
            "write postgresql://user:password@host:port/database; in a user or a password, % is %25, / is %2F, @ is "
            "%40, # is %23 and ? is %3F",
        )
    return url


def _clear(url: str) -> bool:
    try:
        parts = urlsplit(url)
        hosts = [] if parts.port == 0 else parts.netloc.rpartition("@")[2].split(",")
    except ValueError:  # a port that is no number, half an IPv6 address
        return False
    whole = parts.netloc.count("@") == url.count("@") <= 1 and not parts.fragment
    return whole and len(hosts) == 1 and not re.search(r"%(?![0-9a-fA-F]{2})", url)
