"""Key prefixes of the conversations that a token covers."""

from __future__ import annotations

from urllib.parse import quote

from bot.domain.api_clients import ApiClient
from bot.domain.conversations import HTTP
from bot.domain.servers import EVERYWHERE


def key_prefixes(caller: ApiClient) -> list[str]:
    """Return the key prefixes of the client's workspace: on its platform, and over HTTP."""
    if caller.workspace == EVERYWHERE:
        return [""]
    platform, _, workspace = caller.workspace.partition(":")
    return [f"{platform}:{quote(workspace, safe='')}:", f"{HTTP}:{quote(caller.workspace, safe='')}:"]
