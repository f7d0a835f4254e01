"""Remote cards: their channel, the note in the thread, and failed deliveries."""

from __future__ import annotations

import dataclasses

import pytest

from bot.domain.approvals import ApprovalRequirements
from bot.domain.conversations import Author
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from bot.errors import DeliveryFailed
from tests.fakes.discord import Channel, Message
from tests.platforms import sample_views
from tests.platforms.discord.connected_bot import ConnectedBot
from tests.platforms.sample_views import a_filing, a_reply, a_view

POST = "POST /channels/{channel}/messages"


def waiting(place: ConnectedBot, *deliver: str, also: bool = False) -> TurnView:
    """Return a view with a call for approval in these channels. `also` adds a call for approval in the thread."""
    steps = [a_filing(StepStatus.AWAITING, requirements=ApprovalRequirements(deliver=frozenset(deliver)))]
    steps += [a_filing(StepStatus.AWAITING, n=4)] if also else []
    return placed_view(place, a_view(a_reply(0, "I file it."), *steps, status=TurnStatus.WAITING))


def placed_view(place: ConnectedBot, view: TurnView, channel: Channel | None = None) -> TurnView:
    view = sample_views.at(view, place.key(channel or place.channel), Author("discord", place.priya.id, "Priya"))
    return dataclasses.replace(view, turn=dataclasses.replace(view.turn, created_at=place.discord.clock.now() + 60))


def channel_place(place: ConnectedBot, channel: Channel) -> str:
    return f"discord:{place.discord.guild.id}:{channel.id}"


def message_text(message: Message) -> str:
    return message.content + str(message.components)


async def test_the_card_links_to_where_it_was_asked_for_and_that_to_the_card(worker: ConnectedBot) -> None:
    approvals = worker.discord.channel("approvals")
    await worker.draw(waiting(worker, channel_place(worker, approvals)))
    (card,) = worker.public_messages(approvals)
    (line,) = worker.public_messages()
    assert f"Asked in <#{worker.channel.id}>" in message_text(card)
    address = f"https://discord.com/channels/{worker.discord.guild.id}/{approvals.id}/{card.id}"
    assert f"in <#{approvals.id}> ([card](<{address}>))" in message_text(line)
    assert "Approve" in message_text(card)
    assert "Approve" not in message_text(line)
    assert worker.discord.calls.failed_calls() == []


async def test_a_card_of_a_direct_conversation_has_no_link_to_it(worker: ConnectedBot) -> None:
    approvals, direct = worker.discord.channel("approvals"), worker.discord.dm(worker.priya)
    await worker.draw(placed_view(worker, waiting(worker, channel_place(worker, approvals)), direct))
    (card,) = worker.public_messages(approvals)
    assert "Asked in a direct conversation" in message_text(card)
    assert direct.id not in message_text(card)


async def test_a_channel_of_another_server_gets_no_card_by_any_rule(worker: ConnectedBot) -> None:
    other = worker.discord.another_guild("Elsewhere")
    approvals = worker.discord.channel("approvals", guild=other)
    with pytest.raises(DeliveryFailed, match="not on this server"):
        await worker.draw(waiting(worker, channel_place(worker, approvals)))
    assert worker.public_messages(approvals) == []
