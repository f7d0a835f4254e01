"""Tables that coordinate processes: jobs, leases, quotas, and faults that operators are told of once."""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.dialect import Json, metadata

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("due_at", sa.Double, nullable=False),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
)

quotas = sa.Table(
    "quotas",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("due_at", sa.Double, nullable=False),
)

config_version = sa.Table(
    "config_version",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("version", sa.BigInteger, nullable=False),
)

faults = sa.Table(
    "faults",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("opened_at", sa.Double, nullable=False),
    sa.Column("closed_at", sa.Double),
    sa.Column("first_at", sa.Double, nullable=False),
    sa.Column("occurrences", sa.Integer, nullable=False),
    sa.Column("message", sa.Integer, nullable=False),
    sa.Column("message_at", sa.Double),
    sa.Column("ref", sa.Text, nullable=False),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("delivered", sa.BigInteger, nullable=False),
)

fault_reports = sa.Table(
    "fault_reports",
    metadata,
    sa.Column("key", sa.Text, sa.ForeignKey("faults.key", ondelete="CASCADE"), primary_key=True),
    sa.Column("reporter", sa.Text, primary_key=True),
    sa.Column("expires_at", sa.Double, nullable=False),
)
