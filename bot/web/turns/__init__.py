"""Turns over HTTP: how questions come in, how they are followed, and what is told of them. Mounted by `bot.web.api`."""
