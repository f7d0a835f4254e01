"""A person at the terminal reviews the instructions of a server, and sees results of its tools as tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.fakes.llm import FakeLanguageModel, Reply, Request, Say
from tests.fakes.programs import python
from tests.stories.installation import Installation

WAREHOUSE = Path(__file__).parents[1] / "fakes" / "mcp" / "warehouse.py"
POLICY = '[[rules]]\npolicy = "ALWAYS_ALLOW"\nserver = "w"\n'
BEFORE, AFTER = "Prices are in yen.", "Prices are in dollars."
APPROVE = re.compile(r"(/mcp review approve w mcp:instructions --definition [0-9a-f]{64})")
TABLE = (
    "sku   name            stock  price",
    "A-1   Tea 緑茶        12     4.5",
    "B-22  Cup | saucer    0",
    "C-3   *Kettle* <@U1>  3      39.0",
)


def clerk(request: Request) -> Reply:
    return Say(f"I know: {about(request)}")


def about(request: Request) -> str:
    """The instructions that the model has been given."""
    told = str(request.messages)
    return "yen" if BEFORE in told else "dollars" if AFTER in told else "nothing"


async def test_instructions_are_given_once_reviewed_and_a_list_is_a_table(
    tmp_path: Path, model: FakeLanguageModel
) -> None:
    file = tmp_path / "instructions.txt"
    file.write_text(BEFORE, encoding="utf-8")
    entry = {"command": python(), "args": [str(WAREHOUSE)], "env": {"INSTRUCTIONS_FILE": str(file)}, "trusted": True}
    place = Installation(tmp_path, {"w": entry}, model=model, policy=POLICY)
    async with place.terminal(columns=200, rows=60) as terminal:
        await terminal.asks("what do you know?", "I know: nothing")
        await terminal.asks("/mcp run w list_items", *TABLE)
        assert await terminal.leaves() == 0

    config = {"mcpServers": {"w": {**entry, "use_instructions": True}}}
    (tmp_path / "config" / "mcp_servers.json").write_text(json.dumps(config), encoding="utf-8")
    async with place.terminal(columns=200, rows=60) as terminal:
        await terminal.asks("/mcp sync w", "w is synced", "Review the instructions")
        await terminal.asks("/mcp review w", "The text for models of w waits for a review", BEFORE)
        match = APPROVE.search(terminal.text)
        assert match is not None
        await terminal.asks(match[1], "Approved: the instructions of w")
        await terminal.asks("what do you know now?", "I know: yen")
        assert await terminal.leaves() == 0

    file.write_text(AFTER, encoding="utf-8")
    async with place.terminal(columns=200, rows=60) as terminal:
        await terminal.asks("/mcp sync w", "w is synced", "Review the instructions")
        await terminal.asks("/mcp show w", "not used, because they wait for review: /mcp review w")
        await terminal.asks("and now?", "I know: nothing", "The instructions of server w wait for an admin's review")
        assert await terminal.leaves() == 0
