from __future__ import annotations

from bot.domain.messages import ImagePart, ToolResult
from bot.storage.bodies import read_result, result_body


def test_an_image_that_was_kept_before_images_had_names_is_read_without_one() -> None:
    body = result_body(ToolResult("c", (ImagePart(b"x", "image/png", "cat.png"),)))
    del body["parts"][0]["name"]
    assert read_result(body) == ToolResult("c", (ImagePart(b"x", "image/png"),))
