"""Remote cards: their channel, the note in the thread, and failed deliveries."""

from __future__ import annotations

import dataclasses

from bot.domain.approvals import ApprovalRequirements
from bot.domain.conversations import ConversationKey
from bot.domain.turns import StepStatus, TurnStatus, TurnView
from tests.fakes.slack import Channel, Message
from tests.platforms.sample_views import a_filing, a_reply, a_view, at
from tests.platforms.slack.connected_bot import ConnectedBot


def waiting(place: ConnectedBot, *deliver: str, thread: str, also: bool = False) -> TurnView:
    """Return a view with a call for approval in these channels. `also` adds a call for approval in the thread."""
    steps = [a_filing(StepStatus.AWAITING, requirements=ApprovalRequirements(deliver=frozenset(deliver)))]
    steps += [a_filing(StepStatus.AWAITING, n=4)] if also else []
    return placed_view(place, a_view(a_reply(0, "I file it."), *steps, status=TurnStatus.WAITING), thread)


def placed_view(place: ConnectedBot, view: TurnView, thread: str, channel: str = "") -> TurnView:
    key = ConversationKey("slack", place.slack.workspace.team.id, channel or place.channel.id, thread)
    view = at(view, key)
    return dataclasses.replace(view, turn=dataclasses.replace(view.turn, created_at=place.slack.clock.now() + 60))


def buttons(message: Message) -> str:
    return str([block for block in message.blocks if block["type"] == "actions"])


def channel_place(place: ConnectedBot, channel: Channel) -> str:
    return f"slack:{place.slack.workspace.team.id}:{channel.id}"


def root(place: ConnectedBot) -> str:
    return place.slack.say(place.priya, place.channel, "file it").ts


async def test_the_card_links_to_the_thread_and_the_thread_to_the_card(worker: ConnectedBot) -> None:
    approvals = worker.slack.channel("approvals")
    thread = root(worker)
    await worker.draw(waiting(worker, channel_place(worker, approvals), thread=thread))
    (card,) = worker.slack.bot_messages(approvals)
    (line,) = worker.bot_posts()
    url = (await worker.api.identity()).url.rstrip("/")
    assert f"{url}/archives/{worker.channel.id}/p{thread.replace('.', '')}" in str(card.blocks)
    assert f"{url}/archives/{approvals.id}/p{card.ts.replace('.', '')}" in str(line.blocks)
    assert {"type": "channel", "channel_id": approvals.id} in line.blocks[0]["elements"][0]["elements"]
    assert "Approve" in buttons(card)
    assert "Approve" not in buttons(line)
    assert line.text == f"◇ jira.create_issue waits for approval in {approvals.id} (card)"
    assert card.thread_ts is None
    assert worker.slack.calls.failed_calls() == []


async def test_a_card_of_a_direct_conversation_has_no_link_to_it(worker: ConnectedBot) -> None:
    approvals, direct = worker.slack.channel("approvals"), worker.slack.dm(worker.priya)
    said = worker.slack.say(worker.priya, direct, "file it")
    view = waiting(worker, channel_place(worker, approvals), thread=said.ts)
    await worker.draw(placed_view(worker, view, said.ts, direct.id))
    (card,) = worker.slack.bot_messages(approvals)
    assert "a direct conversation" in str(card.blocks)
    assert direct.id not in str(card.blocks)
