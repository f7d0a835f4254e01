"""Images and files in tool results, on each database: stored and deleted with their turn."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from bot.domain.completions import StopReason
from bot.domain.messages import (
    FilePart,
    ImageAudience,
    ImagePart,
    StoredFile,
    TextPart,
    ToolCall,
    ToolResult,
    assistant,
)
from bot.domain.turns import Claim, ModelStep, StepStatus, ToolRef, ToolStep, TurnStatus
from bot.errors import LostLease, NotFound
from bot.storage.codec import decode
from bot.storage.reporting import SqlReporting
from bot.storage.tables import files, steps
from bot.storage.turn_log import records as turn_records
from tests.fakes.parts import ANA, HALL, NEWEST
from tests.turn_log_harness import Harness, running

PNG = b"\x89PNG\r\n\x1a\n\x00 cat" * 1000
WANTS = ModelStep(1, assistant("", ToolCall("c", "s__draw")), StopReason.TOOLS)


def drawing(n: int) -> ToolStep:
    return ToolStep(n, ToolCall("c", "s__draw"), ToolRef("s", "draw"), StepStatus.READY, repeatable=True)


async def store_calls(harness: Harness, calls: int = 1) -> Claim:
    claim = await running(harness)
    await harness.log.append(claim, WANTS, [drawing(n) for n in range(2, 2 + calls)])
    return claim


def result(*parts: TextPart | ImagePart | FilePart) -> ToolResult:
    return ToolResult("c", parts)


async def store_files(harness: Harness, claim: Claim, n: int, *parts: ImagePart | FilePart) -> list[StoredFile]:
    record = await harness.log.finish_call(claim, n, StepStatus.DONE, result(*parts))
    found = record.calls[n - 2].result
    assert found is not None
    return [part for part in found.parts if isinstance(part, StoredFile)]


async def test_a_result_comes_back_with_its_bytes_put_away(harness: Harness) -> None:
    claim = await store_calls(harness)
    returned = result(
        TextPart("Here."), ImagePart(PNG, "image/png", "cat.png", ImageAudience.MODEL), FilePart(b"\0", "a/b", "n")
    )
    record = await harness.log.finish_call(claim, 2, StepStatus.DONE, returned)
    found = record.calls[0].result
    assert found is not None
    text, image, file = found.parts
    assert text == TextPart("Here.")
    assert isinstance(image, StoredFile)
    assert isinstance(file, StoredFile)
    assert image == StoredFile(image.id, "image/png", "cat.png", len(PNG), ImageAudience.MODEL)
    assert file == StoredFile(file.id, "a/b", "n", 1, ImageAudience.PEOPLE)
    assert (await harness.log.get_view(claim.turn_id)).steps == record.steps
    assert await harness.log.get_file(claim.turn_id, image.id) == PNG
    assert await harness.log.get_file(claim.turn_id, file.id) == b"\0"
    row = sa.select(sa.func.length(sa.cast(steps.c.result, sa.Text))).where(steps.c.n == 2)
    assert await harness.database.run(lambda connection: connection.execute(row).scalar_one()) < 1000


async def test_a_file_is_its_own_turns_alone(harness: Harness) -> None:
    claim = await store_calls(harness)
    (image,) = await store_files(harness, claim, 2, ImagePart(PNG, "image/png"))
    with pytest.raises(NotFound):
        await harness.log.get_file("another", image.id)
    with pytest.raises(NotFound):
        await harness.log.get_file(claim.turn_id, "another")


async def test_the_same_bytes_are_kept_once(harness: Harness) -> None:
    claim = await store_calls(harness, 2)
    first = await store_files(harness, claim, 2, ImagePart(PNG, "image/png"), FilePart(PNG, "image/png", "again.png"))
    second = await store_files(harness, claim, 3, ImagePart(PNG, "image/png"))
    assert len({each.id for each in (*first, *second)}) == 1
    count = sa.select(sa.func.count()).select_from(files)
    assert await harness.database.run(lambda connection: connection.execute(count).scalar()) == 1


async def test_a_turn_keeps_so_many_bytes_and_no_more(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_records, "MOST_BYTES", 1000)
    claim = await store_calls(harness, 3)
    (large,) = await store_files(harness, claim, 2, FilePart(b"a" * 990, "a/b", "large"))
    small, over = await store_files(
        harness, claim, 3, FilePart(b"b" * 10, "a/b", "small"), FilePart(b"c", "a/b", "over")
    )
    (again,) = await store_files(harness, claim, 4, FilePart(b"b" * 10, "a/b", "again"))
    assert [bool(each.id) for each in (large, small, over, again)] == [True, True, False, True]
    assert (over.name, over.size) == ("over", 1)


async def test_files_go_with_their_turn(harness: Harness) -> None:
    claim = await store_calls(harness)
    (image,) = await store_files(harness, claim, 2, ImagePart(PNG, "image/png"))
    await harness.log.finish(claim, TurnStatus.DONE, [ModelStep(3, assistant("There."))], "")
    await harness.log.mark_delivered(claim.turn_id, NEWEST)
    assert await harness.log.get_file(claim.turn_id, image.id) == PNG
    assert await SqlReporting(harness.database).delete(HALL, ANA)
    with pytest.raises(NotFound):
        await harness.log.get_file(claim.turn_id, image.id)


async def test_a_file_after_the_lease_was_lost_is_listed_without_its_bytes(harness: Harness) -> None:
    claim = await running(harness)
    unsafe = ToolStep(2, ToolCall("c", "s__draw"), ToolRef("s", "draw"), StepStatus.READY)
    await harness.log.append(claim, WANTS, [unsafe])
    await harness.log.start_call(claim, 2)
    log = await harness.restart()
    (again,) = await log.claim(1)
    await log.resume(again)
    with pytest.raises(LostLease):
        await log.finish_call(claim, 2, StepStatus.DONE, result(ImagePart(PNG, "image/png")))
    row = sa.select(steps.c.late_result).where(steps.c.n == 2)
    told = await harness.database.run(lambda connection: connection.execute(row).scalar_one())
    assert decode(ToolResult, told).parts == (StoredFile("", "image/png", "", len(PNG), ImageAudience.ALL),)
