from __future__ import annotations

from dataclasses import replace

from bot.domain.messages import ImagePart, TextPart, ToolResult, assistant
from bot.domain.turns import ModelStep
from bot.storage.bodies import read_reply, read_result, reply_body, result_body


def test_an_image_that_was_kept_before_images_had_names_is_read_without_one() -> None:
    body = result_body(ToolResult("c", (ImagePart(b"x", "image/png", "cat.png"),)))
    del body["parts"][0]["name"]
    assert read_result(body) == ToolResult("c", (ImagePart(b"x", "image/png"),))


def test_a_result_that_the_bot_has_written_is_one_when_it_is_read() -> None:
    refusal = ToolResult("c", (TextPart("Not run."),), is_error=True, own=True)
    assert read_result(result_body(refusal)) == refusal
    assert "own" not in result_body(replace(refusal, own=False))


def test_a_reply_that_was_kept_before_models_were_named_is_read_without_one() -> None:
    step = ModelStep(1, assistant("Hello."), model="openai:best")
    body = reply_body(step)
    assert read_reply(1, body) == step
    del body["model"]
    assert read_reply(1, body) == ModelStep(1, assistant("Hello."))
