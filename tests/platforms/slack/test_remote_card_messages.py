"""Cards that are signed elsewhere: in which channel they stand, what the thread says, and what happens if one does not
get there.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bot.chat.card_messages import UNREACHED
from bot.domain.approval_requirements import ApprovalRequirements
from bot.domain.conversations import ConversationKey
from bot.domain.turns import Step, StepStatus, TurnStatus
from bot.domain.views import TurnView
from bot.errors import DeliveryFailed
from bot.platforms.slack.app import SlackSurface
from tests.fakes.slack import Channel, Fails, Lost, Message
from tests.platforms.sample_views import SAM, a_filing, a_reply, a_view, at
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot

POST = "chat.postMessage"


def waiting(place: ConnectedBot, *deliver: str, thread: str, also: bool = False) -> TurnView:
    """A call that is signed in these places; `also` with one that is signed in the thread."""
    steps = [a_filing(StepStatus.AWAITING, terms=ApprovalRequirements(deliver=frozenset(deliver)))]
    steps += [a_filing(StepStatus.AWAITING, n=4)] if also else []
    return placed(place, a_view(a_reply(0, "I file it."), *steps, status=TurnStatus.WAITING), thread)


def placed(place: ConnectedBot, view: TurnView, thread: str, channel: str = "") -> TurnView:
    key = ConversationKey("slack", place.slack.workspace.team.id, channel or place.channel.id, thread)
    view = at(view, key)
    return dataclasses.replace(view, turn=dataclasses.replace(view.turn, created_at=place.slack.clock.now() + 60))


def settled(view: TurnView, status: StepStatus = StepStatus.DONE, **approval: Any) -> TurnView:
    """The same turn when everything is decided."""
    calls = [
        a_filing(status, n=step.n, terms=step.approval.terms, **approval) for step in view.awaiting if step.approval
    ]
    said: tuple[Step, ...] = (a_reply(0, "I file it."), *calls, a_reply(9, "Over."))
    turn = dataclasses.replace(view.turn, status=TurnStatus.DONE)
    return dataclasses.replace(view, turn=turn, steps=said, revision=view.revision + 1)


def buttons(message: Message) -> str:
    return str([block for block in message.blocks if block["type"] == "actions"])


def named(place: ConnectedBot, channel: Channel) -> str:
    return f"slack:{place.slack.workspace.team.id}:{channel.id}"


def root(place: ConnectedBot) -> str:
    return place.slack.say(place.priya, place.channel, "file it").ts


async def test_the_card_links_to_the_thread_and_the_thread_to_the_card() -> None:
    async with connected_bot(listening=False) as place:
        approvals = place.slack.channel("approvals")
        thread = root(place)
        await place.draw(waiting(place, named(place, approvals), thread=thread))
        (card,) = place.slack.posted(approvals)
        _, line = place.bot_posts()
        url = (await place.api.identity()).url.rstrip("/")
        assert f"{url}/archives/{place.channel.id}/p{thread.replace('.', '')}" in str(card.blocks)
        assert f"{url}/archives/{approvals.id}/p{card.ts.replace('.', '')}" in str(line.blocks)
        assert {"type": "channel", "channel_id": approvals.id} in line.blocks[0]["elements"][0]["elements"]
        assert "Approve" in buttons(card)
        assert "Approve" not in buttons(line)
        assert line.text == f"◇ jira.create_issue waits for approval in {approvals.id} (card)"
        assert card.thread_ts is None
        assert place.slack.calls.refused() == []


async def test_what_is_asked_in_a_direct_conversation_is_linked_to_by_nobody() -> None:
    async with connected_bot(listening=False) as place:
        approvals, direct = place.slack.channel("approvals"), place.slack.dm(place.priya)
        said = place.slack.say(place.priya, direct, "file it")
        view = waiting(place, named(place, approvals), thread=said.ts)
        await place.draw(placed(place, view, said.ts, direct.id))
        (card,) = place.slack.posted(approvals)
        assert "a direct conversation" in str(card.blocks)
        assert direct.id not in str(card.blocks)


async def test_calls_of_one_reply_are_signed_each_in_its_place() -> None:
    async with connected_bot(listening=False) as place:
        approvals = place.slack.channel("approvals")
        view = waiting(place, named(place, approvals), thread=root(place), also=True)
        await place.draw(view)
        (card,) = place.slack.posted(approvals)
        assert "3a7f3c2e9b" in buttons(card)
        assert "4a7f3c2e9b" not in buttons(card)
        assert ["3a7f3c2e9b" in buttons(post) for post in place.bot_posts()] == [False, False, False]
        assert ["4a7f3c2e9b" in buttons(post) for post in place.bot_posts()] == [False, False, True]
        await place.draw(settled(view, **SAM))
        posted = [card, *place.bot_posts()[1:3]]
        assert [str(message.blocks).count("Approved by ") for message in posted] == [1, 1, 1]
        assert len(place.slack.posted(approvals)) == 1


async def test_drawing_the_same_again_asks_slack_for_nothing() -> None:
    async with connected_bot(listening=False) as place:
        view = waiting(place, named(place, place.slack.channel("approvals")), thread=root(place))
        await place.draw(view)
        before = len(place.slack.calls)
        await place.draw(view)
        assert len(place.slack.calls) == before


async def test_one_approver_who_cannot_be_written_to_does_not_keep_the_others_from_signing() -> None:
    async with connected_bot(listening=False) as place:
        ada, stella = place.slack.user("Ada"), place.slack.user("Stella", guest="multi")
        view = waiting(place, f"slack:{ada.id}", f"slack:{stella.id}", thread=root(place))
        refs = await place.draw(view)
        (card,) = place.slack.posted(place.slack.dm(ada))
        assert "Approve" in buttons(card)
        assert refs[f"card-3@{stella.id}"] == UNREACHED
        before = len(place.slack.calls)
        await place.draw(dataclasses.replace(view, revision=view.revision + 1))
        assert len(place.slack.calls) == before
        await place.draw(settled(view, **SAM))
        assert "Approve:" not in buttons(card)
        assert place.slack.posted(place.slack.dm(stella)) == []


async def test_a_card_that_reaches_none_of_its_places_fails_for_good_and_is_posted_nowhere_once_it_is_denied() -> None:
    async with connected_bot(listening=False) as place:
        approvals = place.slack.channel("approvals")
        approvals.archived = True
        view = waiting(place, named(place, approvals), thread=root(place))
        with pytest.raises(DeliveryFailed, match="signed in another place") as caught:
            await place.draw(view)
        assert caught.value.permanent
        await place.draw(settled(view, StepStatus.DENIED, reason="It could not be shown."))
        assert place.slack.posted(approvals) == []
        assert "It could not be shown." in str([post.blocks for post in place.bot_posts()])


async def test_a_token_that_is_no_good_turns_nothing_down() -> None:
    async with connected_bot(listening=False) as place:
        approvals = place.slack.channel("approvals")
        view = waiting(place, named(place, approvals), thread=root(place))
        place.slack.fail(POST, Fails("token_revoked"))
        with pytest.raises(DeliveryFailed) as caught:
            await place.draw(view)
        assert not caught.value.permanent
        await place.draw(view)
        (card,) = place.slack.posted(approvals)
        assert "Approve" in buttons(card)


async def test_a_card_whose_post_was_never_answered_is_found_in_its_channel_also_by_another_process() -> None:
    async with connected_bot(listening=False) as place:
        approvals = place.slack.channel("approvals")
        approvals.members.append(place.slack.bot.id)
        view = waiting(place, named(place, approvals), thread=root(place))
        view = dataclasses.replace(view, turn=dataclasses.replace(view.turn, created_at=0.0))
        place.slack.fail(POST, Lost())
        with pytest.raises(DeliveryFailed):
            await place.draw(view)
        refs: dict[str, str] = {}
        async for drawn in SlackSurface(place.api, place.people).deliver(view, refs):
            refs[drawn.slot] = drawn.ref
        assert len(place.slack.posted(approvals)) == 1
