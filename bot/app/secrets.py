"""Encryption keys, and the secrets of this machine that servers of admins may refer to.

An admin in a chat is not the operator: `env:` and `file:` must not expose the bot's own keys or other files of the
machine to a server of the admin's choice.
"""

from __future__ import annotations

import fnmatch
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from pydantic import SecretStr

from bot.domain.secrets import LEAST_OPERATOR_BITS, weakness
from bot.errors import SecretUnavailable, SettingsError
from bot.settings import Settings, setting_name
from bot.storage.address import PostgresServer, SqliteFile, read_address
from bot.storage.audit_chain import AuditKeys, stretch_password
from bot.storage.encryption import (
    KEY_VARIABLE,
    SecretBox,
    key_path,
    load_or_create_key,
    make_box,
    open_regular_file,
    read_keys,
)

log = logging.getLogger(__name__)

_AUDIT_VARIABLE = "AUDIT_KEY"
_LEAST_KEY_VALUES = 16
"""Fewest distinct values among the 32 bytes of a key: random keys have about 30."""


def secret_value(secret: SecretStr | None) -> str:
    """Return the text of a secret setting, empty if it is not set."""
    return secret.get_secret_value() if secret else ""


def secret_box(settings: Settings) -> SecretBox:
    """Return the box with the operator's keys. Without keys, SQLite creates a key file on first use; on PostgreSQL the
    box stays empty and reports the missing key on first use. Raises SettingsError.
    """
    key, password = secret_value(settings.mcp_encryption_key), secret_value(settings.encryption_master_password)
    match read_address(settings.database_url):
        case SqliteFile(path) if not key and not password:
            return SecretBox(later=lambda: _key_beside(path, logging.WARNING))
        case SqliteFile() | PostgresServer():
            return make_box(key, password)


def check_operator_secrets(settings: Settings) -> None:
    """Raise SettingsError if a secret set by the operator is easy to guess."""
    password = secret_value(settings.encryption_master_password)
    if password and (why := weakness(password, LEAST_OPERATOR_BITS)):
        raise SettingsError(
            f"ENCRYPTION_MASTER_PASSWORD can be guessed: it is {why}.",
            "if nothing is encrypted with it yet, set one from `countersign secrets generate-password`. Otherwise set "
            "MCP_ENCRYPTION_KEY from `countersign secrets generate-key`, run `countersign secrets rotate` with both, "
            "then remove the password",
        )
    if _has_weak_key(settings.mcp_encryption_key, KEY_VARIABLE):
        raise SettingsError(
            "MCP_ENCRYPTION_KEY can be guessed: its bytes were not made at random.",
            "put one from `countersign secrets generate-key` and a comma before it, run `countersign secrets rotate`, "
            "then remove the old one",
        )
    if _has_weak_key(settings.audit_key, _AUDIT_VARIABLE):
        raise SettingsError(
            "AUDIT_KEY can be guessed: its bytes were not made at random.",
            "if it has signed nothing yet, set one from `countersign secrets generate-key`. Otherwise put the new one "
            "and a comma before it, run `countersign audit verify` and `countersign audit seal`, then remove the "
            "old one",
        )


def _has_weak_key(setting: SecretStr | None, name: str) -> bool:
    return any(len(set(key)) < _LEAST_KEY_VALUES for key in read_keys(secret_value(setting), name))


def audit_keys(settings: Settings) -> AuditKeys:
    """Return the keys of the audit: AUDIT_KEY first, then one for each encryption key. Without any, SQLite uses its key
    file; PostgreSQL has none. Raises SettingsError.
    """
    own = read_keys(secret_value(settings.audit_key), _AUDIT_VARIABLE)
    encryption = read_keys(secret_value(settings.mcp_encryption_key), KEY_VARIABLE)
    password = secret_value(settings.encryption_master_password)
    match read_address(settings.database_url):
        case SqliteFile(path) if not (own or encryption or password):
            return AuditKeys(
                lambda: _key_beside(path, logging.INFO) if key_path(path).exists() else (),
                lambda: _key_beside(path, logging.INFO),
            )
        case SqliteFile() | PostgresServer():
            return AuditKeys(lambda: (*own, *encryption, *((stretch_password(password),) if password else ())))


def _key_beside(path: Path, level: int) -> tuple[bytes, ...]:
    key = load_or_create_key(path)
    if key.new:
        log.log(level, "new key of stored secrets and of the audit in %s: keep a copy of it, but not beside", key.path)
    return read_keys(key.text, f"The file {key.path}")


class UsableSecrets:
    """Variables that match MCP_SECRET_VARIABLES, except the bot's own, and files below MCP_SECRET_FOLDER."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self.environment = {
            name: value
            for name, value in environment.items()
            if not setting_name(name)
            and any(fnmatch.fnmatchcase(name, pattern) for pattern in settings.mcp_secret_variables)
        }
        self._folder = settings.mcp_secret_folder

    def open_file(self, path: str) -> BinaryIO:
        """Open a file with a server's secret. Raises SecretUnavailable."""
        folder = self._folder.resolve()
        # The text of the path is checked first: other paths are not opened, since they may be on a network.
        normalized = Path(os.path.normpath(path))
        if not any(normalized.is_relative_to(allowed) for allowed in (folder, self._folder.absolute())):
            raise _outside(path, folder)
        try:
            # A symbolic link in the folder may point anywhere.
            resolved = Path(path).resolve()
        except (OSError, RuntimeError, ValueError):
            raise SecretUnavailable(
                f"The file {path} cannot be read: its links lead nowhere.", "see that it is there"
            ) from None
        if not resolved.is_relative_to(folder):
            raise _outside(path, folder)
        return open_regular_file(str(resolved))


def _outside(path: str, folder: Path) -> SecretUnavailable:
    return SecretUnavailable(
        f"The file {path} is not in {folder}, which is where servers' secrets are read from.",
        "put it there, or set MCP_SECRET_FOLDER",
    )
