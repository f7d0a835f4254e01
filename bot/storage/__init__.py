"""The database: tables, migrations, the turn log. The only package that imports SQLAlchemy and Alembic."""
