"""The database: its lock, opening, migration and backup, checkpoints of its audit, and the data of one person in it.

Checkpoints are written to the log, to a file and to a command set by the operator. A failed write is one log line,
never an error: the next checkpoint covers the same rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bot.app.secrets import audit_keys
from bot.domain.audit import AuditHead, Checkpoint, format_utc
from bot.errors import CountersignError, DatabaseError, DatabaseHeld, NotFound, SettingsError
from bot.platforms.console.local_user import LocalUser, login_name
from bot.settings import Settings, setting_name
from bot.storage.address import PostgresServer, SqliteFile, read_address
from bot.storage.lock_file import FileUse

if TYPE_CHECKING:
    from bot.storage.database import Database

log = logging.getLogger(__name__)

OFF = "off"
"""Value of AUDIT_CHECKPOINT_FILE that disables the file."""
COMMAND_SECONDS = 10.0
"""Seconds until AUDIT_CHECKPOINT_COMMAND is killed."""
_DATABASE_SECONDS = 5.0
_LONGEST_REASON = 300
IN_USE = "Another program reads the file, which may still hold deleted bytes. Fix: run this again later"
VACUUM = "PostgreSQL keeps deleted rows in its files until its next VACUUM, and in its log and its backups"


@contextmanager
def use_database(
    settings: Settings, purpose: str, *, as_bot: bool = False, alone: bool = False
) -> Iterator[FileUse | None]:
    """Use a SQLite file beside other processes, `as_bot` as the only one that receives messages of platforms, or
    `alone`; None for PostgreSQL, which has its own means. Raises DatabaseHeld, and DatabaseError if the folder cannot
    be used.
    """
    address = read_address(settings.database_url)
    if isinstance(address, PostgresServer):
        yield None
        return
    use = FileUse(address.path, purpose)
    try:
        try:
            use.begin(alone=alone)
            if as_bot:
                use.begin_as_bot()
        except OSError as error:
            raise DatabaseError(
                f"The folder {address.folder} cannot be used: {error.strerror}.",
                "check the folder and DATABASE_URL or DATA_FOLDER",
            ) from error
        yield use
    finally:
        use.end()


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """Open the database without a migration. Raises DatabaseError, and SettingsError if an audit key cannot be read."""
    keys = audit_keys(settings)
    module = await asyncio.to_thread(importlib.import_module, "bot.storage.migrate")
    database: Database = await asyncio.to_thread(module.open_database, settings.database_url)
    database.audit_keys = keys
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def open_migrated_database(settings: Settings, *, migrate: bool) -> AsyncIterator[Database]:
    """Open the database with this release's schema. `migrate` upgrades an older schema; the caller holds the lock then.
    A checkpoint is written on closing if audit rows were added. Raises DatabaseError.
    """
    async with open_checkpointed_database(settings, migrate=migrate) as (database, _):
        yield database


@asynccontextmanager
async def open_checkpointed_database(
    settings: Settings, *, migrate: bool
) -> AsyncIterator[tuple[Database, CheckpointWriter]]:
    """Open the database as `open_migrated_database` does, and return the writer of its checkpoints too."""
    async with open_checked_database(settings, migrate=migrate) as database:
        checkpoints = CheckpointWriter(settings, database)
        await checkpoints.write_first()
        try:
            yield database, checkpoints
        finally:
            if database.audit_keys.used:
                await checkpoints.write()


@asynccontextmanager
async def open_checked_database(settings: Settings, *, migrate: bool = False) -> AsyncIterator[Database]:
    """Open a database with this release's schema. Without a migration no file is written, not even beside it. Raises
    DatabaseError.
    """
    migrations = await _migrations()
    async with open_database(settings) as database:
        if migrate:
            await migrations.upgrade(database)
        elif (revision := await migrations.current_revision(database)) != migrations.latest_revision():
            migrations.check_known(database, revision)
            raise DatabaseError(
                f"The database {database.name} has schema {revision or 'none'}, and this release works on "
                f"{migrations.latest_revision()}.",
                "run `countersign db upgrade`",
            )
        yield database


async def upgrade(settings: Settings) -> str:
    """Upgrade the database to this release's schema. Return the revision. Raises DatabaseError, and DatabaseHeld if
    another process uses a SQLite file that has to be changed.
    """
    version, wanted = await current(settings)
    if version == wanted:
        return wanted
    try:
        with use_database(settings, "countersign db upgrade", alone=True):
            async with open_migrated_database(settings, migrate=True):
                return wanted
    except DatabaseHeld:
        if (await current(settings))[0] == wanted:  # one that was starting has done it
            return wanted
        raise


async def current(settings: Settings) -> tuple[str, str]:
    """Return the schema revision of the database, empty if there is none, and that of this release. Raises
    DatabaseError.
    """
    migrations = await _migrations()
    address = read_address(settings.database_url)
    if isinstance(address, SqliteFile) and not address.path.exists():
        return "", migrations.latest_revision()
    async with open_database(settings) as database:
        return await migrations.current_revision(database) or "", migrations.latest_revision()


async def back_up(settings: Settings, target: Path) -> AuditHead:
    """Copy the database to a file while other processes use it, and return the last row of its audit. Raises
    DatabaseError; for PostgreSQL it names the backup command.
    """
    match read_address(settings.database_url):
        case SqliteFile(path):
            module = await asyncio.to_thread(importlib.import_module, "bot.storage.backup")
            head: AuditHead = await asyncio.to_thread(module.back_up, path, target)
            return head
        case PostgresServer() as server:
            raise DatabaseError(
                f"The database {server.name} is on a server, which has tools of its own for that.",
                f'run `pg_dump --format=custom --file={target} "$DATABASE_URL"`, and then `countersign audit head`',
            )


async def _migrations() -> Any:
    return await asyncio.to_thread(importlib.import_module, "bot.storage.migrate")


# -------------------- checkpoints of the audit


def checkpoint_file(settings: Settings) -> Path | None:
    """Return the path of the checkpoint file, None if it is disabled. Raises DatabaseError."""
    if settings.audit_checkpoint_file:
        return None if settings.audit_checkpoint_file.lower() == OFF else Path(settings.audit_checkpoint_file)
    match read_address(settings.database_url, settings.data_folder):
        case SqliteFile(path):
            return path.with_name(path.name + ".checkpoints")
        case PostgresServer(url) as server:
            name = re.sub(r"[^A-Za-z0-9_-]", "-", urlsplit(url).path.strip("/")) or "countersign"
            return server.folder / f"{name}.checkpoints"


class CheckpointWriter:
    """Writer of the checkpoints of one open database."""

    def __init__(self, settings: Settings, database: Database) -> None:
        self._database = database
        self._file = checkpoint_file(settings)
        self._command = settings.audit_checkpoint_command
        self._interval = settings.audit_checkpoint_interval
        self._written: tuple[int, str] | None = None
        self._failing: set[str] = set()

    @property
    def is_failing(self) -> bool:
        """True if the last checkpoint could not be written everywhere."""
        return bool(self._failing)

    async def write_first(self) -> None:
        """Write the checkpoint of an audit without rows if the file does not exist yet. A missing file is a deleted one
        from then on.
        """
        if self._file is None or await asyncio.to_thread(self._file.exists):
            return
        checkpoint = await self._make()
        if checkpoint is not None and checkpoint.seq == 0:
            await self._append(checkpoint)

    async def run(self) -> None:
        """Write a checkpoint now and after each change of the audit, until cancelled."""
        await self._compare_with_last()
        while True:
            await self.write()
            if self._interval is None:
                return
            await asyncio.sleep(self._interval)

    async def write(self) -> None:
        """Write a checkpoint if rows were added since the last one. Failures are logged."""
        checkpoint = await self._make()
        if checkpoint is None or self._written == (checkpoint.seq, checkpoint.hash):
            return
        log.info("%s", checkpoint)
        written = await self._append(checkpoint)
        piped = await self._pipe(checkpoint)
        if written and piped:
            self._written = (checkpoint.seq, checkpoint.hash)

    async def _make(self) -> Checkpoint | None:
        module = await asyncio.to_thread(importlib.import_module, "bot.storage.checkpoints")
        keys = self._database.audit_keys
        try:
            checkpoint: Checkpoint = await self._database.run(
                lambda connection: module.make_checkpoint(connection, keys), retry_seconds=_DATABASE_SECONDS
            )
        except CountersignError as error:
            self._log_failure("database", error.cause, "look at the database")
            return None
        self._log_recovery("database")
        return checkpoint

    async def _append(self, checkpoint: Checkpoint) -> bool:
        if self._file is None:
            return True
        module = await asyncio.to_thread(importlib.import_module, "bot.storage.checkpoints")
        try:
            await asyncio.to_thread(module.append_checkpoint, self._file, checkpoint)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            self._log_failure(str(self._file), reason, "free some space, or set AUDIT_CHECKPOINT_FILE")
            return False
        self._log_recovery(str(self._file))
        return True

    async def _pipe(self, checkpoint: Checkpoint) -> bool:
        """Send the line to the command's standard input. Return True on success."""
        if not self._command:
            return True
        # The bot's own settings hold its keys.
        environment = {
            name: value
            for name, value in os.environ.items()
            if not setting_name(name) and not name.upper().endswith("_API_KEY")
        }
        reason = await _run_command(self._command, f"{checkpoint}\n", environment)
        if reason:
            self._log_failure(self._command[0], reason, "see AUDIT_CHECKPOINT_COMMAND")
        else:
            self._log_recovery(self._command[0])
        return not reason

    async def _compare_with_last(self) -> None:
        """Log an error if the last checkpoint of the file is not in the database, or if the file is missing."""
        if self._file is None:
            return
        module = await asyncio.to_thread(importlib.import_module, "bot.storage.checkpoints")
        try:
            last = await asyncio.to_thread(module.last_checkpoint, self._file)
        except FileNotFoundError:
            log.warning("checkpoint file %s is missing although the audit has rows, a new file is started", self._file)
            return
        except OSError:
            return  # the first checkpoint logs a missing file
        with contextlib.suppress(CountersignError):
            if last is not None and not await self._database.run(
                lambda connection: module.matches_row(connection, last)
            ):
                log.error(
                    "audit does not match its last checkpoint in %s, row %d: run `countersign audit verify`",
                    self._file,
                    last.seq,
                )

    def _log_failure(self, place: str, reason: str, fix: str) -> None:
        if place not in self._failing:
            self._failing.add(place)
            log.error("audit checkpoints cannot be written to %s (%s), trying again; %s", place, reason, fix)

    def _log_recovery(self, place: str) -> None:
        if place in self._failing:
            self._failing.remove(place)
            log.warning("audit checkpoints can be written to %s again", place)


