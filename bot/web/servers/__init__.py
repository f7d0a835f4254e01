"""Servers over HTTP: what is read and written of them, and what is done to them. Mounted by `bot.web.api`."""
