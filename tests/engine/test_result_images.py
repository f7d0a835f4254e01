"""Images and files in tool results, for the model and the platforms."""

from __future__ import annotations

import pytest

from bot.domain.completions import Capabilities, ModelRequest
from bot.domain.messages import (
    FilePart,
    ImageAudience,
    ImagePart,
    ResultPart,
    StoredFile,
    TextPart,
    ToolCall,
    ToolResult,
)
from bot.domain.tools import CallReturned, ToolOutcome
from bot.engine.prompt.builder import MAX_IMAGES
from bot.errors import NotFound
from bot.ports import CallContext
from tests.engine.conftest import EngineHarness
from tests.fakes.parts import ask_for, call, message, running, say, tool

SEEING = Capabilities(images=True)


def png(n: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + bytes([n])


def returning(*parts: ResultPart) -> object:
    async def behave(asked: ToolCall, _context: CallContext) -> ToolOutcome:
        return CallReturned(ToolResult(asked.id, parts))

    return behave


def results(request: ModelRequest) -> list[tuple[ResultPart, ...]]:
    return [part.parts for each in request.messages for part in each.parts if isinstance(part, ToolResult)]


async def run_rounds(
    harness: EngineHarness, *rounds: tuple[ResultPart, ...], capabilities: Capabilities = SEEING
) -> str:
    """Run a turn in which each round calls a tool that returns these parts. Return its id."""
    harness.model.capabilities = capabilities
    harness.allow(*(f"s__t{n}" for n in range(len(rounds))))
    for n, parts in enumerate(rounds):
        harness.toolbox.add(tool(f"s__t{n}"), returning(*parts))  # type: ignore[arg-type]
        harness.model.script.append(ask_for(call(f"s__t{n}", f"c{n}")))
    harness.model.script.append(say("There."))
    engine = harness.engine()
    async with running(engine):
        receipt = await engine.receive(message("Show me."))
        await harness.surface.wait_for_end(receipt.turn_id)
    return receipt.turn_id


async def test_a_model_that_sees_gets_images_except_those_for_users_alone(
    harness: EngineHarness,
) -> None:
    image = ImagePart(png(1), "image/png", "cat.png")
    private = ImagePart(png(2), "image/png", "", ImageAudience.PEOPLE)
    await run_rounds(
        harness, (TextPart("Here."), image, TextPart("[Image: image/png]"), private, FilePart(b"x", "a/b", "f"))
    )
    assert results(harness.model.requests[-1]) == [(TextPart("Here."), image, TextPart("[Image: image/png]"))]


async def test_a_model_that_does_not_see_is_told_that_there_is_an_image(harness: EngineHarness) -> None:
    await run_rounds(
        harness, (TextPart("Here."), ImagePart(png(1), "image/png")), capabilities=Capabilities(images=False)
    )
    assert results(harness.model.requests[-1]) == [(TextPart("Here."), TextPart("[Image: image/png]"))]


async def test_an_image_too_large_for_the_model_is_named(harness: EngineHarness) -> None:
    small = Capabilities(images=True, image_bytes=len(png(1)))
    await run_rounds(
        harness, (ImagePart(png(1), "image/png"), ImagePart(png(2) + b"x", "image/png")), capabilities=small
    )
    assert results(harness.model.requests[-1]) == [(ImagePart(png(1), "image/png"), TextPart("[Image: image/png]"))]


async def test_of_many_images_the_newest_go_along(harness: EngineHarness) -> None:
    await run_rounds(harness, *((ImagePart(png(n), "image/png"),) for n in range(MAX_IMAGES + 2)))
    found = [parts[0] for parts in results(harness.model.requests[-1])]
    text_part = TextPart("[Image: image/png]")
    assert found == [text_part, text_part, *(ImagePart(png(n), "image/png") for n in range(2, MAX_IMAGES + 2))]


async def test_a_platform_can_read_the_returned_files(harness: EngineHarness) -> None:
    turn_id = await run_rounds(harness, (FilePart(b"pool,20\n", "text/csv", "pools.csv"),))
    for view in (await harness.surface.wait_for_end(turn_id), await harness.engine().view(turn_id)):
        (file,) = (part for step in view.steps for part in getattr(getattr(step, "result", None), "parts", ()))
        assert isinstance(file, StoredFile)
        assert view.read is not None
        assert await view.read(file.id) == b"pool,20\n"
        with pytest.raises(NotFound):
            await view.read("another")