async def _run_command(command: tuple[str, ...], line: str, environment: Mapping[str, str]) -> str:
    """Run a command with this line on its standard input. Return the reason if it failed."""
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=nothing, stderr=pipe, env=dict(environment)
        )
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            _, error_output = await process.communicate(line.encode())
    except TimeoutError:
        return f"it took more than {COMMAND_SECONDS:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    output = " ".join(error_output.decode("utf-8", "replace").split())[:_LONGEST_REASON]
    return f"exit code {process.returncode}: {output}" if process.returncode else ""


# -------------------- data of one person


async def export_person(settings: Settings, principal: str) -> str:
    """Return everything that is stored about a person, as JSON. Raises CountersignError."""
    from bot.storage.user_data import SqlPersonData  # noqa: PLC0415 - loads the database's libraries

    _check_principal(principal)
    async with open_migrated_database(settings, migrate=False) as database:
        data: Mapping[str, Sequence[Mapping[str, Any]]] = await SqlPersonData(database).export(principal)
    if not any(data.values()):
        raise NotFound(f"Nothing is stored about {principal}.", "see `countersign audit export` for the ids of people")
    document = {"person": principal, "exported_at": f"{format_utc(time.time())} UTC", **data}
    return json.dumps(document, ensure_ascii=False, indent=2)


async def forget_person(settings: Settings, principal: str) -> tuple[int, int, str]:
    """Delete what is stored about a person. Return the numbers of turns without content now and of unfinished ones,
    which were left, and the reason why the files of the database may still hold deleted bytes; empty if they do not.
    Raises CountersignError.
    """
    from bot.storage.user_data import SqlPersonData  # noqa: PLC0415 - loads the database's libraries

    _check_principal(principal)
    async with open_migrated_database(settings, migrate=False) as database:
        counts = await SqlPersonData(database).forget(principal, LocalUser(login_name()).author.principal)
        if database.shared:
            return *counts, VACUUM
        return *counts, "" if await database.purge_files(whole=True) else IN_USE


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
