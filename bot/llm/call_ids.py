"""Names and ids in the form every vendor takes back.

Called by the provider modules when they write a transcript down. A transcript may hold ids and names of another
provider, or names a model made up; a vendor refuses the whole request for one of them.
"""

from __future__ import annotations

import re

_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_ID_LIMIT = 40  # OpenAI's; Anthropic's ids are shorter
_NAME_LIMIT = 64
_LONGEST_KEPT = 200


class CallIds:
    """The ids of the calls in one request: unique in it, of accepted characters and length, and the same every time
    the same transcript is written, so that the vendor's cache holds.
    """

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._current: dict[str, str] = {}

    def of_call(self, call_id: str) -> str:
        """The id to write for a call. Later results with `call_id` are for this call."""
        written = base = _FOREIGN.sub("_", call_id)[:_ID_LIMIT] or "call"
        count = 1
        while written in self._used:
            count += 1
            suffix = f"_{count}"
            written = base[: _ID_LIMIT - len(suffix)] + suffix
        self._used.add(written)
        self._current[call_id] = written
        return written

    def of_result(self, call_id: str) -> str:
        """The id to write for the result of the latest call with that id."""
        return self._current.get(call_id) or _FOREIGN.sub("_", call_id)[:_ID_LIMIT]


def distinct_ids(ids: list[str]) -> list[str]:
    """Return the ids of one reply's calls. Missing, repeated and unusable ids are replaced by generated ones."""
    distinct: list[str] = []
    for n, call_id in enumerate(ids, 1):
        candidate = call_id if 0 < len(call_id) <= _LONGEST_KEPT else f"call_{n}"
        while candidate in distinct or (candidate != call_id and candidate in ids):
            candidate = f"{candidate}_{n}"
        distinct.append(candidate)
    return distinct


def valid_name(name: str) -> str:
    """A tool's name as a vendor takes it back in a transcript."""
    return _FOREIGN.sub("_", name)[:_NAME_LIMIT] or "unnamed"
