"""Reading DATABASE_URL. Loads no database library, so that a held database is noticed before anything is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bot.errors import DatabaseError

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql", "postgres", "postgresql+psycopg")


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
    scheme, separator, _ = url.partition("://")
    if separator and scheme in _POSTGRES:
        return PostgresServer(f"postgresql://{url.partition('://')[2]}")
    path = unquote(url.removeprefix(_SQLITE).partition("?")[0])
    if not url.startswith(_SQLITE) or path in ("", ":memory:"):
        # Only the scheme is repeated: the rest of an address may hold a password.
        raise DatabaseError(
            f"DATABASE_URL ({url.partition(':')[0]}:…) is no address this release can use.",
            "use sqlite:///path/to/file.db or postgresql://user:password@host/database",
        )
    return SqliteFile(Path(path))
