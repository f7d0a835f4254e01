"""The routes of the REST API. Importing this fills the table."""

from tests.fakes.discord.routes import applications, channels, guilds, interactions, messages, threads, users, webhooks
from tests.fakes.discord.routes.table import ROUTES, Answered, Request, Route, found

__all__ = [
    "ROUTES",
    "Answered",
    "Request",
    "Route",
    "applications",
    "channels",
    "found",
    "guilds",
    "interactions",
    "messages",
    "threads",
    "users",
    "webhooks",
]
