"""Encryption at rest: AES-256-GCM with the operator's keys, in one text format, `v1:salt:iv:ciphertext`.

The parts are base64; the salt is empty for a raw key. Every ciphertext is bound to a context, so that one copied into
another server's row cannot be decrypted. On SQLite, a missing key is generated into a file beside the database.

Secrets of servers may also come from outside: from environment variables, and from files written by a secret manager.
No library of the database is loaded, because every command reads this module at its start.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import hashlib
import os
import stat
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bot.errors import SecretUnavailable, SettingsError
from bot.storage.lock_file import fsync_directory

if TYPE_CHECKING:
    from sqlalchemy import Column, Connection

KEY_VARIABLE = "MCP_ENCRYPTION_KEY"
PASSWORD_VARIABLE = "ENCRYPTION_MASTER_PASSWORD"  # noqa: S105 - a variable's name
LARGEST_BYTES = 64 * 1024
"""Of a file with a secret."""

_VERSION = "v1"
_KEY_BYTES = 32
_SALT_BYTES = 16
_IV_BYTES = 12
"""NIST SP 800-38D recommends 96 bits, which need no further hashing."""
_ROUNDS = 600_000
"""OWASP's advice for PBKDF2-HMAC-SHA256."""
_SET_AGAIN = "or set the secret again"


@dataclass(frozen=True, slots=True)
class Encrypted:
    """A row with a ciphertext: its name in messages, its encryption context, and the values of its primary key."""

    label: str
    context: str
    ciphertext: str
    column: Column[str] | Column[str | None]
    key: Sequence[str]

    def replace_ciphertext(self, connection: Connection, ciphertext: str) -> int:
        """Replace the ciphertext unless it has changed meanwhile. Return 1 if it was replaced, else 0."""
        table = self.column.table
        is_this = (column == value for column, value in zip(table.primary_key, self.key, strict=True))
        unchanged = table.update().where(*is_this, self.column == self.ciphertext)
        return connection.execute(unchanged.values({self.column: ciphertext})).rowcount


class SecretBox:
    """Encryption of short texts. The first key encrypts, every key decrypts. Without a key, the password does both;
    with one, it only decrypts older ciphertexts. An empty box raises SecretUnavailable.

    `later` loads keys at the first use if there is no other key; it may read and write files. Deriving a key from the
    password takes most of a second: call from a thread.
    """

    def __init__(
        self, keys: Sequence[bytes] = (), password: str = "", *, later: Callable[[], tuple[bytes, ...]] = tuple
    ) -> None:
        self._given = tuple(keys)
        self._later = functools.cache(later)
        self._password = _bytes(password)
        self._salt = os.urandom(_SALT_BYTES)
        self._derived: dict[bytes, bytes] = {}
        self._deriving = threading.Lock()

    @property
    def _keys(self) -> tuple[bytes, ...]:
        return self._given or (() if self._password else self._later())

    @property
    def usable(self) -> bool:
        """True if there is a key or a password."""
        return bool(self._keys or self._password)

    def seal(self, plain: str, context: str) -> str:
        """Encrypt a text for one context. Raises SecretUnavailable if there is no key."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - start-up must stay fast

        if not self.usable:
            raise SecretUnavailable(
                "There is no key to encrypt secrets with.",
                f"set {KEY_VARIABLE}, which `countersign secrets generate-key` makes, or {PASSWORD_VARIABLE}",
            )
        salt = b"" if self._keys else self._salt
        key = self._derive(salt) if salt else self._keys[0]
        iv = os.urandom(_IV_BYTES)
        sealed = AESGCM(key).encrypt(iv, _bytes(plain), _bytes(context))
        return ":".join((_VERSION, *(base64.b64encode(part).decode("ascii") for part in (salt, iv, sealed))))

    def open(self, sealed: str, context: str) -> str:
        """Decrypt a ciphertext of this context. Raises SecretUnavailable if no key fits or it is damaged."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - start-up must stay fast
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        salt, iv, ciphertext = _parts(sealed)
        for key in self._keys_for(salt):
            try:
                return AESGCM(key).decrypt(iv, ciphertext, _bytes(context)).decode("utf-8", "surrogatepass")
            except InvalidTag:
                continue
        variable = PASSWORD_VARIABLE if salt else KEY_VARIABLE
        raise SecretUnavailable(
            f"It was encrypted with another key than those in {variable}, or has been tampered with.",
            f"give {variable} the one it was encrypted with{'' if salt else ' behind a comma'}, {_SET_AGAIN}",
        )

    def encrypt_again(self, rows: Sequence[Encrypted]) -> tuple[Sequence[tuple[Encrypted, str]], Sequence[str]]:
        """Return rows with their new ciphertexts, and the labels of those that no key decrypts."""
        pairs, unopened = [], []
        for row in rows:
            try:
                plain = self.open(row.ciphertext, row.context)
            except SecretUnavailable:
                unopened.append(row.label)
            else:
                pairs.append((row, self.seal(plain, row.context)))
        return pairs, unopened

    def _keys_for(self, salt: bytes) -> Sequence[bytes]:
        if salt and self._password:
            return (self._derive(salt),)
        if not salt and self._keys:
            return self._keys
        variable = PASSWORD_VARIABLE if salt else KEY_VARIABLE
        raise SecretUnavailable(
            f"It was encrypted with {variable}, which is not set.", f"set {variable} as it was then, {_SET_AGAIN}"
        )

    def _derive(self, salt: bytes) -> bytes:
        with self._deriving:
            if salt not in self._derived:
                self._derived[salt] = hashlib.pbkdf2_hmac("sha256", self._password, salt, _ROUNDS, _KEY_BYTES)
            return self._derived[salt]


