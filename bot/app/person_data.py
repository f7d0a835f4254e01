"""`countersign db export-person` and `db forget`: the data of one person, beside a running bot."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bot.app.database import open_migrated_database
from bot.domain.audit import format_utc
from bot.errors import DatabaseError, NotFound, SettingsError
from bot.platforms.console.local_user import LocalUser, login_name
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.storage.person_data import ForgetResult


IN_USE = "Another program reads the file, which may still hold deleted bytes. Fix: run this again later"
VACUUM = "PostgreSQL keeps deleted rows in its files until its next VACUUM, and in its log and its backups"


async def export_person(settings: Settings, principal: str) -> str:
    """Return everything that is stored about a person, as JSON. Raises CountersignError."""
    from bot.storage.person_data import SqlPersonData  # noqa: PLC0415 - loads the database's libraries

    _check_principal(principal)
    async with open_migrated_database(settings, migrate=False) as database:
        data: Mapping[str, Sequence[Mapping[str, Any]]] = await SqlPersonData(database).export(principal)
    if not any(data.values()):
        raise NotFound(f"Nothing is stored about {principal}.", "see `countersign audit export` for the ids of people")
    document = {"person": principal, "exported_at": f"{format_utc(time.time())} UTC", **data}
    return json.dumps(document, ensure_ascii=False, indent=2)


async def forget_person(settings: Settings, principal: str) -> tuple[ForgetResult, str]:
    """Delete what is stored about a person. The second value says why the files of the database may still hold deleted
    bytes; empty if they do not. Raises CountersignError.
    """
    from bot.storage.person_data import SqlPersonData  # noqa: PLC0415 - loads the database's libraries

    _check_principal(principal)
    async with open_migrated_database(settings, migrate=False) as database:
        forgotten = await SqlPersonData(database).forget(principal, LocalUser(login_name()).author.principal)
        if database.shared:
            return forgotten, VACUUM
        return forgotten, "" if await database.purge_files(whole=True) else IN_USE


def save_export(text: str, target: Path) -> None:
    """Write a new file that only its owner can read. Raises DatabaseError."""
    try:
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(f"{text}\n")
    except FileExistsError:
        raise DatabaseError(f"{target} exists, and an export overwrites no file.", "give another name") from None
    except OSError as error:
        raise DatabaseError(f"{target} cannot be written: {error.strerror}.", "check the folder") from error


def _check_principal(principal: str) -> None:
    platform, colon, user = principal.partition(":")
    if not (platform and colon and user):
        raise SettingsError(f"{principal!r} is no person.", "write PLATFORM:ID, such as slack:U0123ABCD or api:ci")
