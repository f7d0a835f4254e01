"""Keys of the audit: signatures and the comparison of MACs."""

from __future__ import annotations

import dataclasses

import pytest

from bot.domain.audit import Checkpoint, MacCheck
from bot.storage.audit_chain import AuditKeys, expand_key

HASH = "ab" * 32
OLD, NEW = AuditKeys(lambda: (b"o" * 32,)), AuditKeys(lambda: (b"n" * 32,))
BOTH = AuditKeys(lambda: (b"n" * 32, b"o" * 32))


def test_subkeys_are_those_of_the_standard() -> None:
    """RFC 5869, test case 3, as far as one block goes."""
    assert expand_key(b"\x0b" * 22, b"").hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"


def test_the_first_key_signs_and_every_key_verifies() -> None:
    old, new = OLD.sign_row(HASH), BOTH.sign_row(HASH)
    assert new == NEW.sign_row(HASH)
    assert (BOTH.check_row(HASH, old), BOTH.check_row(HASH, new)) == (MacCheck.GOOD, MacCheck.GOOD)
    assert (OLD.check_row(HASH, new), OLD.check_row("cd" * 32, old)) == (MacCheck.UNKNOWN_KEY, MacCheck.WRONG)


@pytest.mark.parametrize("mac", ["x", ":", 7, None, b"\xff", "é" * 20, f"{next(iter(OLD.ids))}:é"])
def test_a_mac_that_no_row_has_is_never_good_and_no_error(mac: object) -> None:
    assert OLD.check_row(HASH, mac) is not MacCheck.GOOD


def test_without_a_key_nothing_is_signed_and_nothing_is_good() -> None:
    keys = AuditKeys()
    assert (keys.sign_row(HASH), keys.check_row(HASH, ""), keys.prepare()) == ("", MacCheck.MISSING, False)
    assert keys.sign_checkpoint(1, HASH, 1.5) == Checkpoint(1, HASH, 1.5)


def test_the_mac_of_a_row_is_not_that_of_a_checkpoint_and_covers_all_of_it() -> None:
    checkpoint = NEW.sign_checkpoint(7, HASH, 1.5)
    assert NEW.check_checkpoint(checkpoint) is MacCheck.GOOD
    assert NEW.check_row(checkpoint.signed_text, f"{checkpoint.key}:{checkpoint.mac}") is MacCheck.WRONG
    for changed in ({"seq": 6}, {"hash": "cd" * 32}, {"at": 2.5}):
        assert NEW.check_checkpoint(dataclasses.replace(checkpoint, **changed)) is MacCheck.WRONG


@pytest.mark.parametrize("keys", [NEW, AuditKeys()])
def test_a_checkpoint_is_read_back_from_a_line_of_a_log(keys: AuditKeys) -> None:
    checkpoint = keys.sign_checkpoint(7, HASH, 1795453078.626)
    for line in (f"{checkpoint}\n", f"2026-11-23 INFO x: {checkpoint}", f'{{"message": "{checkpoint}"}}'):
        assert Checkpoint.find(line) == checkpoint
    assert Checkpoint.find("nothing of the kind") is None
    for torn in (str(checkpoint)[:-1], f"{checkpoint}0", str(checkpoint).replace("7:", "x:")):
        if keys is NEW or torn[-1] != "0":
            with pytest.raises(ValueError, match="not a whole checkpoint"):
                Checkpoint.find(torn)
