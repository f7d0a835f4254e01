"""The methods of the Web API; importing this package fills the table."""

from tests.fakes.slack.methods import (  # noqa: F401 - each module enters its methods into the table
    agents,
    apps,
    chat,
    conversations,
    files,
    reactions,
    streams,
    users,
    views,
)
from tests.fakes.slack.methods.table import METHODS, Method

__all__ = ["METHODS", "Method"]
