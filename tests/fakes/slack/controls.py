"""Controls in a message or a view: find one, and read its value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.fakes.slack.messages import Json

State = dict[str, dict[str, Json]]
"""Values by block_id and action_id, as Slack sends them in `state.values`."""
SELECTED = ("static_select", "radio_buttons")
TYPED = "plain_text_input"


@dataclass(frozen=True)
class Control:
    """Something to press, choose from or type into, and the block it is in."""

    block: Json
    element: Json

    @property
    def names(self) -> set[str]:
        """Names that a test may use: action id, text, value, and the label or id of the input block."""
        element = self.element
        names = {element.get("action_id"), element.get("value"), (element.get("text") or {}).get("text")}
        if self.block["type"] == "input":
            names |= {self.block["label"]["text"], self.block.get("block_id")}
        for side in ("positive_button", "negative_button"):
            if side in element:
                names |= {element[side]["value"], element[side]["text"]["text"]}
        return {name for name in names if name}


def controls(blocks: list[Json]) -> Iterator[Control]:
    """Yield all interactive elements, in order."""
    for block in blocks:
        inner = [*block.get("elements", []), block.get("accessory"), block.get("element")]
        for element in inner:
            if isinstance(element, dict) and element.get("action_id"):
                yield Control(block, element)


def find(blocks: list[Json], name: str, user: str | None) -> Control:
    """Return the control with this name that the user sees; None as the user also finds hidden ones.

    Raises:
        LookupError: it is missing or hidden; the message lists the visible ones.
    """
    seen = [c for c in controls(blocks) if user is None or user in c.element.get("visible_to_user_ids", [user])]
    for control in seen:
        if name in control.names:
            return control
    listed = sorted({n for control in seen for n in control.names})
    raise LookupError(f"nothing called {name!r} here; there is {listed}")


def beginning(blocks: list[Json]) -> State:
    """Return the state of an untouched surface."""
    state: State = {}
    for control in controls(blocks):
        element, kind = control.element, control.element["type"]
        if kind == TYPED or kind in SELECTED:
            given = _initial(element)
            state.setdefault(control.block["block_id"], {})[element["action_id"]] = {"type": kind} | given
    return state


def element_state(element: Json, *values: str) -> Json:
    """Return the state of an element after these were chosen or typed; options are named by text or value.

    Raises:
        LookupError: there is no such option.
    """
    kind = element["type"]
    if kind == TYPED:
        return {"type": kind, "value": values[0] if values and values[0] else None}
    return {"type": kind, "selected_option": _option(element, values[0]) if values else None}


def empty(held: Json) -> bool:
    """Return True if an input is empty."""
    return not any(value for key, value in held.items() if key != "type")


def _option(element: Json, name: str) -> Json:
    groups = [group["options"] for group in element.get("option_groups", [])]
    options: list[Json] = [*element.get("options", []), *(option for group in groups for option in group)]
    for option in options:
        if name in {option["value"], option["text"]["text"]}:
            return option
    raise LookupError(f"no option {name!r}; there is {[option['value'] for option in options]}")


def _initial(element: Json) -> Json:
    if element["type"] == TYPED:
        return {"value": element.get("initial_value")}
    return {"selected_option": element.get("initial_option")}
