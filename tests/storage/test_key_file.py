from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bot.errors import SettingsError
from bot.storage import encryption
from bot.storage.encryption import generate_key, load_or_create_key, make_box


def test_the_first_look_makes_a_key_for_its_owner_alone_and_the_next_finds_it(tmp_path: Path) -> None:
    first = load_or_create_key(tmp_path / "data" / "countersign.db")
    assert first.new
    assert first.path == tmp_path / "data" / "countersign.db.key"
    assert first.path.stat().st_mode & 0o777 == 0o600
    again = load_or_create_key(tmp_path / "data" / "countersign.db")
    assert (again.text, again.new) == (first.text, False)
    assert make_box(again.text).open(make_box(first.text).seal("secret", "s"), "s") == "secret"
    assert [each.name for each in first.path.parent.iterdir()] == ["countersign.db.key"]


def test_the_key_is_not_printed(tmp_path: Path) -> None:
    kept = load_or_create_key(tmp_path / "a.db")
    assert kept.text not in f"{kept} {kept!r}"


def test_processes_that_make_it_at_once_end_with_the_same_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(load_or_create_key, [tmp_path / "a.db"] * 32))
    assert len({each.text for each in kept}) == 1
    assert sum(each.new for each in kept) == 1


def test_a_process_that_comes_second_takes_the_key_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs: list[str] = []

    def create_key_elsewhere() -> str:
        look = f"from pathlib import Path; from bot.storage.encryption import load_or_create_key; \
print(load_or_create_key(Path({str(tmp_path / 'a.db')!r})).text)"
        done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True, timeout=60)
        theirs.append(done.stdout.strip())
        return generate_key()

    monkeypatch.setattr(encryption, "generate_key", create_key_elsewhere)
    ours = load_or_create_key(tmp_path / "a.db")
    assert (theirs, ours.new) == ([ours.text], False)


@pytest.mark.parametrize(
    ("holds", "said"), [(b"", "is empty"), (b"hunter2\n", "is not 32 bytes"), (b"\xff", "not text")]
)
def test_a_file_without_a_key_is_refused_and_left_as_it_is(tmp_path: Path, holds: bytes, said: str) -> None:
    file = tmp_path / "a.db.key"
    file.write_bytes(holds)
    with pytest.raises(SettingsError, match=said) as caught:
        load_or_create_key(tmp_path / "a.db")
    assert str(file) in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert file.read_bytes() == holds


def test_a_folder_that_cannot_be_used_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    with pytest.raises(SettingsError, match="cannot be stored") as caught:
        load_or_create_key(tmp_path / "data" / "a.db")
    assert "MCP_ENCRYPTION_KEY" in caught.value.fix
