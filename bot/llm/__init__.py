"""Language models: one provider a module, each with a `Config` and `create(config)`.

The composition root imports the module of the chosen provider by name and no other: the vendors' libraries are heavy.
Providers know nothing of one another, of tools' servers, of platforms or of the database.
"""
