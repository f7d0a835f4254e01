"""The routes of the REST API. Importing this fills the table."""

from tests.fakes.discord.routes import applications, channels, guilds, interactions, messages, threads, users, webhooks
from tests.fakes.discord.routes.table import ROUTES, Answered, Request, Route, find_route

__all__ = [
    "ROUTES",
    "Answered",
    "Request",
    "Route",
    "applications",
    "channels",
    "find_route",
    "guilds",
    "interactions",
    "messages",
    "threads",
    "users",
    "webhooks",
]
