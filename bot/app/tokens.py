"""`countersign tokens …`: tokens of the HTTP API. It works beside a running bot, which reads tokens from the database.

A new token alone goes to standard output, so that a pipe can take it; all other text goes to standard error.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bot.app.database import current, open_migrated_database, upgrade
from bot.app.login import login_name
from bot.domain.api_clients import OPERATOR_NAME, ApiRole, ApiToken
from bot.domain.conversations import Author
from bot.domain.servers import EVERYWHERE
from bot.errors import NotFound, SettingsError
from bot.platforms.console.local_user import LocalUser
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.storage.api_tokens import SqlTokenStore

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_WORKSPACE = re.compile(r"[a-z][a-z-]*:[^\s:]+")
_SPAN = re.compile(r"(\d{1,5})([hdw])")
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


async def create(settings: Settings, name: str, role: ApiRole, workspace: str, expires: str) -> int:
    """Create a token and print it. Return the exit code. Raises CountersignError."""
    _check_name(name)
    if workspace and not _WORKSPACE.fullmatch(workspace):
        raise SettingsError(f"{workspace!r:.100} is no workspace.", "write platform:id, such as slack:T123")
    lifetime = _lifetime(expires)
    async with _opened_tokens(settings) as tokens:
        made, token = await tokens.create(name, role, workspace, lifetime, _operator())
    until = f"until {_moment(made.expires_at)}" if made.expires_at else "until it is revoked"
    sys.stderr.write(f"The token {name} is good for {_where(made)} {until}, as {made.role}. It is shown this once:\n")
    sys.stdout.write(f"{token}\n")
    return 0


async def show(settings: Settings, *, as_json: bool) -> int:
    """List all tokens. Return the exit code. Raises CountersignError."""
    async with _opened_tokens(settings) as tokens:
        found = await tokens.tokens()
    if as_json:
        sys.stdout.write(f"{json.dumps([_object(each) for each in found])}\n")
    elif found:
        sys.stdout.write(_table([("NAME", "ROLE", "WORKSPACE", "MADE", "STATE"), *map(_row, found)]))
    else:
        sys.stderr.write("There are no tokens. `countersign tokens create NAME --role ROLE` makes one.\n")
    return 0


async def revoke(settings: Settings, name: str) -> int:
    """Revoke a token. Return the exit code. Raises CountersignError."""
    async with _opened_tokens(settings) as tokens:
        if not await tokens.revoke(name, _operator()):
            raise NotFound(f"There is no token {name!r:.100} to revoke.", "see `countersign tokens list`")
    sys.stderr.write(f"The token {name} is good for nothing any more.\n")
    return 0


@asynccontextmanager
async def _opened_tokens(settings: Settings) -> AsyncIterator[SqlTokenStore]:
    from bot.storage.api_tokens import SqlTokenStore  # noqa: PLC0415 - loads the database's libraries

    if settings.auto_migrate:
        found, wanted = await current(settings)
        if found != wanted:
            await upgrade(settings)
    async with open_migrated_database(settings, migrate=False) as database:
        yield SqlTokenStore(database)


def _operator() -> Author:
    return LocalUser(login_name()).author


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SettingsError(
            f"{name!r:.100} cannot be the name of a token.",
            "use 1 to 64 lower-case letters, digits, dots, dashes and underscores, such as ci or night-run",
        )
    if name == OPERATOR_NAME:
        raise SettingsError(f"{OPERATOR_NAME!r} is reserved for ADMIN_API_TOKEN.", "take another name")


def _lifetime(text: str) -> float | None:
    """Parse a lifetime into seconds; None for no expiry."""
    if not text:
        return None
    span = _SPAN.fullmatch(text.strip().lower())
    if span is None or int(span[1]) == 0:
        raise SettingsError(f"--expires is {text!r:.40}, which is no time.", "write 12h, 90d or 52w")
    return int(span[1]) * _SECONDS[span[2]]


def _row(token: ApiToken) -> Sequence[str]:
    made = f"{_moment(token.created_at)} by {token.created_by}"
    return (token.name, token.role.value, token.workspace or "all", made, _state(token))


def _state(token: ApiToken) -> str:
    if token.revoked_at is not None:
        return f"revoked {_moment(token.revoked_at)}"
    if token.expires_at is None:
        return "good"
    over = token.expires_at <= time.time()
    return f"{'expired' if over else 'good until'} {_moment(token.expires_at)}"


def _where(token: ApiToken) -> str:
    return token.workspace if token.workspace != EVERYWHERE else "all workspaces"


def _object(token: ApiToken) -> dict[str, object]:
    times = {"createdAt": token.created_at, "expiresAt": token.expires_at, "revokedAt": token.revoked_at}
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "workspace": token.workspace,
        "createdBy": token.created_by,
        **{name: None if at is None else _moment(at) for name, at in times.items()},
    }


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)
