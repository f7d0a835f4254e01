"""The folder and its index: included files, excluded files, and changes of files."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_servers.knowledge import folder, index
from mcp_servers.knowledge.folder import LARGEST_FILE, File, Folder, Refused
from mcp_servers.knowledge.library import LONGEST_PAGE, Library
from mcp_servers.knowledge.tokenizer import question


@contextlib.contextmanager
def library(path: Path, database: Path | None = None) -> Iterator[Library]:
    """Return an up-to-date library of the folder."""
    with contextlib.closing(Library(path, database)) as opened:
        refresh(opened)
        yield opened


def refresh(opened: Library) -> None:
    steps = opened.refresh()
    while opened.advance(steps):
        pass


def passage_ids(opened: Library, text: str) -> list[str]:
    wanted = question(text)
    assert wanted is not None
    return [passage.id for passage in opened.search(wanted, 20)]


def documents(opened: Library) -> list[str]:
    return [document.id for document in opened.listing("", 100).documents]


def left_out(opened: Library) -> dict[str, str]:
    return dict(opened.listing("", 100).left_out)


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_changed_added_and_removed_files_are_noticed(tmp_path: Path) -> None:
    changed = write(tmp_path / "changed.md", "# One\nthe kettle\n\n# Two\nthe pot\n")
    removed = write(tmp_path / "sub" / "removed.txt", "the kettle")
    with library(tmp_path) as opened:
        assert passage_ids(opened, "kettle") == ["sub/removed.txt#start", "changed.md#one"]
        changed.write_text("# Three\nthe teapot\n")
        removed.unlink()
        write(tmp_path / "new" / "deep" / "added.markdown", "the kettle")
        refresh(opened)
        assert passage_ids(opened, "kettle pot") == ["new/deep/added.markdown#start"]
        assert passage_ids(opened, "teapot") == ["changed.md#three"]
        assert documents(opened) == ["changed.md", "new/deep/added.markdown"]


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "page.md", "the kettle")
    now = path.stat().st_ctime + 60
    read: list[str] = []
    text = Folder.text

    def reading(self: Folder, file: File) -> str:
        read.append(file.id)
        return text(self, file)

    monkeypatch.setattr(Folder, "text", reading)
    with contextlib.closing(Library(tmp_path, None, now=lambda: now)) as opened:
        refresh(opened)
        refresh(opened)
        assert read == ["page.md"]
        path.chmod(0o600)
        refresh(opened)
        assert (read, passage_ids(opened, "kettle")) == (["page.md"] * 2, ["page.md#start"])


def test_a_young_file_is_read_again_since_its_time_and_size_may_stay_as_they_were(tmp_path: Path) -> None:
    path = write(tmp_path / "page.md", "the kettle")
    (young,) = Folder(tmp_path, now=lambda: path.stat().st_ctime + 1).files()
    (old,) = Folder(tmp_path, now=lambda: path.stat().st_ctime + 60).files()
    assert young.mark == ""
    assert old.mark != ""


def test_only_files_in_the_folder_are_read(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside" / "secret.md", "the secret")
    inside = tmp_path / "inside"
    write(inside / "page.md", "the page")
    (inside / "out.md").symlink_to(outside)
    (inside / "relative.md").symlink_to("../outside/secret.md")
    (inside / "folder.md").symlink_to(outside.parent)
    (inside / "folder").symlink_to(outside.parent)
    (inside / "again").symlink_to(inside)
    (inside / "nothing.md").symlink_to("gone.md")
    (inside / "loop.md").symlink_to("loop.md")
    (inside / "linked.md").symlink_to("page.md")
    os.mkfifo(inside / "pipe.md")
    write(inside / ".hidden.md", "the secret")
    write(inside / ".git" / "x.md", "the secret")
    write(inside / "program.py", "the secret")
    with library(inside) as opened:
        assert passage_ids(opened, "secret") == []
        assert documents(opened) == ["linked.md", "page.md"]
        reasons = left_out(opened)
        for name in ("out.md", "relative.md", "folder.md"):
            assert reasons.pop(name) == "it is a link that leads out of the folder"
        assert sorted(reasons) == ["loop.md", "nothing.md"]


def test_a_folder_swapped_for_a_link_meanwhile_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "outside" / "page.md", "the secret")
    inside = tmp_path / "inside"
    write(inside / "sub" / "page.md", "the page")
    with contextlib.closing(Library(inside, None)) as opened:
        (file,) = Folder(inside).files()
        (inside / "sub").rename(tmp_path / "moved")
        (inside / "sub").symlink_to(tmp_path / "outside")
        with pytest.raises(folder.NotReadNow, match="cannot be read"):
            Folder(inside).text(file)
        refresh(opened)
        assert documents(opened) == []


def test_the_folder_itself_may_be_a_link_that_is_changed(tmp_path: Path) -> None:
    write(tmp_path / "v1" / "page.md", "the kettle")
    write(tmp_path / "v2" / "page.md", "the teapot")
    link = tmp_path / "current"
    link.symlink_to("v1")
    with library(link, tmp_path / "index.db") as opened:
        assert passage_ids(opened, "kettle") == ["page.md#start"]
        link.unlink()
        link.symlink_to("v2")
        refresh(opened)
        assert passage_ids(opened, "kettle teapot") == passage_ids(opened, "teapot") == ["page.md#start"]
    with library(link, tmp_path / "index.db") as opened:
        assert documents(opened) == ["page.md"]


@pytest.mark.parametrize(
    "wanted",
    ["../outside.md", "/etc/passwd", "sub/../page.md", "./page.md", "page.md#", "#", "", "\ud800", "page.md\x00", "%"],
)
def test_an_id_is_looked_up_and_never_a_path(wanted: str, tmp_path: Path) -> None:
    write(tmp_path / "outside.md", "the secret")
    write(tmp_path / "inside" / "page.md", "the page")
    with library(tmp_path / "inside") as opened, pytest.raises(Refused, match=r"There is no document|has no section"):
        opened.read(wanted, 1)


def test_a_name_may_have_the_separator_of_ids(tmp_path: Path) -> None:
    write(tmp_path / "c#.md", "# One\nabout c#\n")
    write(tmp_path / "cafe\u0301 \u3000承認.md", "# 期限\n三日")
    with library(tmp_path) as opened:
        assert opened.read("c#.md", 1).text == "# One\nabout c#\n"
        assert opened.read("c#.md#one", 1).passage.headings == ("One",)
        assert passage_ids(opened, "期限") == ["café \u3000承認.md#期限"]
        assert opened.read("cafe\u0301 \u3000承認.md#期限", 1).text.endswith("三日")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("naïve 承認".encode(), "naïve 承認"),
        (b"\xef\xbb\xbfmarked", "marked"),
        ("承認".encode("utf-16"), "承認"),
        ("承認".encode("utf-32"), "承認"),
        ("承認".encode("utf-16-be").join((b"\xfe\xff", b"")), "承認"),
        (b"na\xefve", "na\ufffdve"),
        (b"one\r\ntwo\rthree", "one\ntwo\nthree"),
        (b"bell\x07 escape\x1b[31m", "bell escape[31m"),
        (b"", ""),
    ],
)
def test_encodings_are_understood_or_tolerated(content: bytes, text: str, tmp_path: Path) -> None:
    write(tmp_path / "page.txt", content)
    with library(tmp_path) as opened:
        assert opened.read("page.txt", 1).text == text


def test_a_file_that_is_no_document_is_left_out_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "binary.txt", b"MZ\x00\x01")
    write(tmp_path / "large.md", b"x" * (LARGEST_FILE + 1))
    write(tmp_path / "largest.md", b"x " * (LARGEST_FILE // 2))
    write(tmp_path / "two\nlines.md", "x")
    (tmp_path / os.fsdecode(b"latin\xe9.md")).write_text("x")
    with library(tmp_path) as opened:
        assert documents(opened) == ["largest.md"]
        assert left_out(opened) == {
            "binary.txt": "it is not text",
            "large.md": "it has 2,097,153 bytes, and 2,097,152 is the most",
            "latin\\udce9.md": "its name cannot be written",
            "two\\nlines.md": "its name cannot be written",
        }
        assert passage_ids(opened, "binary") == []
        write(tmp_path / "binary.txt", "mended")
        refresh(opened)
        assert passage_ids(opened, "mended") == ["binary.txt#start"]


def test_a_file_that_could_not_be_read_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "page.md", "the kettle")
    with contextlib.closing(Library(tmp_path, None)) as opened:
        with monkeypatch.context() as broken:
            broken.setattr(Folder, "_open_within", lambda self, path: os.open(tmp_path / "gone", os.O_RDONLY))
            refresh(opened)
            refresh(opened)
        assert left_out(opened) == {"page.md": "it cannot be read (No such file or directory)"}
        refresh(opened)
        assert (documents(opened), left_out(opened)) == (["page.md"], {})


def test_a_folder_that_is_gone_is_an_error_and_nothing_is_forgotten(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "page.md", "the kettle")
    with library(tmp_path / "folder") as opened:
        (tmp_path / "folder").rename(tmp_path / "away")
        with pytest.raises(Refused, match=r"folder cannot be read \(No such file or directory\)\. Bring it back"):
            refresh(opened)
        (tmp_path / "away").rename(tmp_path / "folder")
        refresh(opened)
        assert passage_ids(opened, "kettle") == ["page.md#start"]


def test_there_is_a_limit_to_the_number_of_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "MOST_FILES", 2)
    for n in range(3):
        write(tmp_path / f"{n}.md", "x")
    with contextlib.closing(Library(tmp_path, None)) as opened, pytest.raises(Refused, match="more than 2 documents"):
        refresh(opened)


def test_titles_count_most_and_then_headings(tmp_path: Path) -> None:
    filler = "This sentence is about something else altogether. " * 3
    write(tmp_path / "a.md", f"# Pots\n{filler}\n## Lids\nA kettle has a lid. {filler}")
    write(tmp_path / "b.md", f"# Pans\n{filler}\n## Kettle\n{filler}")
    write(tmp_path / "c.md", f"# Kettle\n{filler}")
    write(tmp_path / "d.md", f"# Spoons\n{filler}")
    with library(tmp_path) as opened:
        assert passage_ids(opened, "what about the kettle") == ["c.md#kettle", "b.md#kettle", "a.md#lids"]


def test_long_texts_come_in_pages_that_are_the_whole_text(tmp_path: Path) -> None:
    text = "# Long\n\n" + "".join(f"Paragraph {n} says little.\n\n" for n in range(1000))
    write(tmp_path / "long.md", text)
    with library(tmp_path) as opened:
        pages = [opened.read("long.md", n) for n in range(1, opened.read("long.md", 1).pages + 1)]
        assert "".join(page.text for page in pages) == text
        assert all(len(page.text) <= LONGEST_PAGE for page in pages)
        with pytest.raises(Refused, match=r"long\.md has no page 5: it ends with page 4\."):
            opened.read("long.md", 5)


def test_a_kept_index_knows_everything_without_reading_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = write(tmp_path / "folder" / "page.md", "the kettle").stat().st_ctime + 60
    gone = write(tmp_path / "folder" / "gone.md", "the kettle")
    database = tmp_path / "new" / "index.db"
    with contextlib.closing(Library(tmp_path / "folder", database, now=lambda: now)) as opened:
        refresh(opened)
    assert oct(database.stat().st_mode & 0o777) == "0o600"
    gone.unlink()
    monkeypatch.setattr(Folder, "text", lambda self, file: pytest.fail(f"{file.id} was read again"))
    with contextlib.closing(Library(tmp_path / "folder", database, now=lambda: now)) as opened:
        refresh(opened)
        assert passage_ids(opened, "kettle") == ["page.md#start"]


def test_two_servers_may_share_an_index(tmp_path: Path) -> None:
    database = tmp_path / "index.db"
    page = write(tmp_path / "folder" / "page.md", "the kettle")
    with library(tmp_path / "folder", database) as one, library(tmp_path / "folder", database) as other:
        page.write_text("the teapot")
        refresh(one)
        assert passage_ids(other, "teapot") == ["page.md#start"]
        page.unlink()
        refresh(other)
        refresh(one)
        assert documents(one) == documents(other) == []


def test_an_index_of_another_version_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "index.db"
    write(tmp_path / "folder" / "page.md", "the kettle")
    with monkeypatch.context() as older:
        older.setattr(index, "VERSION", "0")
        with library(tmp_path / "folder", database):
            pass
    with contextlib.closing(Library(tmp_path / "folder", database)) as opened:
        assert documents(opened) == []
        refresh(opened)
        assert passage_ids(opened, "kettle") == ["page.md#start"]


def test_an_index_of_another_folder_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    with library(tmp_path / "one", tmp_path / "index.db"):
        pass
    with pytest.raises(Refused, match=r"holds the index of .+/one and not of .+/other\. Name another file"):
        Library(tmp_path / "other", tmp_path / "index.db")


def test_another_programs_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with contextlib.closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE documents (x)")
    before = path.read_bytes()
    with pytest.raises(Refused, match="is another program's database and was left as it is"):
        Library(tmp_path, path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "letter.txt", "Dear reader, " * 100)
    with pytest.raises(Refused, match=r"cannot be used \(file is not a database\)\. .+ delete it: it is made anew"):
        Library(tmp_path, path)
    assert path.read_text() == "Dear reader, " * 100


def test_an_index_that_cannot_be_written_is_an_error_with_cause_and_fix(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    with pytest.raises(Refused, match=r"index.db cannot be used \(.+\)\. Check its permissions and the space"):
        Library(tmp_path, tmp_path / "file" / "index.db")


def test_a_python_without_full_text_search_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_SCHEMA", ["CREATE VIRTUAL TABLE words USING fts5_that_is_not_there (text)"])
    with pytest.raises(Refused, match=r"has no full-text search \(FTS5\): use a Python that has it"):
        Library(tmp_path, None)


def test_a_writer_that_does_not_let_go_is_named_as_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LOCK_PATIENCE", 0.05)
    write(tmp_path / "folder" / "page.md", "the kettle")
    database = tmp_path / "index.db"
    with (
        contextlib.closing(Library(tmp_path / "folder", database)) as opened,
        contextlib.closing(sqlite3.connect(database, isolation_level=None)) as writer,
    ):
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(Refused, match="Another process has been writing it"):
            refresh(opened)
        writer.execute("COMMIT")
        refresh(opened)
        assert passage_ids(opened, "kettle") == ["page.md#start"]
