"""Reading DATABASE_URL. Loads no database library, so that a held database is noticed before anything is."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from bot.errors import DatabaseError

_SQLITE = "sqlite:///"


def sqlite_path(url: str) -> Path:
    """The file a `sqlite:///path` address names. Raises DatabaseError for any other address."""
    path = unquote(url.removeprefix(_SQLITE).partition("?")[0])
    if not url.startswith(_SQLITE) or path in ("", ":memory:"):
        # Only the scheme is repeated: the rest of an address may hold a password.
        raise DatabaseError(
            f"DATABASE_URL ({url.partition(':')[0]}:…) is no address this release can use.",
            "use sqlite:///path/to/file.db",
        )
    return Path(path)
