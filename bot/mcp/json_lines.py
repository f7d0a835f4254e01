"""Line numbers of the keys in a JSON document, for error messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

Path = tuple[str | int, ...]
"""Keys and indexes that lead to a value, the outermost first."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:\n]')


def lines_of(text: str) -> Mapping[Path, int]:
    """Return the line of every key and list entry of a valid JSON document. Of a repeated key the last line is
    returned.
    """
    found: dict[Path, int] = {}
    line = 1
    path: list[str | int] = []
    string = ""
    for token in _TOKEN.findall(text):
        match token:
            case "\n":
                line += 1
            case "{":
                path.append("")
            case "[":
                path.append(0)
                found[tuple(path)] = line
            case "}" | "]":
                path.pop()
            case ":":
                path[-1] = string
                found[tuple(path)] = line
            case "," if isinstance(path[-1], int):
                path[-1] += 1
                found[tuple(path)] = line
            case ",":
                pass
            case _:
                string = json.loads(token, strict=False)
    return found
