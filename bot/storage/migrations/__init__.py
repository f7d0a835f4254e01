"""Alembic's folder: one file a schema change, applied in order by `bot.storage.migrate`."""
