"""The database: tables, migrations, the turn log. The only home of SQLAlchemy and Alembic.

The turn log is synchronous SQLAlchemy Core, one short transaction a method, run in the database's own thread:
cancelling a task can never cut a transaction in half. Knows ports and values; nothing of models, MCP or platforms.
"""
