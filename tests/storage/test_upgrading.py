"""Databases of earlier releases, brought to this one's schema."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from bot.domain.audit import NO_HASH, AuditQuery
from bot.domain.completions import Usage
from bot.domain.servers import HttpTransport, ServerConfig, ServerRecord
from bot.domain.usage import Spent, UsageQuery
from bot.storage import schema
from bot.storage.archive import SqlArchive
from bot.storage.audit_chain import row_hash
from bot.storage.secret_box import SecretBox
from bot.storage.server_store import SqlServerStore
from bot.storage.sqlite import open_sqlite
from bot.storage.usage_store import SqlUsageStore
from tests.audited import audit_findings
from tests.fakes.parts import ANA


async def test_what_an_earlier_release_has_counted_was_counted_by_the_services(tmp_path: Path) -> None:
    database = open_sqlite(tmp_path / "a.db", clock=lambda: 1.0)

    def as_it_was(connection: sa.Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(schema.__file__).with_name("migrations")))
        config.attributes["connection"] = connection
        command.upgrade(config, "0012")
        connection.execute(
            sa.text(
                "insert into usage (id, turn_id, n, kind, at, workspace, channel, person, model, input_tokens,"
                " cached_tokens, cache_writes, output_tokens, reasoning_tokens)"
                " values ('u1', 't1', 1, 'reply', 1.0, 'w', 'c', 'p', 'm', 10, 0, 0, 5, 0)"
            )
        )

    await database.run(as_it_was)
    await schema.upgrade(database)
    assert await SqlUsageStore(database).sums([UsageQuery(0)]) == [Spent(1, Usage(10, 5), unpriced=1)]
    await database.close()


async def test_the_audit_of_an_earlier_release_goes_on_as_one_chain(tmp_path: Path) -> None:
    database = open_sqlite(tmp_path / "a.db", clock=lambda: 1.0)

    def as_it_was(connection: sa.Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(Path(schema.__file__).with_name("migrations")))
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        row = {
            "seq": 1,
            "at": 1.0,
            "kind": "stopped",
            "conversation": "test:w:hall:1",
            "turn_id": "",
            "actor": "test:ana",
            "body": "{}",
            "previous": NO_HASH,
        }
        names = ", ".join((*row, "hash"))
        values = ", ".join(f":{name}" for name in (*row, "hash"))
        connection.execute(sa.text(f"insert into audit ({names}) values ({values})"), {**row, "hash": row_hash(row)})

    await database.run(as_it_was)
    await schema.upgrade(database)
    config = ServerConfig("weather", HttpTransport("https://x.example/mcp"), id="id-1", workspace="test:w")
    await SqlServerStore(database, SecretBox(), {}).add(ServerRecord(config), {}, ANA)
    assert await audit_findings(database) == []
    (entry, first), count = await SqlArchive(database).audit(AuditQuery(), 9, 0)
    assert (entry.seq, first.seq, count) == (2, 1, 2)
    await database.close()
