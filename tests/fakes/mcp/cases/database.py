"""A database as two tools, behind a user name and a password: one reads, the other adds a row."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from tests.fakes.mcp.cases.endpoint import Doorkeeper, basic, serve_app

SCHEMA = "create table customers (name text primary key, city text not null)"


@dataclass(frozen=True)
class Database:
    """Address of the server; the rows are read past it."""

    url: str
    file: Path
    door: Doorkeeper

    @property
    def rows(self) -> list[tuple[str, str]]:
        """Return all customers."""
        with closing(sqlite3.connect(self.file)) as connection:
            return connection.execute("select name, city from customers order by name").fetchall()


@contextmanager
def database(file: Path, user: str, password: str) -> Iterator[Database]:
    """Return the server, which requires the password. The file is made with one customer in it."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(SCHEMA)
        connection.execute("insert into customers values ('Ada', 'London')")
    server = MCPServer("database", version="1.0.0", log_level="ERROR")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def query(sql: str) -> list[list[str]]:
        """Rows of the table customers (name, city)."""
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
            return [[str(value) for value in row] for row in connection.execute(sql)]

    @server.tool(annotations=ToolAnnotations(destructive_hint=False, idempotent_hint=False))
    def insert(name: str, city: str) -> str:
        """Add a customer."""
        try:
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("insert into customers values (?, ?)", (name, city))
        except sqlite3.IntegrityError:
            raise ToolError(f"{name} is a customer already") from None
        return f"Added {name}"

    door = Doorkeeper(server.streamable_http_app(), "Authorization", basic(user, password), 'Basic realm="database"')
    with serve_app(door) as address:
        yield Database(f"{address}/mcp", file, door)
