"""Views: modals and the Home tab, with their fields and limits."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.slack.blocks import problems_in
from tests.fakes.slack.elements import plain
from tests.fakes.slack.refusals import Refused, invalid_arguments
from tests.fakes.slack.shapes import Field, Problems, Shape, anything, by_type, flag, maybe, record, string

SIZE = 250_000
_COMMON: dict[str, Field | Shape] = {
    "blocks": anything,
    "callback_id": maybe(string(255, 0)),
    "external_id": maybe(string(255, 0)),
    "private_metadata": maybe(string(3000, 0)),
}
MODAL = record(
    {
        **_COMMON,
        "title": plain(24),
        "submit": maybe(plain(24)),
        "close": maybe(plain(24)),
        "clear_on_close": maybe(flag),
        "notify_on_close": maybe(flag),
        "submit_disabled": maybe(flag),
    }
)
HOME = record(_COMMON)


def checked_view(view: Any, kind: str) -> dict[str, Any]:
    """Return the view as it is, if it is a 'modal' or a 'home' that Slack takes.

    Raises:
        Refused: invalid_arguments with a line for each problem, view_too_large.
    """
    if not isinstance(view, dict):
        raise invalid_arguments("must provide an object [json-pointer:/view]")
    if len(json.dumps(view).encode()) > SIZE:
        raise Refused("view_too_large")
    problems = Problems(kind)
    by_type({kind: MODAL if kind == "modal" else HOME}, "view")(view, "/view", problems)
    problems.found += problems_in(view.get("blocks"), kind, "/view/blocks")
    has_input = any(isinstance(b, dict) and b.get("type") == "input" for b in view.get("blocks") or [])
    if kind == "modal" and has_input and not view.get("submit"):
        problems.note("missing required field: submit", "/view")
    if problems.found:
        raise invalid_arguments(*problems.found)
    return view
