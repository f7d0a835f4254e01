"""A server from a launch template: from the operator's file to the process, and after a change of the template."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from bot.app.components import AppServices
from bot.app.database import open_migrated_database
from bot.app.operator_files import read_operator_files
from bot.app.runtime import open_services
from bot.domain.commands import Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.servers import ConnectPolicy, ServerSnapshot, ServerStatus, StdioTransport, TemplateLaunch
from bot.settings import read_settings

RAW = Path(__file__).parent.parent / "fakes/mcp/raw.py"
SCRIPT = {"listings": [[{"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}]]}
SAM = Member(Author("slack", "U1", "Sam"))
HALL = ConversationKey("slack", "T1", "C1", "1")


def template(folder: Path, *more: str) -> str:
    words = ["-S", "-E", str(RAW), json.dumps(SCRIPT).replace("{", "{{").replace("}", "}}"), "{path}", *more]
    listed = ", ".join(f"'{word}'" for word in words)
    return f"""
[templates.scripted]
command = "python"
args = [{listed}]
[templates.scripted.slots.path]
type = "path"
below = "{folder / "below"}"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below/docs").mkdir(parents=True)
    (tmp_path / "config").mkdir()
    (tmp_path / "config/launch_templates.toml").write_text(template(tmp_path))
    return tmp_path


@asynccontextmanager
async def office() -> AsyncIterator[AppServices]:
    settings = read_settings(admins="slack:U1")
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_migrated_database(settings, migrate=True))
        yield await stack.enter_async_context(
            open_services(settings, read_operator_files(settings), database, operator="", connect=ConnectPolicy.LAZY)
        )


async def last(made: AppServices, request: Invocation | FormSubmission) -> Reply | Form:
    return [answer async for answer in made.commands.handle(request)][-1]


async def run_command(made: AppServices, line: str) -> Reply | Form:
    command, *words = line.split()
    return await last(made, Invocation(command, tuple(words), SAM, HALL))


async def add_server(made: AppServices) -> Reply:
    form = await run_command(made, "mcp add docs template=scripted path=docs")
    assert isinstance(form, Form), form
    reply = await last(made, FormSubmission(form.id, {**form.carried, "confirm": "docs"}, SAM, HALL))
    assert isinstance(reply, Reply)
    return reply


def state(made: AppServices) -> ServerSnapshot:
    [found] = made.toolbox.servers()
    return found


async def test_an_admin_in_a_chat_starts_a_program_of_the_operators_and_no_other(folder: Path) -> None:
    async with office() as made:
        reply = await add_server(made)
        assert "1 tool" in reply.text, reply
        assert state(made).status is ServerStatus.CONNECTED
        transport = state(made).config.transport
        assert isinstance(transport, StdioTransport)
        assert transport.args[-1] == str(folder / "below/docs")
        [record] = await made.stores.servers.records()
        assert record.config.transport == StdioTransport("", launch=TemplateLaunch("scripted", {"path": "docs"}))
    async with office() as made:
        assert (await made.toolbox.connect(state(made).config.id)).status is ServerStatus.CONNECTED


@pytest.mark.usefixtures("folder")
async def test_starts_by_templates_are_in_the_audit() -> None:
    async with office() as made:
        await add_server(made)
        reply = await run_command(made, "mcp audit docs")
        assert isinstance(reply, Reply)
        assert "scripted" in repr(reply)
        assert "docs" in repr(reply)


async def test_a_path_that_is_not_there_or_leads_out_is_refused_when_it_is_typed(folder: Path) -> None:
    (folder / "below/out").symlink_to(folder)
    async with office() as made:
        for path, why in (("none", "There is no"), ("out", "leads out of")):
            reply = await run_command(made, f"mcp add docs template=scripted path={path}")
            assert isinstance(reply, Reply)
            assert why in dict(reply.details)["path="]
        assert not made.toolbox.servers()


async def test_a_template_that_the_operator_changes_is_started_as_it_is_now(folder: Path) -> None:
    async with office() as made:
        await add_server(made)
        (folder / "config/launch_templates.toml").write_text(template(folder, "--again"))
        difference = await made.administration.reload()
        assert difference.changed == (("launch templates", "scripted"),)
        assert (await made.toolbox.connect(state(made).config.id)).status is ServerStatus.CONNECTED
        transport = state(made).config.transport
        assert isinstance(transport, StdioTransport)
        assert transport.args[-1] == "--again"


async def test_a_template_that_is_taken_away_ends_its_servers_and_says_why(folder: Path) -> None:
    async with office() as made:
        await add_server(made)
        (folder / "config/launch_templates.toml").write_text("")
        await made.administration.reload()
        assert state(made).status is ServerStatus.FAILED
        assert "launch template scripted, which is missing or invalid. Fix: " in state(made).problem
        reply = await run_command(made, "mcp show docs")
        assert isinstance(reply, Reply)
        assert dict(reply.details)["command"] == "template=scripted path=docs"


async def test_values_that_do_not_fit_a_changed_template_start_nothing(folder: Path) -> None:
    async with office() as made:
        await add_server(made)
        changed = template(folder).replace('type = "path"', 'type = "choice"').replace("below =", "choices = ['a'] #")
        (folder / "config/launch_templates.toml").write_text(changed)
        await made.administration.reload()
        assert state(made).status is ServerStatus.FAILED
        assert "path does not fit the launch template scripted as it is now: One of: a. Fix: " in state(made).problem
