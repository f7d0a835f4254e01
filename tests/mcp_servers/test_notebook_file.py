from __future__ import annotations

import fcntl
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mcp_servers.notes.note import MOST_NOTES, Note, Notebook, Refused
from mcp_servers.notes.notebook_file import NotebookFile

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def adding(text: str, file: NotebookFile) -> Notebook:
    return file.change(lambda book: book.with_note(text, NOW))


def test_a_missing_folder_is_made_and_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "notes.json"
    adding("secret", NotebookFile(path))
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    assert sorted(each.name for each in path.parent.iterdir()) == ["notes.json", "notes.json.lock"]


def test_written_notes_are_read_again(tmp_path: Path) -> None:
    file = NotebookFile(tmp_path / "notes.json")
    assert file.read() == Notebook()
    written = adding("買い物 🛒\nmilk", file)
    assert file.read() == written == Notebook((Note(1, "買い物 🛒\nmilk", NOW),), 2)


def test_a_half_written_file_of_a_killed_writer_does_no_harm(tmp_path: Path) -> None:
    file = NotebookFile(tmp_path / "notes.json")
    adding("first", file)
    (tmp_path / "notes.json.new").write_text('{"version"')
    assert [note.text for note in adding("second", file).notes] == ["first", "second"]


def test_a_link_stays_a_link_and_the_file_it_names_is_written(tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "real.json"
    link = tmp_path / "notes.json"
    link.symlink_to(real)
    adding("kept", NotebookFile(link))
    assert link.is_symlink()
    assert "kept" in real.read_text()


def test_a_change_that_is_refused_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    adding("kept", NotebookFile(path))
    before = path.stat().st_mtime_ns, path.read_bytes()
    with pytest.raises(Refused, match="no note #7"):
        NotebookFile(path).change(lambda book: book.without(7))
    assert (path.stat().st_mtime_ns, path.read_bytes()) == before


def test_a_writer_waits_for_another_one(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    with (tmp_path / "notes.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        writer = threading.Thread(target=adding, args=("late", NotebookFile(path)))
        writer.start()
        writer.join(0.1)
        assert writer.is_alive()
        assert not path.exists()
    writer.join(5)
    assert "late" in path.read_text()


def test_a_writer_does_not_wait_for_ever(tmp_path: Path) -> None:
    with (tmp_path / "notes.json.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Refused, match="Another process has been writing"):
            adding("late", NotebookFile(tmp_path / "notes.json", lock_patience=0.05))


def test_a_place_that_cannot_be_written_is_an_error_with_cause_and_fix(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match=r"cannot be written \(.+\)\. Check the folder's permissions .+ set NOTES_FILE"):
        adding("x", NotebookFile(tmp_path / "file" / "notes.json"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(Refused, match=r"cannot be read \(Is a directory\)"):
        NotebookFile(tmp_path / "folder").read()


def test_there_is_a_limit_to_the_number_of_notes() -> None:
    full = Notebook(tuple(Note(n, "x", NOW) for n in range(1, MOST_NOTES + 1)), MOST_NOTES + 1)
    with pytest.raises(Refused, match="Delete some first"):
        full.with_note("one more", NOW)
    assert full.without(1).with_note("one more", NOW).notes[-1].id == MOST_NOTES + 1


def test_searching_wants_every_word_and_is_newest_first() -> None:
    book = Notebook()
    for text in ("Tea and coffee", "coffee beans", "\uff43offee TEA"):
        book = book.with_note(text, NOW)
    assert [note.id for note in book.search("COFFEE tea")] == [3, 1]
    assert book.search("cocoa") == []
