"""What a server offers, in our words.

Called by `connection` after connecting and whenever the server says that its tools have changed.
"""

from __future__ import annotations

import logging

from mcp import Client, types

from bot.domain.servers import ServerConfig
from bot.domain.tools import Annotations, Tool
from bot.tools.characters import visible, visible_schema
from bot.tools.names import offered_name

log = logging.getLogger(__name__)

_MOST_PAGES = 100
_MOST_TOOLS = 5_000


async def list_tools(client: Client, config: ServerConfig) -> tuple[Tool, ...]:
    """Every tool of a server. A cursor that comes again ends the listing, and so do a hundred pages. Of two tools
    with one name the first counts.
    """
    if client.server_capabilities.tools is None:
        return ()
    found: dict[str, Tool] = {}
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        for each in page.tools:
            tool = described(each, config)
            if found.setdefault(tool.name, tool) is not tool:
                log.warning("%s lists the tool %r twice, the first one counts", config.name, tool.name)
        cursor = page.next_cursor
        if cursor is None or cursor in cursors or len(found) >= _MOST_TOOLS:
            break
        cursors.add(cursor)
    return tuple(found.values())[:_MOST_TOOLS]


def described(tool: types.Tool, config: ServerConfig) -> Tool:
    """One tool as it is offered: characters that nobody sees are gone, everything else is the server's."""
    hints = tool.annotations or types.ToolAnnotations()
    return Tool(
        name=offered_name(config.name, tool.name),
        server=config.name,
        original_name=tool.name,
        title=visible(tool.title or hints.title or ""),
        description=visible(tool.description or ""),
        input_schema=visible_schema(tool.input_schema),
        output_schema=None if tool.output_schema is None else visible_schema(tool.output_schema),
        annotations=Annotations(
            read_only=hints.read_only_hint,
            destructive=hints.destructive_hint,
            idempotent=hints.idempotent_hint,
            open_world=hints.open_world_hint,
        ),
        trusted=config.trusted,
    )
