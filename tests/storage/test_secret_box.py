from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.errors import SecretUnavailable, SettingsError
from bot.storage import encryption
from bot.storage.encryption import SecretBox, make_box

anything = st.text(st.characters(exclude_categories=()))
KEY, OTHER = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "Hx4dHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA="


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derive keys with few rounds. Another test checks the number of rounds."""
    monkeypatch.setattr(encryption, "_ROUNDS", 2)


@given(anything, anything)
def test_a_sealed_secret_comes_out_exactly(plain: str, place: str) -> None:
    box = make_box(KEY)
    assert box.open(box.seal(plain, place), place) == plain


@given(anything, st.tuples(anything, anything).filter(lambda pair: pair[0] != pair[1]))
def test_it_opens_in_its_own_place_only(plain: str, places: tuple[str, str]) -> None:
    box = make_box(KEY)
    with pytest.raises(SecretUnavailable, match="tampered"):
        box.open(box.seal(plain, places[0]), places[1])


@given(st.data())
def test_a_changed_bit_is_noticed(data: st.DataObject) -> None:
    box = make_box(KEY)
    version, salt, iv, ciphertext = box.seal("secret", "s:auth").split(":")
    part = data.draw(st.sampled_from(["iv", "ciphertext"]))
    raw = bytearray(base64.b64decode(iv if part == "iv" else ciphertext))
    bit = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[bit // 8] ^= 1 << bit % 8
    changed = base64.b64encode(raw).decode()
    parts = (version, salt, changed, ciphertext) if part == "iv" else (version, salt, iv, changed)
    with pytest.raises(SecretUnavailable, match="tampered"):
        box.open(":".join(parts), "s:auth")


@given(anything)
def test_any_other_value_in_place_of_a_secret_is_reported_as_damaged(text: str) -> None:
    with pytest.raises(SecretUnavailable):
        make_box(KEY).open(text, "s:auth")


def test_the_same_text_is_never_sealed_the_same_way_twice() -> None:
    box = make_box(KEY)
    assert len({box.seal("secret", "s:auth") for _ in range(50)}) == 50


def test_the_first_key_seals_and_every_key_opens() -> None:
    old = make_box(OTHER).seal("old", "s:auth")
    both = make_box(f" {KEY} , {OTHER},")
    assert both.open(old, "s:auth") == "old"
    assert make_box(KEY).open(both.seal("new", "s:auth"), "s:auth") == "new"
    with pytest.raises(SecretUnavailable, match="another key"):
        make_box(OTHER).open(both.seal("new", "s:auth"), "s:auth")


@pytest.mark.usefixtures("few_rounds")
def test_a_password_opens_its_own_earlier_secrets_and_nothing_else() -> None:
    first, later = make_box("", "open sesame"), make_box("", "open sesame")
    sealed = first.seal("secret", "s:auth")
    assert later.open(sealed, "s:auth") == "secret"
    assert sealed.split(":")[1] != later.seal("secret", "s:auth").split(":")[1], "every box has a salt of its own"
    with pytest.raises(SecretUnavailable, match="than those in ENCRYPTION_MASTER_PASSWORD"):
        make_box("", "open barley").open(sealed, "s:auth")


@pytest.mark.usefixtures("few_rounds")
def test_beside_a_key_the_password_only_opens_old_rows() -> None:
    old = make_box("", "open sesame").seal("old", "s:auth")
    both = make_box(KEY, "open sesame")
    assert both.open(old, "s:auth") == "old"
    assert make_box(KEY).open(both.seal("new", "s:auth"), "s:auth") == "new"


@pytest.mark.usefixtures("few_rounds")
def test_a_key_that_is_not_set_any_more_is_named() -> None:
    by_key, by_password = make_box(KEY).seal("a", "s"), make_box("", "open sesame").seal("a", "s")
    with pytest.raises(SecretUnavailable, match="encrypted with MCP_ENCRYPTION_KEY, which is not set"):
        make_box("", "open sesame").open(by_key, "s")
    with pytest.raises(SecretUnavailable, match="encrypted with ENCRYPTION_MASTER_PASSWORD, which is not set"):
        make_box(KEY).open(by_password, "s")


def test_a_box_without_keys_names_the_setting() -> None:
    assert not SecretBox().usable
    with pytest.raises(SecretUnavailable) as caught:
        SecretBox().seal("secret", "s:auth")
    assert "MCP_ENCRYPTION_KEY" in caught.value.fix
    assert "ENCRYPTION_MASTER_PASSWORD" in caught.value.fix


@pytest.mark.parametrize(
    "key",
    ["hunter2", "aHVudGVyMg==", KEY[:-4], f"{KEY}{KEY}", f"{KEY},hunter2", "h\u00fcnter2" * 7, "=" * 44, "*" * 44],
)
def test_a_key_that_is_none_is_refused_by_the_name_of_its_variable(key: str) -> None:
    with pytest.raises(SettingsError, match="MCP_ENCRYPTION_KEY holds a key that is not 32 bytes") as caught:
        make_box(key)
    assert all(part not in str(caught.value) for part in key.split(","))
    assert caught.value.__suppress_context__


@given(st.binary(min_size=32, max_size=32))
def test_keys_may_be_spelled_in_either_alphabet_with_or_without_padding(key: bytes) -> None:
    standard, urls = base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()
    sealed = make_box(standard).seal("secret", "s:auth")
    for spelled in (urls, urls.rstrip("="), standard.rstrip("=")):
        assert make_box(spelled).open(sealed, "s:auth") == "secret"


def test_a_key_is_derived_in_as_many_rounds_as_guessing_should_take_and_once_for_each_salt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    derived: list[tuple[str, bytes, int, int]] = []
    real: Callable[..., bytes] = hashlib.pbkdf2_hmac

    def count(name: str, password: bytes, salt: bytes, rounds: int, length: int) -> bytes:
        derived.append((name, salt, rounds, length))
        return real(name, password, salt, 2, length)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", count)
    box = make_box("", "open sesame")
    sealed = [box.seal(str(n), "s") for n in range(3)]
    threads = [threading.Thread(target=box.open, args=(each, "s")) for each in sealed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    ((name, salt, rounds, length),) = derived
    assert (name, len(salt), rounds, length) == ("sha256", 16, 600_000, 32)


def test_a_ciphertext_has_the_one_text_format() -> None:
    version, salt, iv, ciphertext = make_box(KEY).seal("12345", "s:auth").split(":")
    assert (version, salt) == ("v1", "")
    assert (len(base64.b64decode(iv)), len(base64.b64decode(ciphertext))) == (12, 5 + 16)


def test_the_cipher_is_loaded_when_it_is_needed() -> None:
    look = "import sys, bot.storage.admin.servers; sys.exit(any(n.startswith('cryptography') for n in sys.modules))"
    assert subprocess.run([sys.executable, "-c", look], check=False, timeout=60).returncode == 0
