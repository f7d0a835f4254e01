"""Answers that can never be delivered to their conversation: the author gets a private notice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from bot.domain.completions import Completion, ModelRequest
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnStatus, TurnView
from bot.engine import view_delivery
from bot.errors import DeliveryFailed, ModelRejected
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ANA, HALL, RecordingSurface, ask_for, call, message, running, say, tool, until

GONE = DeliveryFailed("The bot is not in the channel.", permanent=True)
TOLD = "I could not answer you where you asked “hi”. The bot is not in the channel."


@dataclass
class Left(RecordingSurface):
    """A surface of a conversation that the bot has left. Views with `open` True can still be delivered. Notices are
    recorded in `told`, or raise `trouble_telling`.
    """

    told: list[tuple[NoticeTarget, Notice]] = field(default_factory=list)
    trouble_telling: Exception | None = None
    silent: bool = False
    asked: int = 0

    def open(self, view: TurnView) -> bool:
        return False

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        if not self.open(view):
            raise GONE
        async for drawn in super().deliver(view, refs):
            yield drawn

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        if self.trouble_telling is not None:
            raise self.trouble_telling
        self.told.append((audience, notice))


async def given_up(harness: EngineHarness, text: str = "hi") -> TurnView:
    """Return the view of a turn with an answer that can never be delivered."""
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message(text))
        await until(lambda: harness.surface.asked > 0)  # type: ignore[attr-defined]
        await until(lambda: not engine.worker.turns and engine.delivery.is_idle)
    assert await harness.log.stale_views("test:", 1) == []
    return await harness.log.get_view(receipt.turn_id)


async def test_an_undeliverable_answer_is_announced_to_the_asker_in_private_once(
    harness: EngineHarness,
) -> None:
    harness.surface = left = Left()
    harness.model.script = [say("Hello. " * 50)]
    view = await given_up(harness)
    assert view.turn.status is TurnStatus.DONE
    assert left.told == [(NoticeTarget(str(HALL), ANA.id, private=True), Notice(TOLD))]


async def test_a_failure_is_told_too(harness: EngineHarness) -> None:
    harness.surface = left = Left()
    harness.model.script = [ModelRejected("The key is wrong.")]
    assert (await given_up(harness)).turn.status is TurnStatus.FAILED
    assert [notice.text for _, notice in left.told] == [TOLD]


async def test_a_call_whose_card_could_not_be_posted_is_reported_at_the_end(harness: EngineHarness) -> None:
    harness.surface = left = Left()
    harness.toolbox.add(tool("notes__add"))
    harness.model.script = [ask_for(call("notes__add")), say("I could not ask you.")]
    await given_up(harness)
    assert [notice.text for _, notice in left.told] == [f"{TOLD} {view_delivery.NOT_RUN}"]
    assert harness.toolbox.calls == []


class OnlyCards(Left):
    """A surface that delivers every view except those with approval cards."""

    def open(self, view: TurnView) -> bool:
        return not view.awaiting


async def test_a_notice_that_reached_the_conversation_after_all_is_not_sent_twice(harness: EngineHarness) -> None:
    harness.surface = left = OnlyCards()
    harness.toolbox.add(tool("notes__add"))
    harness.model.script = [ask_for(call("notes__add")), say("I could not ask you.")]
    engine = harness.engine()
    async with running(engine):
        await left.wait_for_end((await engine.receive(message("hi"))).turn_id)
        await until(lambda: not engine.worker.turns and engine.delivery.is_idle)
    assert left.asked == 0


async def test_a_user_who_stopped_a_turn_gets_no_notice(harness: EngineHarness) -> None:
    harness.surface = left = Left()
    begun = asyncio.Event()

    async def think(_request: ModelRequest) -> Completion:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody lets it go on")

    harness.model.script = [think]
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("hi"))
        await begun.wait()
        await engine.stop(receipt.turn_id, ANA)
        await until(lambda: not engine.worker.turns and engine.delivery.is_idle)
    assert (await harness.log.get_view(receipt.turn_id)).turn.status is TurnStatus.CANCELLED
    assert left.asked == 0


@pytest.mark.parametrize("trouble", [GONE, RuntimeError("bug")])
async def test_an_unreachable_asker_does_not_keep_a_view_from_being_given_up(
    harness: EngineHarness, trouble: Exception
) -> None:
    harness.surface = left = Left(trouble_telling=trouble)
    harness.model.script = [say("Hello.")]
    assert (await given_up(harness)).turn.status is TurnStatus.DONE
    assert left.asked == 1


async def test_a_platform_that_never_answers_holds_nothing_up(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_delivery, "NOTICE_SECONDS", 0.05)
    harness.surface = left = Left(silent=True)
    harness.model.script = [say("Hello.")]
    assert (await given_up(harness)).turn.status is TurnStatus.DONE
    assert left.asked == 1


async def test_a_long_question_is_named_by_its_beginning(harness: EngineHarness) -> None:
    harness.surface = left = Left()
    harness.model.script = [say("Hello.")]
    await given_up(harness, "why\n" * 1_000)
    ((_, notice),) = left.told
    assert "why why" in notice.text
    assert len(notice.text) < 400


async def test_a_question_that_just_fits_is_named_whole(harness: EngineHarness) -> None:
    harness.surface = left = Left()
    harness.model.script = [say("Hello.")]
    question = "?" * view_delivery.QUESTION_LIMIT
    await given_up(harness, question)
    ((_, notice),) = left.told
    assert question in notice.text
