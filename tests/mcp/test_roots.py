"""Roots that a local server may list: the folders of the operator's file, none by default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bot.domain.servers import Protocol, ServerConfig
from tests.mcp.test_calls import heard, scripted_server
from tests.mcp.test_instructions import warehouse
from tests.mcp.toolboxes import call, connected_toolbox, error_text, text, tool_by_name

WANTS_FOLDERS = {
    "result": {
        "resultType": "input_required",
        "requestState": "step 2",
        "inputRequests": {"r": {"method": "roots/list"}},
    }
}


async def test_a_server_in_an_older_version_lists_the_folders_that_the_operator_names(tmp_path: Path) -> None:
    server = warehouse(tmp_path, protocol=Protocol.V2025_11_25, roots=("/srv/shared", "/srv/Große Ablage"))
    async with connected_toolbox(server) as box:
        listed = text(await call(tool_by_name(box, "list_folders"), box))
    assert listed == "shared=file:///srv/shared, Große Ablage=file:///srv/Gro%C3%9Fe%20Ablage"


async def test_without_folders_a_server_gets_none(tmp_path: Path) -> None:
    async with connected_toolbox(warehouse(tmp_path, protocol=Protocol.V2025_11_25)) as box:
        assert "roots" in error_text(await call(tool_by_name(box, "list_folders"), box)).lower()


async def test_in_the_newer_version_a_call_goes_on_with_the_folders_and_never_for_ever(tmp_path: Path) -> None:
    config, record = scripted_server(tmp_path, t=WANTS_FOLDERS)
    assert isinstance(config, ServerConfig)
    async with connected_toolbox(replace(config, roots=("/srv/shared",))) as box:
        assert "again and again" in error_text(await call(tool_by_name(box, "t"), box))
    first, second, *_ = (message["params"] for message in heard(record, "tools/call"))
    assert "inputResponses" not in first
    assert second["requestState"] == "step 2"
    assert second["inputResponses"] == {"r": {"roots": [{"uri": "file:///srv/shared", "name": "shared"}]}}


async def test_in_the_newer_version_a_server_without_folders_is_refused_with_a_reason(tmp_path: Path) -> None:
    config, _ = scripted_server(tmp_path, t=WANTS_FOLDERS)
    async with connected_toolbox(config) as box:
        assert "a list of folders (roots)" in error_text(await call(tool_by_name(box, "t"), box))
