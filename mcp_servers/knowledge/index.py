"""Full-text index of documents and their sections in one SQLite database.

It can be rebuilt from the folder at any time. An index in a file makes the next start faster, and several servers
may share it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_servers.knowledge.folder import File, Refused
from mcp_servers.knowledge.sections import Document
from mcp_servers.knowledge.tokenizer import Question, index_terms

APPLICATION_ID = 0x436B6E6F
"""Application id of an index, so that no other database is overwritten."""

VERSION = f"1, Unicode {unicodedata.unidata_version}"
"""Version of the index format. An index of another version is rebuilt."""

LOCK_PATIENCE = 10.0
"""Seconds to wait for another server that writes the same file."""

_TITLE, _HEADINGS, _TEXT = 6.0, 3.0, 1.0
"""BM25 weights of a match by column."""

_SCHEMA = (
    "CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    """CREATE TABLE documents (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, title TEXT NOT NULL, modified REAL NOT NULL,
        mark TEXT NOT NULL, problem TEXT NOT NULL, digest BLOB NOT NULL
    )""",
    """CREATE TABLE sections (
        number INTEGER PRIMARY KEY, document INTEGER NOT NULL, position INTEGER NOT NULL, slug TEXT NOT NULL,
        headings TEXT NOT NULL, text TEXT NOT NULL, UNIQUE (document, slug)
    )""",
    """CREATE VIRTUAL TABLE words USING fts5 (
        title, headings, text, content='', tokenize='porter unicode61 remove_diacritics 2'
    )""",
    f"INSERT INTO words (words, rank) VALUES ('rank', 'bm25({_TITLE}, {_HEADINGS}, {_TEXT})')",  # noqa: S608
)

_PASSAGE = "documents.id, documents.title, documents.modified, sections.slug, sections.headings, sections.text"


@dataclass(frozen=True, slots=True)
class Known:
    """Indexed state of a file, see `File`. `digest` is of its text."""

    mark: str
    problem: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Listed:
    """Document without its text. `modified` is in epoch seconds."""

    id: str
    title: str
    modified: float
    sections: int


@dataclass(frozen=True, slots=True)
class Passage:
    """Section, or a whole document with empty `slug` and `headings`."""

    document: str
    title: str
    modified: float
    slug: str
    headings: tuple[str, ...]
    text: str

    @property
    def id(self) -> str:
        """Id for `read`."""
        return f"{self.document}#{self.slug}" if self.slug else self.document


class Index:
    """Index of one folder. Use it from one thread at a time."""

    def __init__(self, path: Path | None, folder: Path) -> None:
        """Open the index in a file, or create one in memory if `path` is None. Raises Refused."""
        self._place = f"The index {path}" if path else "The index"
        with self._map_errors():
            self._database = _connect(path)
            try:
                self._prepare(path, str(folder.absolute()))
            except BaseException:
                self._database.close()
                raise

    def known(self) -> Mapping[str, Known]:
        """Return the indexed state of each file by id. Raises Refused."""
        with self._map_errors():
            rows = self._database.execute("SELECT id, mark, problem, digest FROM documents")
            return {row[0]: Known(*row[1:]) for row in rows}

    def known_of(self, document: str) -> Known | None:
        """Return the indexed state of one file. Raises Refused."""
        with self._map_errors():
            row = self._database.execute(
                "SELECT mark, problem, digest FROM documents WHERE id = ?", (document,)
            ).fetchone()
            return Known(*row) if row else None

    def put(self, file: File, document: Document, digest: bytes) -> None:
        """Replace a file in the index. A file that cannot be a document is stored with its problem and without
        sections, so that it is not read again. Raises Refused.
        """
        with self._map_errors():
            self._begin()
            self._remove(file.id)
            number = self._database.execute(
                "INSERT INTO documents (id, title, modified, mark, problem, digest) VALUES (?, ?, ?, ?, ?, ?)",
                (file.id, document.title, file.modified, file.mark, file.problem, digest),
            ).lastrowid
            for position, section in enumerate(document.sections):
                headings = "\n".join(section.headings)
                row = self._database.execute(
                    "INSERT INTO sections (document, position, slug, headings, text) VALUES (?, ?, ?, ?, ?)",
                    (number, position, section.slug, headings, section.text),
                ).lastrowid
                self._database.execute(
                    "INSERT INTO words (rowid, title, headings, text) VALUES (?, ?, ?, ?)",
                    (row, *_index_columns(file.id, document.title, headings, section.text)),
                )

    def renew(self, file: File) -> None:
        """Update mark and time of a file whose text is unchanged. Raises Refused."""
        with self._map_errors():
            self._begin()
            self._database.execute(
                "UPDATE documents SET mark = ?, modified = ? WHERE id = ?", (file.mark, file.modified, file.id)
            )

    def remove(self, document: str) -> None:
        """Remove a document. Raises Refused."""
        with self._map_errors():
            self._begin()
            self._remove(document)

    def commit(self) -> None:
        """Commit the changes since the last commit. Raises Refused."""
        with self._map_errors():
            if self._database.in_transaction:
                self._database.execute("COMMIT")

    def search(self, question: Question, most: int) -> Sequence[Passage]:
        """Return the best matching sections, best first. Raises Refused."""
        with self._map_errors():
            rows = self._database.execute(
                f"""
                SELECT {_PASSAGE} FROM
                    (SELECT rowid AS number, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?) AS found
                    JOIN sections USING (number) JOIN documents ON documents.number = sections.document
                ORDER BY found.rank, documents.id, sections.position
                """,  # noqa: S608 - columns named in this module
                (question.expression, most),
            )
            return [_passage(row) for row in rows]

    def document(self, document: str) -> Passage | None:
        """Return a whole document. Raises Refused."""
        with self._map_errors():
            rows = self._database.execute(
                f"""
                SELECT {_PASSAGE} FROM documents JOIN sections ON sections.document = documents.number
                WHERE documents.id = ? ORDER BY sections.position
                """,  # noqa: S608 - columns named in this module
                (document,),
            ).fetchall()
        if not rows:
            return None
        first = _passage(rows[0])
        return Passage(first.document, first.title, first.modified, "", (), "".join(row[-1] for row in rows))

    def section(self, document: str, slug: str) -> Passage | None:
        """Return a section of a document. Raises Refused."""
        with self._map_errors():
            row = self._database.execute(
                f"""
                SELECT {_PASSAGE} FROM documents JOIN sections ON sections.document = documents.number
                WHERE documents.id = ? AND sections.slug = ?
                """,  # noqa: S608 - columns named in this module
                (document, slug),
            ).fetchone()
        return _passage(row) if row else None

    def slugs(self, document: str) -> Sequence[str]:
        """Return the slugs of a document's sections, in order. Raises Refused."""
        with self._map_errors():
            rows = self._database.execute(
                """
                SELECT slug FROM sections JOIN documents ON documents.number = sections.document
                WHERE documents.id = ? ORDER BY position
                """,
                (document,),
            )
            return [row[0] for row in rows]

    def listed(self, after: str, most: int) -> Sequence[Listed]:
        """Return documents sorted by id, those after an id. Raises Refused."""
        with self._map_errors():
            rows = self._database.execute(
                """
                SELECT id, title, modified, (SELECT count(*) FROM sections WHERE document = documents.number)
                FROM documents WHERE problem = '' AND id > ? ORDER BY id LIMIT ?
                """,
                (after, most),
            )
            return [Listed(*row) for row in rows]

    def left_out(self, most: int) -> Sequence[tuple[str, str]]:
        """Return files that are not documents, with their problems. Raises Refused."""
        with self._map_errors():
            rows = self._database.execute(
                "SELECT id, problem FROM documents WHERE problem <> '' ORDER BY id LIMIT ?", (most,)
            )
            return [(row[0], row[1]) for row in rows]

    def counts(self) -> tuple[int, int]:
        """Return the number of documents, and of files that are left out. Raises Refused."""
        with self._map_errors():
            row = self._database.execute("SELECT count(*), count(nullif(problem, '')) FROM documents").fetchone()
            return row[0] - row[1], row[1]

    def interrupt(self) -> None:
        """Interrupt a query of another thread, which raises Refused there."""
        self._database.interrupt()

    def close(self) -> None:
        """Close the database. Uncommitted changes are lost."""
        self._database.close()

    def _begin(self) -> None:
        if not self._database.in_transaction:
            self._database.execute("BEGIN IMMEDIATE")

    def _remove(self, document: str) -> None:
        rows = self._database.execute(
            """
            SELECT sections.number, title, headings, text
            FROM sections JOIN documents ON documents.number = sections.document WHERE documents.id = ?
            """,
            (document,),
        ).fetchall()
        for number, title, headings, text in rows:
            self._database.execute(
                "INSERT INTO words (words, rowid, title, headings, text) VALUES ('delete', ?, ?, ?, ?)",
                (number, *_index_columns(document, title, headings, text)),
            )
            self._database.execute("DELETE FROM sections WHERE number = ?", (number,))
        self._database.execute("DELETE FROM documents WHERE id = ?", (document,))

    def _prepare(self, path: Path | None, folder: str) -> None:
        """Create the tables, or check that they belong to this folder. The check needs no lock, which another
        server may hold for long. Raises Refused or sqlite3.Error.
        """
        self._database.execute("BEGIN")
        ready = self._is_ready(path, folder)
        self._database.execute("COMMIT")
        if not ready:
            self._database.execute("BEGIN IMMEDIATE")
            if not self._is_ready(path, folder):
                self._make(folder)
            self._database.execute("COMMIT")
        if path is not None:
            # With WAL readers and writers do not block each other. Some file systems do not support it.
            with contextlib.suppress(sqlite3.OperationalError):
                self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")

    def _is_ready(self, path: Path | None, folder: str) -> bool:
        """Return True if the tables exist in this version. Raises Refused if the file is another database."""
        (tables,) = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            return False
        (mark,) = self._database.execute("PRAGMA application_id").fetchone()
        if mark != APPLICATION_ID:
            raise Refused(
                f"KNOWLEDGE_DATABASE is {path}, which is another program's database and was left as it is. "
                "Name a file that does not exist yet."
            )
        about = dict(self._database.execute("SELECT name, value FROM about"))
        if about["folder"] != folder:
            raise Refused(
                f"KNOWLEDGE_DATABASE is {path}, which holds the index of {about['folder']} and not of {folder}. "
                "Name another file for this folder, or delete that one if its folder has moved: it is made anew."
            )
        return bool(about["version"] == VERSION)

    def _make(self, folder: str) -> None:
        for table in ("words", "sections", "documents", "about"):
            self._database.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _SCHEMA:
            self._database.execute(statement)
        self._database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self._database.execute("INSERT INTO about VALUES ('version', ?), ('folder', ?)", (VERSION, folder))

    @contextlib.contextmanager
    def _map_errors(self) -> Iterator[None]:
        """Map SQLite errors to Refused and roll back an open transaction."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._roll_back()
            raise Refused(f"{self._place} cannot be used ({error}). {_fix(str(error))}") from error

    def _roll_back(self) -> None:
        with contextlib.suppress(AttributeError, sqlite3.Error):
            self._database.rollback()


def _connect(path: Path | None) -> sqlite3.Connection:
    """Connect. A new file is readable by its owner only, because it holds all texts."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    return sqlite3.connect(path or ":memory:", timeout=LOCK_PATIENCE, isolation_level=None, check_same_thread=False)


def _fix(trouble: str) -> str:
    if "no such module" in trouble:
        return "The SQLite of this Python has no full-text search (FTS5): use a Python that has it."
    if "locked" in trouble:
        return f"Another process has been writing it for {LOCK_PATIENCE:.0f} seconds: try again, or end that process."
    return "Check its permissions and the space on the disk. If it is damaged, delete it: it is made anew."


def _index_columns(document: str, title: str, headings: str, text: str) -> tuple[str, str, str]:
    """Return the columns of a section in the word index. A deletion needs the same values, because the index stores
    no texts.
    """
    return index_terms(f"{title} {document}"), index_terms(headings), index_terms(text)


def _passage(row: tuple[Any, ...]) -> Passage:
    document, title, modified, slug, headings, text = row
    return Passage(document, title, modified, slug, tuple(headings.split("\n")) if headings else (), text)
