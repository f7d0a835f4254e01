"""The pieces of a stream: text, updates of tasks and of the plan, blocks."""

from __future__ import annotations

from tests.fakes.slack.blocks import SOURCE, STATUS, problems_in
from tests.fakes.slack.messages import Json
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.shapes import Problems, anything, by_type, maybe, record, rows, string

FIELD = 256
"""Characters of a task's fields and of the plan's title, as documented."""
CHUNK = by_type(
    {
        "markdown_text": record({"text": string(12_000)}),
        "plan_update": record({"title": string(FIELD)}),
        "task_update": record(
            {
                "id": string(255),
                "title": string(FIELD),
                "status": STATUS,
                "details": maybe(string(FIELD, 0)),
                "output": maybe(string(FIELD, 0)),
                "sources": maybe(rows(SOURCE, 50, 0)),
            }
        ),
        "blocks": record({"blocks": anything}),
    },
    "chunk",
)


def checked_chunks(chunks: list[Json]) -> list[Json]:
    """Return the chunks as they are, if each is one.

    Raises:
        Refused: invalid_chunks, msg_blocks_too_many.
    """
    problems = Problems("message")
    for index, chunk in enumerate(chunks):
        at = f"/chunks/{index}"
        CHUNK(chunk, at, problems)
        if chunk.get("type") == "blocks":
            problems.found += problems_in(chunk.get("blocks"), "message", f"{at}/blocks")
    if sum(len(chunk["blocks"]) for chunk in chunks if isinstance(chunk.get("blocks"), list)) > 50:
        raise Refused("msg_blocks_too_many")
    if problems.found:
        messages = [f"[ERROR] {line}" for line in problems.found]
        raise Refused("invalid_chunks", errors=problems.found, response_metadata={"messages": messages})
    return chunks
