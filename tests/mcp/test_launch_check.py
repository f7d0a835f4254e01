"""Servers that start by the operator's launch templates. A start uses the template's current version."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bot.domain.launch_templates import LaunchTemplate, PathRule, SecretRule, TemplateSlot
from bot.domain.servers import DesiredServer, ServerConfig, ServerStatus, StdioTransport, TemplateLaunch
from bot.mcp.config.checks import AllowedTargets, resolve_launch
from bot.mcp.errors import InvalidDefinition
from bot.mcp.toolbox import McpToolbox
from tests.fakes.programs import python
from tests.mcp.toolboxes import FAKES, call, running_toolbox, text, until

TOOLS = '[{"name": "start", "inputSchema": {"type": "object"}}]'
SCRIPT = f'{{"listings": [[{{"tools": {TOOLS}}}]], "calls": {{"start": {{"do": "pid"}}}}}}'


def template(folder: Path, *, program: str = "raw.py") -> LaunchTemplate:
    """Return a template of the scripted server with a path argument, which the server ignores."""
    args = ("-S", "-E", str(FAKES / program), SCRIPT.replace("{", "{{").replace("}", "}}"), "{path}")
    slots = (TemplateSlot("path", PathRule(str(folder))), TemplateSlot("key", SecretRule("A_KEY")))
    return LaunchTemplate("scripted", "python", args, slots, env={"TZ": "UTC"})


def server(path: str = "docs") -> ServerConfig:
    """Return a server of the template, as it is stored."""
    return ServerConfig("s", StdioTransport("", launch=TemplateLaunch("scripted", {"path": path})), id="an-id")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "below" / "docs").mkdir(parents=True)
    return tmp_path / "below"


def problem(box: McpToolbox) -> str:
    return next(state.problem for state in box.servers())


async def test_a_template_starts_a_server_without_any_program_being_allowed(folder: Path) -> None:
    templates = {"scripted": template(folder)}
    config = resolve_launch(server(), templates)
    async with running_toolbox(config, allowances=AllowedTargets(templates=lambda: templates)) as box:
        await until(lambda: box.servers()[0].status is ServerStatus.CONNECTED)
        assert [tool.name for tool in (await box.offer()).tools] == ["s__start"]


async def test_an_unknown_template_is_not_started(folder: Path) -> None:
    config = resolve_launch(server(), {"scripted": template(folder)})
    async with running_toolbox(config) as box:
        assert "launch template scripted, which is missing" in problem(box)
        assert "Fix:" in problem(box)


async def test_a_definition_that_starts_something_else_than_its_template_is_not_started(folder: Path) -> None:
    templates = {"scripted": template(folder)}
    good = resolve_launch(server(), templates)
    assert isinstance(good.transport, StdioTransport)
    for transport in (
        replace(good.transport, command="sh"),
        replace(good.transport, args=(*good.transport.args, "--more")),
        replace(good.transport, cwd="/"),
        replace(good.transport, env={"TZ": "Asia/Tokyo"}),
        replace(good.transport, env={"TZ": "UTC", "LD_PRELOAD": "evil.so"}),
    ):
        forged = DesiredServer(replace(good, transport=transport))
        async with running_toolbox(forged, allowances=AllowedTargets(templates=lambda: templates)) as box:
            assert box.servers()[0].status is ServerStatus.FAILED
            assert "launch template scripted" in problem(box)
            assert "evil" not in problem(box)


async def test_a_template_that_is_taken_away_while_the_server_rests_keeps_it_from_starting_again(folder: Path) -> None:
    templates: dict[str, LaunchTemplate] = {"scripted": template(folder)}
    config = resolve_launch(server(), templates)
    async with running_toolbox(config, allowances=AllowedTargets(templates=lambda: templates)) as box:
        await until(lambda: box.servers()[0].status is ServerStatus.CONNECTED)
        templates["scripted"] = replace(templates["scripted"], args=("other", "{path}"))
        await call((await box.offer()).tools[0], box)  # it still runs as it was started
        await box.reconcile([DesiredServer(replace(config, title="anew"))])
        assert "is not what it was when this server was looked at" in problem(box)
        templates.clear()
        await box.reconcile([DesiredServer(replace(config, title="once more"))])
        assert "which is missing or invalid" in problem(box)


async def test_the_template_is_looked_at_again_just_before_the_process_starts(folder: Path) -> None:
    templates: dict[str, LaunchTemplate] = {"scripted": template(folder)}
    config = replace(resolve_launch(server(), templates), auto_connect=False)
    async with running_toolbox(config, allowances=AllowedTargets(templates=lambda: templates)) as box:
        templates["scripted"] = replace(templates["scripted"], command="sh")
        state = await box.connect("an-id")
        assert state.status is ServerStatus.FAILED
        assert "is not what it was" in state.problem
        assert "run /mcp reload, then" in state.problem


@pytest.mark.parametrize("where", ["elsewhere", "gone"])
async def test_a_path_that_leads_out_or_is_gone_when_the_process_starts_starts_nothing(
    folder: Path, where: str
) -> None:
    templates = {"scripted": template(folder)}
    config = replace(resolve_launch(server(), templates), auto_connect=False)
    async with running_toolbox(config, allowances=AllowedTargets(templates=lambda: templates)) as box:
        (folder / "docs").rmdir()
        if where == "elsewhere":
            (folder.parent / "secret").mkdir()
            (folder / "docs").symlink_to(folder.parent / "secret")
        state = await box.connect("an-id")
        said = "leads out of" if where == "elsewhere" else "There is no"
        assert said in state.problem
        assert "Fix:" in state.problem
        checks = [check async for check in box.diagnose("an-id")]
        assert any(check.name == "command" and said in check.detail for check in checks)


async def test_the_program_gets_the_secret_of_its_slot_and_the_fixed_values_of_the_template(folder: Path) -> None:
    slots = (TemplateSlot("key", SecretRule("FAKE_TOKEN")),)
    fixed = {"PARENT_SECRET": "none"}
    templates = {
        "scripted": LaunchTemplate("scripted", python(), (str(FAKES / "server.py"), "stdio"), slots, env=fixed)
    }
    config = resolve_launch(
        ServerConfig("s", StdioTransport("", launch=TemplateLaunch("scripted")), id="an-id"), templates
    )
    assert isinstance(config.transport, StdioTransport)
    config = replace(config, transport=replace(config.transport, env={**config.transport.env, "FAKE_TOKEN": "a key"}))
    async with running_toolbox(config, allowances=AllowedTargets(templates=lambda: templates)) as box:
        await until(lambda: box.servers()[0].status is ServerStatus.CONNECTED)
        whoami = next(tool for tool in box.capabilities("an-id").tools if tool.original_name == "whoami")
        found = json.loads(text(await call(whoami, box)))
        assert (found["token"], found["parent_secret"]) == ("a key", "none")


def test_values_that_no_longer_fit_are_told_with_the_slot(folder: Path) -> None:
    with pytest.raises(InvalidDefinition) as caught:
        resolve_launch(server("../x"), {"scripted": template(folder)})
    assert "path does not fit the launch template scripted as it is now: A path below" in caught.value.sentence
