"""Changes of `.env` affect only the value, and keep the file private."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from dotenv import dotenv_values

from bot.app.setup.values import update_env_file
from bot.errors import SettingsError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".env"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "TOKEN=new\n"),
        ("A=1", "A=1\nTOKEN=new\n"),
        ("# TOKEN=example\nA=1\n", "# TOKEN=example\nA=1\nTOKEN=new\n"),
        ("TOKEN=old\nB=2\n", "TOKEN=new\nB=2\n"),
        ("TOKEN=old", "TOKEN=new"),
        ("TOKEN=\nB=2\n", "TOKEN=new\nB=2\n"),
        ("TOKEN\nB=2\n", "TOKEN=new\nB=2\n"),
        ("\n\nexport TOKEN = 'old # value'  # mine\n\nB=2\n", "\n\nexport TOKEN = new  # mine\n\nB=2\n"),
        ('TOKEN="two\nlines"  # mine\nB=2\n', "TOKEN=new  # mine\nB=2\n"),
        ("TOKEN=first\nB=2\nTOKEN=second # counts\n", "TOKEN=first\nB=2\nTOKEN=new # counts\n"),
        ("token=old\n", "token=new\n"),
        ("A=1\r\nTOKEN=old\r\nB=2\r\n", "A=1\r\nTOKEN=new\r\nB=2\r\n"),
        ("A=1\r\n", "A=1\r\nTOKEN=new\r\n"),
        ("TOKENS=other\nMY_TOKEN=other\n", "TOKENS=other\nMY_TOKEN=other\nTOKEN=new\n"),
    ],
)
def test_one_value_changes_and_everything_else_stays(path: Path, before: str, after: str) -> None:
    path.write_bytes(before.encode())
    update_env_file(path, {"TOKEN": "new"})
    assert path.read_bytes().decode() == after
    assert mode(path) == 0o600


@pytest.mark.parametrize("value", ["a b", "it's", 'say "x"', "back\\slash", "#no comment", "a=b", "$HOME", "größe", ""])
def test_a_value_is_read_as_it_was_written(path: Path, value: str) -> None:
    update_env_file(path, {"VALUE": value, "OTHER": "1"})
    assert dotenv_values(path) == {"VALUE": value, "OTHER": "1"}


@pytest.mark.parametrize("value", ["two\nlines", "nul\0", "${HOME}", "bell\x07"])
def test_a_value_that_the_file_cannot_hold_is_refused(path: Path, value: str) -> None:
    with pytest.raises(SettingsError, match=r"characters that \.env cannot hold") as refused:
        update_env_file(path, {"TOKEN": value})
    assert value not in str(refused.value)
    assert not path.exists()


def test_a_new_file_is_private_under_any_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        update_env_file(path, {"TOKEN": "new"})
    finally:
        os.umask(before)
    assert mode(path) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [".env"]


def test_the_folder_is_created_for_its_user_alone(tmp_path: Path) -> None:
    update_env_file(tmp_path / "countersign" / ".env", {"TOKEN": "new"})
    assert mode(tmp_path / "countersign") == 0o700


def test_a_link_stays_and_its_target_changes(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "secrets" / "bot.env"
    target.parent.mkdir()
    target.write_text("TOKEN=old\n")
    path.symlink_to(target)
    update_env_file(path, {"TOKEN": "new"})
    assert path.is_symlink()
    assert target.read_text() == "TOKEN=new\n"
    assert mode(target) == 0o600


def test_a_link_to_nothing_or_to_no_file_is_refused(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "missing")
    with pytest.raises(SettingsError, match="a link to nothing"):
        update_env_file(path, {"TOKEN": "new"})
    path.unlink()
    path.symlink_to(tmp_path)
    with pytest.raises(SettingsError, match="is not a file"):
        update_env_file(path, {"TOKEN": "new"})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_link_to_a_file_of_another_user_gets_no_secret(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "theirs"
    target.write_text("")
    os.chown(target, 12345, 12345)
    path.symlink_to(target)
    with pytest.raises(SettingsError, match="of another user"):
        update_env_file(path, {"TOKEN": "new"})
    assert target.read_text() == ""


def test_a_file_that_cannot_be_read_stays_as_it_is(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="cannot be read"):
        update_env_file(path, {"TOKEN": "new"})
    assert path.read_bytes() == b"\xff\xfe"


def test_a_failed_write_leaves_the_old_file_and_no_other(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("TOKEN=old\n")

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(SettingsError, match="No space left on device"):
        update_env_file(path, {"TOKEN": "new"})
    assert path.read_text() == "TOKEN=old\n"
    assert [entry.name for entry in path.parent.iterdir()] == [".env"]
