"""Language models: each module speaks one protocol and has a `Config` and `create(config)`. `providers` lists the
providers.

The composition root imports only the module of the chosen provider, by name, because the vendors' libraries are heavy.
Provider modules know neither one another nor tool servers, platforms and the database.
"""
