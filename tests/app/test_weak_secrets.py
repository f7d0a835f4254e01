"""Weak secrets of the operator: rejected at the start, and named by the doctor."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path

import pytest

from bot.app.administration import administer
from bot.app.chat import ChatOptions, chat
from bot.app.doctor import examine_all
from bot.app.secrets import check_operator_secrets, secret_box
from bot.app.service import run
from bot.errors import SettingsError
from bot.settings import read_settings
from bot.storage.encryption import generate_key


@pytest.mark.parametrize("password", ["hunter2", "correct horse", "Summer2026!", "a master password", "1234567890"])
async def test_a_master_password_that_is_easy_to_guess_is_refused_at_every_start(password: str, folder: Path) -> None:
    settings = read_settings(encryption_master_password=password)
    starts = (run(settings), chat(settings, ChatOptions()), administer(settings, "mcp", ("list",), as_json=False))
    for start in starts:
        with pytest.raises(SettingsError, match="ENCRYPTION_MASTER_PASSWORD can be guessed: it is ") as refused:
            await start
        assert password not in str(refused.value)
        assert "countersign secrets generate-password" in refused.value.fix
    assert not (folder / "data").exists()


@pytest.mark.parametrize("key", [b"\0" * 32, b"k" * 32, b"ab" * 16, b"password" * 4])
def test_an_encryption_key_that_was_not_made_at_random_is_refused(key: bytes) -> None:
    text = base64.b64encode(key).decode()
    with pytest.raises(SettingsError, match="MCP_ENCRYPTION_KEY can be guessed") as refused:
        check_operator_secrets(read_settings(mcp_encryption_key=f"{generate_key()},{text}"))
    assert text not in str(refused.value)
    assert "countersign secrets generate-key" in refused.value.fix


@pytest.mark.parametrize("key", [b"\0" * 32, b"k" * 32, b"password" * 4])
async def test_an_audit_key_that_was_not_made_at_random_is_refused_at_every_start(key: bytes, folder: Path) -> None:
    text = base64.b64encode(key).decode()
    settings = read_settings(audit_key=f"{generate_key()},{text}")
    starts = (run(settings), chat(settings, ChatOptions()), administer(settings, "mcp", ("list",), as_json=False))
    for start in starts:
        with pytest.raises(SettingsError, match="AUDIT_KEY can be guessed") as refused:
            await start
        assert text not in str(refused.value)
        assert "countersign secrets generate-key" in refused.value.fix
    assert not (folder / "data").exists()


def test_keys_and_passwords_that_were_made_at_random_are_taken() -> None:
    for _ in range(200):
        check_operator_secrets(
            read_settings(
                mcp_encryption_key=generate_key(),
                encryption_master_password=secrets.token_urlsafe(32),
                audit_key=generate_key(),
            )
        )
    check_operator_secrets(read_settings())


def test_secrets_of_a_weak_password_can_be_encrypted_anew_with_a_key() -> None:
    key, weak = generate_key(), "hunter2"
    sealed = secret_box(read_settings(encryption_master_password=weak, database_url="postgresql://h/d")).seal("x", "p")
    both = secret_box(
        read_settings(mcp_encryption_key=key, encryption_master_password=weak, database_url="postgresql://h/d")
    )
    again = both.seal(both.open(sealed, "p"), "p")
    assert secret_box(read_settings(mcp_encryption_key=key, database_url="postgresql://h/d")).open(again, "p") == "x"


async def test_the_doctor_names_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await examine_all(read_settings(encryption_master_password="hunter2"), as_json=False) == 1
    [line] = [each for each in capsys.readouterr().out.splitlines() if "settings · secrets" in each]
    assert line.startswith("✗ settings · secrets  ENCRYPTION_MASTER_PASSWORD can be guessed: it is ")
    assert "generate-password" in line
