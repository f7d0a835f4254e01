"""Which tool a service means when it refuses a request because of one.

Called by the provider modules. Vendors count the tools of the request from 0, OpenAI in `param`
(`tools[3].function.parameters`), Anthropic at the beginning of its message (`tools.3.custom.input_schema: ...`);
servers that speak their languages often give the name in the message and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBERED = re.compile(r"\btools(?:\[(\d{1,4})\]|\.(\d{1,4})\b)")
_QUOTED = re.compile(r"(?:function|tool)\s+(?:name\s+)?['\"`]?([a-zA-Z0-9_-]{1,64})\b", re.IGNORECASE)
_BAD_REQUEST = frozenset({400, 422})


def refused_tool(status: int, param: str, message: str, names: Sequence[str]) -> str:
    """The one of `names`, in the order of the request, that is refused; empty if it is not about a single tool."""
    if status not in _BAD_REQUEST:
        return ""
    for text in (param, message):
        if found := _NUMBERED.search(text):
            n = int(found[1] or found[2])
            return names[n] if n < len(names) else ""
    meant = {name for name in _QUOTED.findall(message) if name in names}
    return meant.pop() if len(meant) == 1 else ""
