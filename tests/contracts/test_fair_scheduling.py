"""Fair scheduling of queued turns among users and workspaces, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.turns import Claim, StepStatus, TurnLimits, TurnStatus
from bot.errors import QueueFull
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.parts import ANA, BEN, HALL, message
from tests.postgres import Server
from tests.storage.test_concurrent_turns import WANTS, approval, write
from tests.turn_log_harness import Harness, PostgresHarness

CARA = Author("test", "cara", "Cara")


def new_message(author: Author, n: int, workspace: str = "w") -> InboundMessage:
    """Return a message in its own conversation."""
    where = ConversationKey("test", workspace, author.id, str(n))
    return message(f"{author.id} {workspace} {n}", conversation=where, author=author)


async def ask(harness: Harness, author: Author, number: int, workspace: str = "w") -> list[str]:
    turns = []
    for n in range(number):
        harness.time += 0.001
        turns.append((await harness.log.enqueue(new_message(author, n, workspace))).turn_id)
    return turns


def set_limits(harness: Harness, running: int = 1000, queued: int = 1000) -> SqlTurnLog:
    """Return the turn log of the process under test, with limits."""
    harness.log = SqlTurnLog(harness.database, limits=TurnLimits(running, queued))
    return harness.log


async def take(harness: Harness, number: int, held: list[Claim]) -> list[str]:
    """Claim up to `number` turns beside those held. Return their authors."""
    claims = await harness.log.claim(number, [claim.turn_id for claim in held])
    held += claims
    return askers(claims)


def askers(claims: Sequence[Claim]) -> list[str]:
    return [claim.person.removeprefix("test:") for claim in claims]


async def test_the_person_with_the_fewest_running_turns_goes_first(harness: Harness) -> None:
    held: list[Claim] = []
    await ask(harness, ANA, 20)
    assert await take(harness, 4, held) == ["ana"] * 4
    await ask(harness, BEN, 3)
    assert await take(harness, 4, held) == ["ben", "ben", "ben", "ana"]


async def test_one_claim_goes_round_among_people_whose_messages_are_newer(harness: Harness) -> None:
    await ask(harness, ANA, 20)
    await ask(harness, BEN, 20)
    await ask(harness, CARA, 1)
    assert askers(await harness.log.claim(6)) == ["ana", "ben", "cara", "ana", "ben", "ana"]


async def test_of_one_person_the_oldest_goes_first(harness: Harness) -> None:
    turns = await ask(harness, ANA, 5)
    assert [claim.turn_id for claim in await harness.log.claim(3)] == turns[:3]


async def test_among_equals_the_workspace_with_the_fewest_goes_first(harness: Harness) -> None:
    held: list[Claim] = []
    await ask(harness, ANA, 3, "large")
    await take(harness, 3, held)
    await ask(harness, BEN, 1, "large")
    await ask(harness, CARA, 1, "small")
    assert await take(harness, 1, held) == ["cara"]


async def test_no_person_has_more_running_than_one_may_and_the_others_lose_nothing(harness: Harness) -> None:
    log = set_limits(harness, running=3)
    await ask(harness, ANA, 20)
    await ask(harness, BEN, 1)
    held: list[Claim] = []
    assert sorted(await take(harness, 8, held)) == ["ana", "ana", "ana", "ben"]
    assert await take(harness, 8, held) == []
    await log.finish(next(claim for claim in held if claim.person == "test:ana"), TurnStatus.DONE, [], "")
    assert await take(harness, 8, held) == ["ana"]


async def test_a_turn_that_waits_for_an_approval_takes_no_place(harness: Harness) -> None:
    log = set_limits(harness, running=1)
    await ask(harness, ANA, 2)
    (claim,) = await log.claim(8)
    await log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval())])
    await log.suspend(claim)
    assert askers(await log.claim(8)) == ["ana"]


async def test_users_whose_turns_cannot_go_on_hold_up_no_other(harness: Harness) -> None:
    for n in range(40):
        author = Author("test", f"p{n}", "P")
        await harness.log.enqueue(new_message(author, 1))
        (claim,) = await harness.log.claim(1)
        await harness.log.append(claim, WANTS, [write(2, StepStatus.AWAITING, approval(f"card-{n}", None))])
        await harness.log.suspend(claim)
        await harness.log.enqueue(message(f"behind {n}", conversation=claim.conversation, author=author))
    await ask(harness, BEN, 1)
    assert askers(await harness.log.claim(2)) == ["ben"]


async def test_a_turn_begins_with_its_message_unless_its_author_has_enough_running(harness: Harness) -> None:
    log = set_limits(harness, running=2)
    claims = [(await log.enqueue_and_claim(new_message(author, n)))[1] for n, author in enumerate((ANA, ANA, ANA, BEN))]
    assert [claim is not None for claim in claims] == [True, True, False, True]
    assert await take(harness, 8, [claim for claim in claims if claim]) == []


@pytest.mark.parametrize("way", ["enqueue", "enqueue_and_claim"])
async def test_a_full_queue_refuses_its_persons_messages_alone(harness: Harness, way: str) -> None:
    log = set_limits(harness, running=1, queued=2)
    receive = getattr(log, way)
    await log.enqueue(new_message(ANA, 0))
    await log.claim(8)
    for n in (1, 2):
        await receive(new_message(ANA, n))
    with pytest.raises(QueueFull, match="2 of your messages are waiting already"):
        await receive(new_message(ANA, 3))
    await receive(new_message(BEN, 1))


@pytest.mark.parametrize("way", ["enqueue", "enqueue_and_claim"])
async def test_a_message_that_was_accepted_is_not_refused_when_it_comes_again(harness: Harness, way: str) -> None:
    log = set_limits(harness, queued=2)
    first = [await log.enqueue(new_message(ANA, n)) for n in range(2)]
    again = getattr(log, way)(new_message(ANA, 1))
    receipt = await again
    receipt = receipt[0] if isinstance(receipt, tuple) else receipt
    assert (receipt.turn_id, receipt.redelivery) == (first[1].turn_id, True)


async def test_a_message_that_was_refused_may_come_again(harness: Harness) -> None:
    log = set_limits(harness, queued=1)
    await log.enqueue(new_message(ANA, 0))
    with pytest.raises(QueueFull):
        await log.enqueue(new_message(ANA, 1))
    await log.claim(1)
    assert not (await log.enqueue(new_message(ANA, 1))).redelivery


async def test_a_waiting_turn_names_the_turn_before_it(harness: Harness) -> None:
    mine = await ask(harness, ANA, 50)
    assert (await harness.log.get_view(mine[0])).ahead == 0
    assert (await harness.log.get_view(mine[-1])).ahead == 49
    await harness.log.claim(8)
    (late,) = await ask(harness, BEN, 1)
    assert (await harness.log.get_view(late)).ahead == 0
    assert (await harness.log.get_view(mine[-1])).ahead == 42


async def test_a_turn_counts_those_of_its_conversation_and_of_others_once(harness: Harness) -> None:
    await ask(harness, BEN, 3)
    for n in range(3):
        last = await harness.log.enqueue(message(f"one after the other {n}", conversation=HALL))
    # Ahead are two turns of the same conversation, and the older of Ben's turns with equally few running.
    assert (await harness.log.get_view(last.turn_id)).ahead == 3


async def test_a_turn_that_waits_for_a_place_is_shown_after_a_moment(harness: Harness) -> None:
    (turn,) = await ask(harness, ANA, 1)
    assert list(await harness.log.stale_views("", 20)) == []
    harness.time += 3
    assert list(await harness.log.stale_views("", 20)) == [turn]


async def test_many_processes_keep_one_limit(postgres: Server) -> None:
    pg_harness = PostgresHarness(await asyncio.to_thread(postgres.fresh, virtual_clock=True))
    limits = TurnLimits(running=5, queued=30)
    logs = [SqlTurnLog(pg_harness.database, limits=limits) for _ in range(6)]
    received = await asyncio.gather(
        *(logs[n % 6].enqueue(new_message(ANA, n)) for n in range(60)), return_exceptions=True
    )
    assert sum(isinstance(each, QueueFull) for each in received) == 30
    claims = await asyncio.gather(*(log.claim(8) for log in logs))
    assert sum(map(len, claims)) == 5
    await pg_harness.close()
