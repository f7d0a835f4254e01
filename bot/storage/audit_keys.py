"""Keys of the audit: each row and each checkpoint has a MAC with a key outside the database.

An `AuditKeys` is one process's key ring. The first key signs, all keys verify. Row MACs and checkpoint MACs have
different subkeys (HKDF, RFC 5869), so that neither can replace the other.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bot.domain.audit import Checkpoint, MacCheck

CONNECTION_KEY = "audit keys"
"""The entry of a connection's `info` that holds the `AuditKeys` of its database."""

_LABEL = b"countersign audit v1 "
_ROUNDS = 600_000
"""OWASP's advice for PBKDF2-HMAC-SHA256."""
_ID_BYTES = 8


@dataclass(frozen=True, slots=True, repr=False)
class _Key:
    id: str
    rows: bytes
    checkpoints: bytes


class AuditKeys:
    """One process's key ring. `load` returns secrets of 32 bytes, the signing one first. It runs at the first use, in
    the database's thread, and may raise SettingsError. `make` does the same and creates a secret if `load` finds none.
    """

    def __init__(
        self,
        load: Callable[[], Sequence[bytes]] = tuple,
        make: Callable[[], Sequence[bytes]] | None = None,
    ) -> None:
        self._load = load
        self._make = make or load
        self._known: Mapping[str, _Key] = {}
        self._loading = threading.Lock()
        self.used = False
        """True once a row was signed, in a transaction that may have been rolled back."""

    @property
    def ids(self) -> frozenset[str]:
        """Ids of all available keys; empty without a key."""
        return frozenset(self._keys(self._load))

    def prepare(self) -> bool:
        """Create the key if it is missing. Return False if it cannot be stored. Raises SettingsError."""
        return self._signing() is not None

    def sign_row(self, row_hash: str) -> str:
        """Return the MAC of a row as `key id:hex`; empty without a key."""
        self.used = True
        key = self._signing()
        return "" if key is None else f"{key.id}:{_mac(key.rows, row_hash)}"

    def check_row(self, row_hash: str, mac: object) -> MacCheck:
        """Compare the MAC of a row."""
        key_id, _, expected_mac = mac.partition(":") if isinstance(mac, str) else ("?", "", "")
        return self._check(key_id, lambda key: _mac(key.rows, row_hash), expected_mac)

    def sign_checkpoint(self, seq: int, row_hash: str, at: float) -> Checkpoint:
        """Return a checkpoint with a MAC; without one if there is no key."""
        key = self._signing()
        unsigned = Checkpoint(seq, row_hash, at)
        if key is None:
            return unsigned
        return Checkpoint(seq, row_hash, at, key.id, _mac(key.checkpoints, unsigned.signed_text))

    def check_checkpoint(self, checkpoint: Checkpoint) -> MacCheck:
        """Compare the MAC of a checkpoint."""
        return self._check(checkpoint.key, lambda key: _mac(key.checkpoints, checkpoint.signed_text), checkpoint.mac)

    def _check(self, key_id: str, calculate: Callable[[_Key], str], expected_mac: str) -> MacCheck:
        if not key_id:
            return MacCheck.MISSING
        key = self._keys(self._load).get(key_id)
        if key is None:
            return MacCheck.UNKNOWN_KEY
        return MacCheck.GOOD if hmac.compare_digest(calculate(key).encode(), expected_mac.encode()) else MacCheck.WRONG

    def _signing(self) -> _Key | None:
        return next(iter(self._keys(self._make).values()), None)

    def _keys(self, load: Callable[[], Sequence[bytes]]) -> Mapping[str, _Key]:
        with self._loading:
            if not self._known:
                self._known = {key.id: key for key in map(_derive, load())}
            return self._known


def stretch(password: str) -> bytes:
    """Return the secret of a master password. Takes a good part of a second."""
    return hashlib.pbkdf2_hmac("sha256", password.encode("utf-8", "surrogatepass"), _LABEL + b"password", _ROUNDS, 32)


def expand(secret: bytes, label: bytes) -> bytes:
    """Return 32 bytes by HKDF-SHA256 without a salt (RFC 5869): extract, then one block of expand."""
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, label + b"\x01", "sha256")


def _derive(secret: bytes) -> _Key:
    return _Key(
        expand(secret, _LABEL + b"id")[:_ID_BYTES].hex(),
        expand(secret, _LABEL + b"rows"),
        expand(secret, _LABEL + b"checkpoints"),
    )


def _mac(key: bytes, text: str) -> str:
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()
