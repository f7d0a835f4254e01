"""Language models: one protocol a module, each with a `Config` and `create(config)`; `providers` says who speaks which.

The composition root imports the module of the chosen provider by name and no other: the vendors' libraries are heavy.
Providers know nothing of one another, of tools' servers, of platforms or of the database.
"""
