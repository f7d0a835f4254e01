"""Names of tools as offered to a model.

Models accept `^[a-zA-Z0-9_-]{1,64}$`. MCP tools may have other names, and two servers may use the same one. A name
depends only on server and tool, so it does not change with other servers.
"""

from __future__ import annotations

import hashlib
import json
import re

from bot.domain.tools import OWN_SERVER

_LONGEST = 64
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]")
_LOOKS_MARKED = re.compile(r"_[0-9a-f]{8}$")


def offered_name(server: str, tool: str) -> str:
    """Return `server__tool` if that is valid and unambiguous; else a valid, shortened form with eight hexadecimal
    digits of the pair's SHA-256.

    The digits are added to: names with other characters, long names, servers with an ambiguous border (`a__b` + `c`
    and `a` + `b__c`), names that look marked already, and all tools of a server named like the bot.
    """
    unclear = "__" in server or server.endswith("_")
    return _valid(f"{server}__{tool}", [server, tool], clear=not unclear and server != OWN_SERVER)


def generic_name(server: str) -> str:
    """Return `mcp_server`, the name of a server's only tool, by the same rules. It cannot collide, because other
    names contain two underscores.
    """
    plain = f"mcp_{server}"
    return _valid(plain, [server], clear="__" not in plain)


def _valid(plain: str, marked: list[str], *, clear: bool) -> str:
    stem = _UNFIT.sub("_", plain)
    if stem == plain and len(plain) <= _LONGEST and clear and not _LOOKS_MARKED.search(plain):
        return plain
    mark = "_" + hashlib.sha256(json.dumps(marked).encode()).hexdigest()[:8]
    return stem[: _LONGEST - len(mark)] + mark
