"""Cards that are signed elsewhere: in which channel they stand, what the thread says, and what happens if one does not
get there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bot.chat.card_messages import UNREACHED
from bot.domain.approval_requirements import ApprovalRequirements
from bot.domain.conversations import Author
from bot.domain.turns import Step, StepStatus, TurnStatus
from bot.domain.views import TurnView
from bot.errors import DeliveryFailed
from bot.platforms.discord.app import DiscordSurface
from tests.fakes.discord import Channel, Fails, Lost, Message
from tests.platforms import sample_views
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot
from tests.platforms.sample_views import SAM, a_filing, a_reply, a_view

POST = "POST /channels/{channel}/messages"


def waiting(place: ConnectedBot, *deliver: str, also: bool = False) -> TurnView:
    """A call that is signed in these places; `also` with one that is signed where it was asked for."""
    steps = [a_filing(StepStatus.AWAITING, terms=ApprovalRequirements(deliver=frozenset(deliver)))]
    steps += [a_filing(StepStatus.AWAITING, n=4)] if also else []
    return placed(place, a_view(a_reply(0, "I file it."), *steps, status=TurnStatus.WAITING))


def placed(place: ConnectedBot, view: TurnView, channel: Channel | None = None) -> TurnView:
    view = sample_views.at(view, place.key(channel or place.channel), Author("discord", place.priya.id, "Priya"))
    return dataclasses.replace(view, turn=dataclasses.replace(view.turn, created_at=place.discord.clock.now() + 60))


def settled(view: TurnView, status: StepStatus = StepStatus.DONE, **approval: Any) -> TurnView:
    """The same turn when everything is decided."""
    calls = [
        a_filing(status, n=step.n, terms=step.approval.terms, **approval) for step in view.awaiting if step.approval
    ]
    said: tuple[Step, ...] = (a_reply(0, "I file it."), *calls, a_reply(9, "Over."))
    turn = dataclasses.replace(view.turn, status=TurnStatus.DONE)
    return dataclasses.replace(view, turn=turn, steps=said, revision=view.revision + 1)


def named(place: ConnectedBot, channel: Channel) -> str:
    return f"discord:{place.discord.guild.id}:{channel.id}"


def drawn(message: Message) -> str:
    return message.content + str(message.components)


async def test_the_card_links_to_where_it_was_asked_for_and_that_to_the_card() -> None:
    async with connected_bot(listening=False) as place:
        approvals = place.discord.channel("approvals")
        await place.draw(waiting(place, named(place, approvals)))
        (card,) = place.posted(approvals)
        _, line = place.posted()
        assert f"Asked in <#{place.channel.id}>" in drawn(card)
        address = f"https://discord.com/channels/{place.discord.guild.id}/{approvals.id}/{card.id}"
        assert f"in <#{approvals.id}> ([card](<{address}>))" in drawn(line)
        assert "Approve" in drawn(card)
        assert "Approve" not in drawn(line)
        assert place.discord.calls.refused() == []


async def test_what_is_asked_in_a_direct_conversation_is_linked_to_by_nobody() -> None:
    async with connected_bot(listening=False) as place:
        approvals, direct = place.discord.channel("approvals"), place.discord.dm(place.priya)
        await place.draw(placed(place, waiting(place, named(place, approvals)), direct))
        (card,) = place.posted(approvals)
        assert "Asked in a direct conversation" in drawn(card)
        assert direct.id not in drawn(card)


async def test_calls_of_one_reply_are_signed_each_in_its_place() -> None:
    async with connected_bot(listening=False) as place:
        approvals = place.discord.channel("approvals")
        view = waiting(place, named(place, approvals), also=True)
        await place.draw(view)
        (card,) = place.posted(approvals)
        assert "3a7f3c2e9b" in drawn(card)
        assert "4a7f3c2e9b" not in drawn(card)
        assert ["3a7f3c2e9b" in drawn(message) for message in place.posted()] == [False, False, False]
        assert ["4a7f3c2e9b" in drawn(message) for message in place.posted()] == [False, False, True]
        await place.draw(settled(view, **SAM))
        assert [drawn(each).count("Approved by ") for each in (card, *place.posted()[1:3])] == [1, 1, 1]
        assert len(place.posted(approvals)) == 1


async def test_drawing_the_same_again_asks_discord_for_nothing() -> None:
    async with connected_bot(listening=False) as place:
        view = waiting(place, named(place, place.discord.channel("approvals")))
        await place.draw(view)
        before = len(place.discord.calls)
        await place.draw(view)
        assert len(place.discord.calls) == before


async def test_one_approver_who_cannot_be_written_to_does_not_keep_the_others_from_signing() -> None:
    async with connected_bot(listening=False) as place:
        ada, stella = place.discord.user("Ada"), place.discord.user("Stella", pending=True)
        view = waiting(place, f"discord:{ada.id}", f"discord:{stella.id}")
        refs = await place.draw(view)
        (card,) = place.posted(place.discord.dm(ada))
        assert "Approve" in drawn(card)
        assert refs[f"card-3@{stella.id}"] == UNREACHED
        await place.draw(settled(view, **SAM))
        assert "Approve:" not in drawn(card)
        assert place.posted(place.discord.dm(stella)) == []


async def test_a_card_that_reaches_none_of_its_places_fails_for_good_and_is_posted_nowhere_once_it_is_denied() -> None:
    async with connected_bot(listening=False) as place:
        approvals = place.discord.channel("approvals")
        view = waiting(place, named(place, approvals))
        place.discord.fail(POST, Fails(50013))
        with pytest.raises(DeliveryFailed, match="signed in another place") as caught:
            await place.draw(view)
        assert caught.value.permanent
        await place.draw(settled(view, StepStatus.DENIED, reason="It could not be shown."))
        assert place.posted(approvals) == []
        assert "It could not be shown." in str([drawn(message) for message in place.posted()])


async def test_a_channel_of_another_server_is_shown_nothing_whatever_the_rule_says() -> None:
    async with connected_bot(listening=False) as place:
        other = place.discord.another_guild("Elsewhere")
        approvals = place.discord.channel("approvals", guild=other)
        with pytest.raises(DeliveryFailed, match="not on this server"):
            await place.draw(waiting(place, named(place, approvals)))
        assert place.posted(approvals) == []


async def test_a_card_whose_post_was_never_answered_is_found_in_its_channel_also_by_another_process() -> None:
    async with connected_bot(listening=False) as place:
        approvals = place.discord.channel("approvals")
        view = waiting(place, named(place, approvals))
        view = dataclasses.replace(view, turn=dataclasses.replace(view.turn, created_at=place.discord.clock.now() - 60))
        place.discord.fail(POST, Lost())
        with pytest.raises(DeliveryFailed):
            await place.draw(view)
        refs: dict[str, str] = {}
        other = DiscordSurface(place.rest, place.people, clock=lambda: place.discord.clock.now() + 3600)
        async for each in other.deliver(view, refs):
            refs[each.slot] = each.ref
        assert len(place.posted(approvals)) == 1
