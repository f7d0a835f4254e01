"""Granting later calls with the approval of one call, in Slack."""

from __future__ import annotations

import dataclasses

from bot.domain.approvals import ArgumentsScope, HoursScope, PermanentScope
from bot.domain.grants import GrantRequest
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from tests.platforms.slack.connected_bot import ConnectedBot
from tests.platforms.slack.payload_checks import parts
from tests.platforms.slack.test_action_codec import draw_view
from tests.rendering.turns import NOTES, a_step, a_view, an_approval

KNOWN = dataclasses.replace(NOTES, server_id="s-1")


def waiting() -> TurnView:
    return a_view(a_step(StepStatus.AWAITING, approval=an_approval(), tool=KNOWN), status=TurnStatus.WAITING)


async def test_grants_stand_in_the_menu_of_the_card(place: ConnectedBot) -> None:
    card = await draw_view(place, waiting())
    (menu,) = [part for part in parts(list(card.blocks)) if part.get("type") == "overflow"]
    for label in ("Allow this very call", "Allow for 8 hours", "Always allow (admins)"):
        await place.slack.choose(place.priya, card, menu["action_id"], label)
    await place.slack.until(lambda: len(place.engine.granted) == 3)
    assert place.engine.granted == [
        GrantRequest(ArgumentsScope()),
        GrantRequest(HoursScope(8)),
        GrantRequest(PermanentScope()),
    ]