def make_box(encryption_key: str = "", master_password: str = "") -> SecretBox:
    """Return a box from the two variables: keys separated by commas, and a password. Raises SettingsError."""
    return SecretBox(read_keys(encryption_key, KEY_VARIABLE), master_password)


def hash_token(token: str) -> str:
    """Return the hash of a random token for storage. It needs no salt, because 256 random bits cannot be guessed."""
    return hashlib.sha256(token.encode()).hexdigest()


def generate_key() -> str:
    """Return a new random key in the format of MCP_ENCRYPTION_KEY."""
    return base64.b64encode(os.urandom(_KEY_BYTES)).decode("ascii")


def read_keys(text: str, source: str) -> tuple[bytes, ...]:
    """Parse keys separated by commas. `source` names them in errors. Raises SettingsError without key values."""
    return tuple(_read_key(part.strip(), source) for part in text.split(",") if part.strip())


def _read_key(text: str, source: str) -> bytes:
    # Both base64 alphabets, with or without padding, because key generators differ.
    spelled = text.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        key = base64.b64decode(spelled + "=" * (-len(spelled) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise SettingsError(
            f"{source} holds a key that is not {_KEY_BYTES} bytes in base64.",
            "make one with `countersign secrets generate-key`",
        ) from None
    return key


def _parts(sealed: str) -> tuple[bytes, bytes, bytes]:
    parts = sealed.split(":")
    try:
        version, salt, iv, ciphertext = parts[0], *(base64.b64decode(part, validate=True) for part in parts[1:])
    except (binascii.Error, ValueError):
        version, salt, iv, ciphertext = "", b"", b"", b""
    if version != _VERSION or len(iv) != _IV_BYTES or len(salt) not in (0, _SALT_BYTES):
        raise SecretUnavailable(
            "What is stored is damaged, or was written by a later release.", "restore a backup, or set the secret again"
        ) from None
    return salt, iv, ciphertext


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A key in the format of MCP_ENCRYPTION_KEY, its file, and True if it was created now."""

    text: str = field(repr=False)
    path: Path
    new: bool


def load_or_create_key(database: Path) -> KeyFile:
    """Return the key beside a database file, created if missing. Concurrent processes get the same key. Reads and
    writes files. Raises SettingsError if the key is invalid or cannot be stored.
    """
    path = key_path(database)
    try:
        new = not path.exists() and _create_key_file(path)
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"The encryption key {path} cannot be stored: {getattr(error, 'strerror', None) or 'it is not text'}.",
            "check the file and its folder, or set MCP_ENCRYPTION_KEY",
        ) from error
    if not read_keys(text, f"The file {path}"):
        raise SettingsError(f"The file {path} is empty.", "restore it from a backup, or delete it to get a new key")
    return KeyFile(text, path, new)


def key_path(database: Path) -> Path:
    """Return the path of the key beside a database file."""
    return database.with_name(database.name + ".key")


def _create_key_file(path: Path) -> bool:
    """Write the file atomically unless it exists. Return True if it was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(generate_key() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            # Unlike a rename, a link fails if the target exists.
            os.link(draft, path)
        except FileExistsError:
            return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    # Encrypted values must not outlive their key.
    fsync_directory(path.parent)
    return True


# -------------------- secrets from outside


def from_environment(name: str, environment: Mapping[str, str]) -> str:
    """Return the value of a variable. Raises SecretUnavailable if it is missing or empty."""
    value = environment.get(name, "")
    if not value:
        raise SecretUnavailable(
            f"The variable {name} is not set, or is none that servers may refer to.",
            f"set {name} where the bot is started, under a name that MCP_SECRET_VARIABLES lets servers use",
        )
    return value


def from_file(path: str, file: BinaryIO) -> str:
    """Return the text of a file without trailing line ends. `path` is the file's name in errors. Raises
    SecretUnavailable.
    """
    try:
        data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from None
    if len(data) > LARGEST_BYTES:
        raise SecretUnavailable(f"The file {path} is larger than 64 KiB.", "name a file that holds the secret alone")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise SecretUnavailable(f"The file {path} is not text.", "name a file that holds the secret alone") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SecretUnavailable(f"The file {path} is empty.", "write the secret into it")
    return text


def open_regular_file(path: str) -> BinaryIO:
    """Open a regular file. Raises SecretUnavailable for others, because pipes and devices may never end."""
    try:
        # Opening a pipe without a writer must not block.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise SecretUnavailable(f"The file {path} is not a regular file.", "name a file that holds the secret alone")
    return os.fdopen(handle, "rb")


def _unreadable(path: str, error: Exception) -> SecretUnavailable:
    reason = getattr(error, "strerror", None) or "its name cannot be used"
    return SecretUnavailable(
        f"The file {path} cannot be read: {reason}.", "see that it is there and that the bot may read it"
    )
