"""Every command of the chat in README and the guides, run by a bot.

An admin types them in a Slack channel, document by document and in their order. Servers that a document names exist
when it needs them. Commands that cannot run like this are in `NOT_RUN`, with the reason.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import socket
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot.domain.commands import Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, Member
from tests.app.program import bare
from tests.docs.blocks import PROJECT, Kind, blocks, chat_lines
from tests.fakes.mcp.endpoint import FakeEndpoint, result
from tests.fakes.package_runners import PackageRunners
from tests.fakes.programs import python
from tests.web.api_server import Api, opened_api

ADMIN = Member(Author("slack", "U123", "Ana"), platform_admin=True)
CHANNEL = ConversationKey("slack", "T1", "C0PS", "1700000000.000100")
OPERATOR = Member(Author("console", "owner", "owner"), platform_admin=True)

NOT_RUN: Mapping[str, str] = {
    "/approvals": "is of the platforms: tests/stories/test_team_approvals_inbox.py",
    "/conversations delete": "needs a conversation: tests/stories/test_every_subcommand.py",
    "/conversations export": "the same",
    "/conversations show": "the same",
    "/mcp grants revoke": "needs a grant: tests/admin/test_grants.py",
    "/mcp policy explain 3fA9x_Qk": "needs an earlier call: tests/admin/test_policies.py",
    "/mcp review approve": "needs a tool that waits: tests/admin/test_review.py",
    "/mcp secret rotate tickets sign-in": "needs a sign-in: tests/stories/test_sign_in.py",
    "/mcp secret clear": "the same",
}
"""Commands by how they begin."""

BY_OPERATOR = ("/mcp edit mail", "/usage all")
"""Commands that only the operator may give."""

SHOWN: Mapping[tuple[str, str], str] = {
    ("docs/servers.md", "/mcp add dice"): "1 tool, 1 may read or write: unknown",
}
"""Return the answer to a command in the document."""

BEFORE: Mapping[str, Sequence[str]] = {
    "/ask support": ("/profile bind support channel --agent",),
    "/profile disable tickets": ("/profile bind support channel",),
    "/mcp edit docs repo": ("/mcp remove docs --confirm docs", "/mcp add docs template=git repo=handbook"),
    "/mcp secret rotate": ("/mcp edit tickets --auth api_key --secret env:MCP_SECRET_TICKETS",),
    "/mcp secret set tickets username": ("/mcp edit tickets --auth basic --secret env:MCP_SECRET_TICKETS",),
    "/mcp secret set": ("/mcp edit tickets --auth api_key --secret env:MCP_SECRET_TICKETS",),
    "/mcp verify tickets": ("/mcp enable tickets",),
    "/profile show tickets": ("/profile set tickets --persona Brief.",),
}
"""Commands that come before others, which the documents take for granted."""

PLACEHOLDERS = {
    "NAME SLOT=VALUE": "docs repo=website",
    "KEY=VALUE": "words=hello",
    "CHANNEL": "C0PS",
    "ID": "tickets",
    "NAME": "tickets",
    "OTHER": "desk-of-others",
    "PROMPT": "report",
    "QUESTION": "Anything?",
    "SERVER": "tickets",
    "SLOT": "auth",
    "TOOL": "find",
    "URI": "notes://today",
    "WORDS": "github",
}
SERVERS = ("browser", "crm", "dice", "docs", "files", "jira", "mail", "n8n-server-1", "tickets", "warehouse")
TOOLS = ("add", "close", "create_issue", "find", "find_old", "get_issue", "send")
FOUND = re.compile(r"things? (is|are) wrong")
"""The report of `/mcp doctor` on a server with a problem."""
INCOMPLETE = re.compile(r"`[A-Z]+` is missing:")
MENTION = re.compile(r"/\w+( [a-z]+){0,2}")
"""A command without anything behind it, as it is mentioned between words."""

TEMPLATES = """
[templates.git]
command = "uvx"
args = ["mcp-server-git@2026.10.19", "--repository", "{repo}"]

