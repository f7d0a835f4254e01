"""Which conversations a token has to do with, by how their keys begin. Called by what lists calls and conversations."""

from __future__ import annotations

from urllib.parse import quote

from bot.domain.api_clients import ApiClient
from bot.domain.conversations import HTTP
from bot.domain.servers import EVERYWHERE


def key_prefixes(caller: ApiClient) -> list[str]:
    """All that are held in the caller's workspace: on its platform, and over HTTP."""
    if caller.workspace == EVERYWHERE:
        return [""]
    platform, _, workspace = caller.workspace.partition(":")
    return [f"{platform}:{quote(workspace, safe='')}:", f"{HTTP}:{quote(caller.workspace, safe='')}:"]
