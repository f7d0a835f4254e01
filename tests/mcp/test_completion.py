"""Suggestions of a server for arguments of its prompts and resource templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.domain.servers import CompletionTarget
from bot.mcp.server import connection
from tests.mcp.test_instructions import warehouse
from tests.mcp.toolboxes import connected_toolbox, raw


async def test_a_servers_suggestions_for_a_begun_value_are_returned(tmp_path: Path) -> None:
    async with connected_toolbox(warehouse(tmp_path)) as box:
        assert await box.complete("file:s", CompletionTarget("report", "city"), {}) == (
            "Kyoto", "Osaka", "Otsu", "Oxford", "東京",
        )  # fmt: skip
        assert await box.complete("file:s", CompletionTarget("report", "city", "o"), {}) == ("Osaka", "Otsu", "Oxford")
        assert await box.complete("file:s", CompletionTarget("report", "year"), {}) == ()


async def test_the_other_values_reach_the_server(tmp_path: Path) -> None:
    async with connected_toolbox(warehouse(tmp_path)) as box:
        target = CompletionTarget("stock://{city}/{sku}", "sku", is_template=True)
        assert (await box.complete("file:s", target, {"city": "Kyoto"}))[0] == "A-1 of Kyoto"


async def test_a_server_that_has_no_suggestions_or_is_slow_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected_toolbox(raw(script={"listings": [[{"tools": []}]]})) as box:
        assert await box.complete("file:s", CompletionTarget("report", "city"), {}) == ()
    monkeypatch.setattr(connection, "_COMPLETION_SECONDS", 0.3)
    async with connected_toolbox(warehouse(tmp_path)) as box:
        assert await box.complete("file:s", CompletionTarget("report", "city", "slow"), {}) == ()
        monkeypatch.setattr(connection, "_COMPLETION_SECONDS", 30.0)
        assert await box.complete("file:s", CompletionTarget("report", "city", "k"), {}) == ("Kyoto",)