[templates.git.slots.repo]
type = "path"
below = "FOLDER"
"""
GRANTS = """
[[grant]]
secret = "env:MCP_SECRET_TICKETS"
workspaces = ["slack:T1"]
hosts = ["http://127.0.0.1:PORT"]
"""

LINES = {document: [line for line in lines if "…" not in line] for document, lines in chat_lines().items()}
"""Without forms of commands, such as `/mcp …`."""


@dataclass
class Admin:
    """Gives the commands of a document."""

    api: Api
    dice: str
    """Where the server of the guide listens."""
    rule: str = ""
    """The id of the last rule that a reply has named."""

    async def gives(self, line: str) -> Reply | Form:
        """Give a command; the last of its answers."""
        for word, meant in PLACEHOLDERS.items():
            line = re.sub(rf"(?<![-\w]){word}(?![-\w=])", meant, line)
        line = re.sub(r"\brule_3f9c0a12\b", self.rule, line)
        line = line.replace("http://127.0.0.1:8123/mcp", self.dice).replace("[", "").replace("]", "")
        line = line.replace(
            "/mcp add https://tickets.example.com/mcp", "/mcp add tickets https://tickets.example.com/mcp"
        )
        line = re.sub(r"https://[\w.]+example\.com/mcp", self.api.endpoint.url, line)
        await self._prepare(line)
        answer = await self._give(line)
        if isinstance(answer, Reply):
            self.rule = next(iter(re.findall(r"rule_\w+", f"{answer}")), self.rule)
        return answer

    async def _prepare(self, line: str) -> None:
        """Create the servers that a line names, except the one that it adds, and run the steps before it."""
        there = {state.config.name for state in self.api.runtime.services.toolbox.servers()}
        named = {name for name in SERVERS if re.search(rf"(?<![-\w/]){name}(?![-\w])", line)}
        added = next(iter(re.findall(r"/mcp add (\S+)", line)), "")
        for name in named & there & {added}:
            await self._give(f"/mcp remove {name} --confirm {name}")
        for name in named - there - {added}:
            await self._give(f"/mcp add {name} {self.api.endpoint.url}")
        for start, before in BEFORE.items():
            if line.startswith(start):
                for command in before:
                    await self._confirm(await self._give(command))
                break

    async def _confirm(self, answer: Reply | Form) -> None:
        """Type the name where a form asks for it before a program is started."""
        if isinstance(answer, Form):
            fields = {**answer.carried, "confirm": answer.carried["title"]}
            submission = FormSubmission(answer.id, fields, ADMIN, CHANNEL)
            assert [reply async for reply in self.api.runtime.commands.handle(submission)]

    async def _give(self, line: str) -> Reply | Form:
        name, *words = shlex.split(line.removeprefix("/"))
        request = Invocation(name, tuple(words), OPERATOR if line.startswith(BY_OPERATOR) else ADMIN, CHANNEL)
        return [answer async for answer in self.api.runtime.commands.handle(request)][-1]


async def test_every_command_is_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare(tmp_path, monkeypatch)
    given, failed = 0, []
    async with an_admin(tmp_path, monkeypatch) as admin:
        for document, lines in LINES.items():
            await admin.gives("/profile unbind channel")
            await admin.gives("/profile unbind workspace")
            for line in lines:
                if line.startswith(tuple(NOT_RUN)):
                    continue
                answer = await admin.gives(line)
                given += 1
                if isinstance(answer, Reply) and (problem := problem_of(document, line, answer)):
                    failed.append(f"{document}: {line}: {problem}")
    assert not failed, "\n".join(failed)
    assert given > 150


def problem_of(document: str, line: str, reply: Reply) -> str:
    """Return the error in the reply to a line, empty without one."""
    text = f"{reply.text} {reply.details}"
    shown = next((text for (of, start), text in SHOWN.items() if of == document and line.startswith(start)), "")
    if shown not in text:
        return f"does not show {shown}: {text}"
    if not reply.failed or FOUND.search(text) or (MENTION.fullmatch(line) and INCOMPLETE.match(text)):
        return ""
    return text


def test_commands_that_are_not_run_are_in_the_documents() -> None:
    lines = [line for lines in LINES.values() for line in lines]
    assert [start for start in NOT_RUN if not any(line.startswith(start) for line in lines)] == []


@asynccontextmanager
async def an_admin(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Admin]:
    """A bot with an admin, in a folder with the operator's files of the guides."""
    (folder / "repositories" / "handbook").mkdir(parents=True)
    (folder / "repositories" / "website").mkdir()
    (folder / "policy.toml").write_text("", encoding="utf-8")
    (folder / "templates.toml").write_text(TEMPLATES.replace("FOLDER", str(folder / "repositories")), encoding="utf-8")
    (folder / "grants.toml").write_text("", encoding="utf-8")
    monkeypatch.setenv("PATH", PackageRunners(folder).path)
    monkeypatch.setenv("MCP_SECRET_TICKETS", "tk-5d0e2f19ab3c-documented")
    settings: dict[str, Any] = {
        "mcp_allowed_hosts": "127.0.0.1",
        "mcp_launch_templates_file": folder / "templates.toml",
        "mcp_secret_grants_file": folder / "grants.toml",
        "public_url": "https://bot.example.com",
    }
    servers = {name: bundled_server(name) for name in ("weather", "notes", "knowledge")}
    async with (
        opened_api(folder, servers=servers, operator=OPERATOR.author.principal, **settings) as api,
        dice(folder) as address,
    ):
        offer(api.endpoint)
        grants = GRANTS.replace("PORT", str(api.endpoint.port))
        (folder / "grants.toml").write_text(grants, encoding="utf-8")
        await api.runtime.services.administration.reload()
        yield Admin(api, address)


def offer(endpoint: FakeEndpoint) -> None:
    """Give a server the tools, the resource and the prompt that the guides name."""
    endpoint.capabilities = {"tools": {}, "resources": {}, "prompts": {}}
    endpoint.speak_modern(*TOOLS)
    text = {"uri": "notes://today", "text": "Nothing new."}
    said = {"role": "user", "content": {"type": "text", "text": "Report on today."}}
    answers: dict[str, dict[str, Any]] = {
        "resources/list": {"resources": [{"uri": "notes://today", "name": "invoices 2026"}]},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/read": {"contents": [text]},
        "prompts/list": {"prompts": [{"name": "report", "arguments": [{"name": "words"}]}]},
        "prompts/get": {"messages": [said]},
    }
    for method, answer in answers.items():
        endpoint.on[method] = partial(result, value=answer)


@asynccontextmanager
async def dice(folder: Path) -> AsyncIterator[str]:
    """The server of the guide, on a port of its own; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    [source] = [block.text for block in blocks(Kind.PYTHON) if "port=8123" in block.text]
    (folder / "dice.py").write_text(source.replace("8123", str(port)), encoding="utf-8")
    program = await asyncio.create_subprocess_exec(python(), str(folder / "dice.py"), stdout=DEVNULL, stderr=DEVNULL)
    try:
        async with asyncio.timeout(60):
            while not await listens(port):
                await asyncio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        program.kill()
        await program.wait()


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    return True


def bundled_server(name: str) -> dict[str, Any]:
    """The entry of a bundled server."""
    variables = {"PYTHONPATH": str(PROJECT), "WEATHER_SAMPLE": "always"}
    return {"command": python(), "args": ["-m", f"mcp_servers.{name}"], "env": variables, "trusted": True}
