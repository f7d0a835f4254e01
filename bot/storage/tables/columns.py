"""Column types, and naming of constraints."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_name)s",
        "uq": "%(table_name)s_%(column_0_name)s_unique",
        "fk": "%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "%(table_name)s_pkey",
    }
)


def storable(text: str) -> str:
    """Return the text without NUL and lone surrogates, which a database cannot store."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


class StorableText(sa.TypeDecorator[str]):
    """Text column for untrusted text, with unstorable characters replaced."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:  # noqa: ARG002
        """Return the text as it can be stored."""
        return None if value is None else storable(value)


# Plain JSON on PostgreSQL too: JSONB would change the order of arguments, which approvers have seen, and
# refuse NUL, which tools may return.
Json = sa.JSON()
