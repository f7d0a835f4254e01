"""The name under which a tool is offered to a model.

Models take `^[a-zA-Z0-9_-]{1,64}$`; MCP tools may be called almost anything, and two servers may have tools of the
same name. A name is a pure function of server and tool, so it never changes because another server came or went.
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
    """`server__tool` where that is a valid name that no other pair can have; else the same made valid, cut to
    length and marked with eight hexadecimal digits of the pair's SHA-256.

    Marked are: names with other characters, names that are too long, servers whose name makes the border between the
    two unclear (`a__b` + `c` and `a` + `b__c`), names that look marked themselves, and all tools of a server that is
    called like the bot: none can be taken for one of the bot's own.
    """
    unclear = "__" in server or server.endswith("_")
    return _valid(f"{server}__{tool}", [server, tool], clear=not unclear and server != OWN_SERVER)


def generic_name(server: str) -> str:
    """`mcp_server`, the tool of a server that has no others, by the same rules: no name of another
    tool, all of which have two underscores in the middle.
    """
    plain = f"mcp_{server}"
    return _valid(plain, [server], clear="__" not in plain)


def _valid(plain: str, marked: list[str], *, clear: bool) -> str:
    stem = _UNFIT.sub("_", plain)
    if stem == plain and len(plain) <= _LONGEST and clear and not _LOOKS_MARKED.search(plain):
        return plain
    mark = "_" + hashlib.sha256(json.dumps(marked).encode()).hexdigest()[:8]
    return stem[: _LONGEST - len(mark)] + mark
