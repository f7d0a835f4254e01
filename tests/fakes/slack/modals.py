"""Modals: the users' stacks of open views, and the triggers that allow to open them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from tests.fakes.clock import Clock
from tests.fakes.slack.identities import blocks_with_ids
from tests.fakes.slack.limits import Limits
from tests.fakes.slack.messages import Json
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.words import words_in

STACK = 3


@dataclass
class View:
    """One view of a stack, or a Home tab. `drawn` is the view of the app. `hash` changes with every change."""

    id: str
    team: str
    user: str
    drawn: Json
    hash: str
    app_id: str
    bot_id: str
    root: str = ""
    previous: str | None = None
    errors: dict[str, str] = field(default_factory=dict)
    response_channel: str = ""

    @property
    def words(self) -> str:
        """Displayed text, a line each, errors below the inputs at the end."""
        lines = [*words_in(self.drawn.get("title", "")), *words_in(self.drawn["blocks"], self.user)]
        lines += [text for key in ("submit", "close") for text in words_in(self.drawn.get(key, ""))]
        return "\n".join([*lines, *self.errors.values()])

    def to_json(self) -> Json:
        """Return the `view` object of answers and payloads, with block ids for all blocks."""
        described = {
            "id": self.id,
            "team_id": self.team,
            "type": self.drawn["type"],
            "blocks": self.drawn["blocks"],
            "private_metadata": self.drawn.get("private_metadata", ""),
            "callback_id": self.drawn.get("callback_id", ""),
            "external_id": self.drawn.get("external_id", ""),
            "state": {"values": {}},
            "hash": self.hash,
            "root_view_id": self.root or self.id,
            "previous_view_id": self.previous,
            "app_id": self.app_id,
            "app_installed_team_id": self.team,
            "bot_id": self.bot_id,
        }
        if self.drawn["type"] == "modal":
            described |= {
                "title": self.drawn["title"],
                "submit": self.drawn.get("submit"),
                "close": self.drawn.get("close"),
                "clear_on_close": self.drawn.get("clear_on_close", False),
                "notify_on_close": self.drawn.get("notify_on_close", False),
            }
        return described


@dataclass
class Trigger:
    """A right to open one modal, for a short time."""

    user: str
    team: str
    until: float
    used: bool = False
    from_view: str = ""


@dataclass
class Modals:
    """Everybody's open modals: `stacks` by user id, the topmost last."""

    clock: Clock
    limits: Limits
    stacks: dict[str, list[View]] = field(default_factory=dict)
    triggers: dict[str, Trigger] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def trigger(self, user: str, team: str, from_view: str = "") -> str:
        """Return a new trigger_id for the user's last interaction."""
        number = next(self._numbers)
        trigger = f"{number}.{number * 7919}.{number:032x}"
        self.triggers[trigger] = Trigger(
            user, team, self.clock.now() + self.limits.trigger_lifetime, from_view=from_view
        )
        return trigger

    def exchange(self, trigger_id: str) -> Trigger:
        """Use a trigger up.

        Raises:
            Refused: invalid_trigger_id, exchanged_trigger_id, expired_trigger_id.
        """
        trigger = self.triggers.get(trigger_id)
        if trigger is None:
            raise Refused("invalid_trigger_id")
        if trigger.used:
            raise Refused("exchanged_trigger_id")
        if self.clock.now() > trigger.until:
            raise Refused("expired_trigger_id")
        trigger.used = True
        return trigger

    def open(self, user: str, team: str, drawn: Json, app_id: str, bot_id: str, *, onto: str = "") -> View:
        """Return a new view: alone, or on top of the view `onto` belongs to.

        Raises:
            Refused: duplicate_external_id, push_limit_reached.
        """
        self.unique(drawn.get("external_id", ""), "")
        stack = self.stacks.get(user, []) if onto else []
        if len(stack) >= STACK:
            raise Refused("push_limit_reached")
        view = View(
            f"V{next(self._numbers):08d}",
            team,
            user,
            drawn | {"blocks": blocks_with_ids(drawn["blocks"])},
            self.new_hash(),
            app_id,
            bot_id,
        )
        if stack:
            view.root, view.previous = stack[0].id, stack[-1].id
        self.stacks[user] = [*stack, view]
        return view

    def find(self, view_id: str, external_id: str) -> View:
        """Return an open view by its id or the app's own.

        Raises:
            Refused: not_found.
        """
        for stack in self.stacks.values():
            for view in stack:
                if (view_id and view.id == view_id) or (external_id and view.drawn.get("external_id") == external_id):
                    return view
        raise Refused("not_found")

    def change(self, view: View, drawn: Json) -> View:
        """Replace the content of a view."""
        self.unique(drawn.get("external_id", ""), view.id)
        view.drawn, view.hash, view.errors = drawn | {"blocks": blocks_with_ids(drawn["blocks"])}, self.new_hash(), {}
        return view

    def new_hash(self) -> str:
        """A hash no view has had."""
        return f"{int(self.clock.now())}.{next(self._numbers):08x}"

    def unique(self, external_id: str, excluded_tools: str) -> None:
        """Is no other open view called so?

        Raises:
            Refused: duplicate_external_id.
        """
        for stack in self.stacks.values():
            if external_id and any(v.drawn.get("external_id") == external_id and v.id != excluded_tools for v in stack):
                raise Refused("duplicate_external_id")
