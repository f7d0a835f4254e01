"""The state of files on disk depends only on their content, not on the way of saving."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bot.app.operator_files import MISSING, FileState, FileWatch, changed_paths

LONG_AFTER = 4_000_000_000.0


def watch_of(*paths: Path, at: float = LONG_AFTER) -> FileWatch:
    return FileWatch(lambda: paths, clock=lambda: at)


def test_a_save_is_a_change_only_if_the_content_is_another(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    watch = watch_of(file)
    assert watch.look() == {file: MISSING}
    file.write_text("a = 1")
    first = watch.look()
    file.write_text("a = 1")
    os.utime(file, (1, 1))
    assert watch.look() == first
    file.write_text("a = 2")
    assert changed_paths(first, watch.look()) == [file]


def test_an_editor_that_renames_or_deletes_and_writes_anew_changes_the_file_like_any_other(tmp_path: Path) -> None:
    file, other = tmp_path / "policy.toml", tmp_path / ".policy.toml.swp"
    file.write_text("a = 1")
    watch = watch_of(file)
    first = watch.look()
    other.write_text("a = 2")
    other.replace(file)
    second = watch.look()
    assert changed_paths(first, second) == [file]
    file.unlink()
    assert watch.look() == {file: MISSING}
    file.write_text("a = 2")
    assert watch.look() == second


def test_the_swapped_folder_of_a_kubernetes_volume_changes_all_of_its_files_at_once(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "policy.toml").write_text(f"a = {version}")
        (tmp_path / f"..{version}" / "prompt.md").write_text("The same.")
    (tmp_path / "..data").symlink_to("..1")
    files = [tmp_path / name for name in ("policy.toml", "prompt.md")]
    for file in files:
        file.symlink_to(Path("..data") / file.name)
    watch = watch_of(*files)
    first = watch.look()
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    assert changed_paths(first, watch.look()) == files[:1]


def test_a_second_save_within_one_tick_of_the_clock_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.app.operator_files._stamp", lambda _status: (0,))
    file = tmp_path / "policy.toml"
    file.write_text("a = 1")
    watch = watch_of(file, at=file.stat().st_mtime + 1)
    first = watch.look()
    file.write_text("a = 2")
    assert changed_paths(first, watch.look()) == [file]


def test_a_file_that_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("a = 1")
    watch = watch_of(file)
    first = watch.look()
    monkeypatch.setattr(Path, "read_bytes", lambda _path: pytest.fail("read again"))
    assert watch.look() == first


def test_a_path_that_is_no_readable_file_has_a_state_and_is_not_waited_for(tmp_path: Path) -> None:
    pipe, folder, circle = (tmp_path / name for name in ("pipe", "folder", "circle"))
    os.mkfifo(pipe)
    folder.mkdir()
    circle.symlink_to(circle)
    below = tmp_path / "file" / "below"
    (tmp_path / "file").write_text("")
    states = watch_of(pipe, folder, circle, below).look()
    assert states[below] == MISSING
    assert states[pipe] == states[folder] != MISSING
    assert states[circle] not in (MISSING, states[pipe])


def test_a_file_that_everybody_may_write_to_says_so(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("a = 1")
    watch = watch_of(file)
    file.chmod(0o664)
    first = watch.look()
    file.chmod(0o666)
    second = watch.look()
    assert (first[file].is_open_to_all, second[file].is_open_to_all) == (False, True)
    assert changed_paths(first, second) == []
    assert isinstance(second[file], FileState)
