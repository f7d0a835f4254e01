"""Every verb of the commands, typed at the real terminal.

One session of the operator runs each of them once, one of a user without rights tries the same, and the audit in the
database has each change once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.domain.commands import RequiredRole
from tests.admin.servers import CommandHarness
from tests.fakes.llm import FakeLanguageModel, Reply, Request, Say
from tests.fakes.mcp.endpoint import Answer, FakeEndpoint, Message, result
from tests.fakes.terminal import ProgramOnTerminal
from tests.platforms.console.terminal import prompt_line
from tests.stories.installation import Installation
from tests.stories.test_approvals import KEYS

FIRST, SECOND = "tk-4c0de2f19ab3-first", "tk-7be1905dd3aa-second"
"""Inputs for a requested secret."""
TOKEN = "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD2eF4"
TOOLS = tuple(f"look_{number:02}" for number in range(1, 13))
EMPTY = "\x15"
"""Ctrl-U, which clears a field."""
COLUMNS, ROWS = 200, 70
REFUSED = "Only an administrator can do this."


@dataclass(frozen=True)
class Fill:
    """One requested line: its label, its present value, and the pressed keys. `open` means that another line of the
    same field follows.
    """

    label: str
    keys: str = ""
    holds: str = ""
    hidden: bool = False
    open: bool = False


@dataclass(frozen=True)
class Typed:
    """A typed line, the answers to its questions, the expected texts below it, and the entry in the audit."""

    line: str
    sees: tuple[str, ...]
    fills: tuple[Fill, ...] = ()
    audit: tuple[str, ...] = ()
    signed: bool = False
    who: RequiredRole = RequiredRole.ADMINS


def typed_line(line: str, *sees: str, **more: object) -> Typed:
    return Typed(line, sees, **more)  # type: ignore[arg-type]


def for_all(line: str, *sees: str) -> Typed:
    return Typed(line, sees, who=RequiredRole.EVERYONE)


def keep(*labels: str) -> tuple[Fill, ...]:
    """Fields that stay empty."""
    return tuple(Fill(label) for label in labels)


ADDING = (
    Fill("Name", "Ticket desk"),
    Fill("Transport", holds="streamable_http"),
    Fill("Address or command line", "URL"),
    Fill("Sign-in", f"{EMPTY}api_key", holds="none"),
    Fill("Policy", holds="ask"),
    Fill("Header", holds="Authorization"),
    Fill("Secret reference"),
    Fill("Secret", FIRST, hidden=True),
)
EDITING = (
    Fill("Name", holds="Ticket desk"),
    Fill("Description", "Where tickets are"),
    Fill("Server address", holds="URL"),
    Fill("Connect at the start", holds="yes"),
    Fill("Trusted", f"{EMPTY}yes", holds="no"),
    Fill("Sign-in", holds="api_key"),
    Fill("Header", holds="Authorization"),
    *keep("User name reference", "Secret reference", "Other headers", "System instruction", "Response instruction"),
    Fill("Instructions of the server", holds="no"),
    Fill("Context tool"),
    Fill("Seconds to connect"),
    Fill("Seconds a call may take", f"{EMPTY}20", holds="30"),
    Fill("Previews"),
    Fill("Words", holds="hints"),
    Fill("Sends", holds="hints"),
    *keep("Words of single tools", "Sends of single tools", "Recipients"),
    Fill("Reconnect", holds="default"),
    Fill("Further attempts", holds="0"),
    Fill("Sessions", holds="shared"),
    Fill("Open sessions", holds="10"),
    Fill("Seconds until an unused session ends"),
    Fill("Output limit", holds="50000"),
    Fill("Fallback group"),
    Fill("Place in the group", holds="1"),
    Fill("Names of tools", holds="prefixed"),
    Fill("Version of MCP", holds="auto"),
)
PROFILING = (
    Fill("Name", holds="Support"),
    Fill("Persona", "You are kind.", open=True),
    Fill("Persona"),
    Fill("Model"),
    Fill("Servers", holds="*", open=True),
    Fill("Servers"),
    *keep(
        "Tools",
        "Policies",
        "Approvers",
        "Suggested prompts",
        "What it does",
        "Rounds of tools",
        "Language",
        "Time zone",
    ),
)
HIDDEN = (Fill("Secret", SECOND, hidden=True),)

BEFORE = (
    typed_line("/mcp list", "No servers yet. Try /mcp add", who=RequiredRole.EVERYONE),
    typed_line("/mcp reload", "says what runs already"),
    typed_line("/mcp add", "ticket-desk is added.", "✓ 12 tools", fills=ADDING, audit=("added server",)),
)
MIDDLE = (
    for_all("/mcp show ticket-desk", "MCP server ticket-desk", "12 (12 may read or write: unknown)", "connected"),
    for_all("/mcp tools ticket-desk look_10", "Tool look_10"),
    for_all("/mcp tools ticket-desk", "Tools · 12", "ticket-desk__look_10", "▶ /mcp tools ticket-desk --page 2"),
    for_all("/mcp tools ticket-desk --page 2", "ticket-desk__look_12", "◀ /mcp tools ticket-desk --page 1"),
    for_all("/mcp help", "what there is", "list, show, tools"),
    typed_line(
        "/mcp help policy set", "usage", "/mcp policy set NAME [TOOL] ask|allow|deny|auto", who=RequiredRole.EVERYONE
    ),
    typed_line(
        "/mcp edit ticket-desk",
        "ticket-desk is changed.",
        "nothing → Where tickets are",
        "no → yes",
        "30 → 20",
        fills=EDITING,
        audit=("changed server",),
    ),
    typed_line(f"/mcp edit ticket-desk --title {TOKEN}", "That looks like a token. It was not saved."),
    typed_line(
        "/mcp edit ticket-desk --url nowhere --auth magic",
        "--auth is one of none, header, basic, api_key, oauth, client_credentials.",
    ),
    typed_line(
        "/mcp edit ticket-desk --url nowhere --tool-timeout never",
        "Nothing was changed.",
        "--url",
        "That is no http or https address.",
        "--tool-timeout",
        "A number of seconds",
    ),
    typed_line("/mcp verify ticket-desk", "ticket-desk is verified.", "✓ tools"),
    typed_line("/mcp doctor ticket-desk", "Nothing is wrong with ticket-desk."),
    typed_line("/mcp sync ticket-desk", "ticket-desk is synced: 12 tools", "1 resource, 1 prompt."),
    for_all("/mcp resource list ticket-desk", "Resources · 1", "desk://hours", "Ask about hours"),
    for_all("/mcp resource list hours", "Resources · 1", "desk://hours"),
    for_all("/mcp resource show nowhere desk://hours", "MCP server nowhere not found."),
    for_all("/mcp resource ask nowhere desk://hours When?", "MCP server nowhere not found."),
    for_all("/mcp prompt list ticket-desk", "Prompts · 1", "[topic]", "Ask: letter"),
    for_all("/mcp prompt show ticket-desk leter", "has no prompt of that name. Did you mean letter?"),
    for_all("/mcp prompt ask ticket-desk leter", "has no prompt of that name. Did you mean letter?"),
    typed_line(
        "/mcp review show ticket-desk",
        "Every tool of ticket-desk has its accepted definition",
        "No tool waits for a review.",
    ),
    typed_line(
        "/mcp review approve ticket-desk look_01",
        "This tool of ticket-desk has its accepted definition",
        "No tool waits for a review.",
    ),
    typed_line("/mcp review refuse ticket-desk look_01", "This tool of ticket-desk has its accepted definition"),
    typed_line("/mcp run ticket-desk look_01 label=x", "✓ ticket-desk.look_01", "ticket 7 is open", signed=True),
    typed_line("/mcp run ticket-desk lok_01", "has no tool of that name. Did you mean look_01?"),
    typed_line("/mcp log ticket-desk", "Calls · 1", "ticket-desk.look_01", "owner"),
    typed_line("/mcp stats ticket-desk", "Calls of ticket-desk · 1", "100 %"),
    typed_line("/mcp import --digest 123", "What was pasted is not kept any more"),
    typed_line("/mcp catalog n8n", "This server comes with this program", "https://{host}/mcp-server/http"),
    typed_line("/mcp health", "Countersign is ready", "answers"),
    typed_line("/mcp policy list ticket-desk", "Policies · 16", "(all its tools)", "ask, just now by console:owner"),
    typed_line(
        "/mcp policy set ticket-desk look_01 deny",
        "ticket-desk, look_01: deny.",
        "→ /mcp policy clear ticket-desk look_01   Undo",
        audit=("set policy",),
    ),
    typed_line("/mcp run ticket-desk look_01 label=y", "⊘ ticket-desk.look_01", "denied"),
    typed_line(
        "/mcp policy clear ticket-desk look_01",
        "back to what holds without it.",
        "→ /mcp policy set ticket-desk look_01 deny   Undo",
        audit=("cleared policy",),
    ),
    typed_line(
        "/mcp policy explain ticket-desk look_01",
        "ASK_USER: ticket-desk.*",
        "It is the only rule that matches this call.",
    ),
    typed_line(
        "/mcp secret set ticket-desk auth", "is set; it has 1 secret now", fills=HIDDEN, audit=("changed server",)
    ),
    typed_line(f"/mcp secret set ticket-desk auth {TOKEN}", "That looks like a token. It was not saved."),
    typed_line("/mcp secret set ticket-desk auth plainly", "That is no reference, and it was not saved."),
    typed_line(
        "/mcp secret rotate ticket-desk", "is set; it has 1 secret now", fills=HIDDEN, audit=("changed server",)
    ),
    typed_line("/mcp secret clear ticket-desk auth", "is cleared; it has 0 secrets now", audit=("changed server",)),
    typed_line("/mcp secret set ticket-desk auth --page 1", "ticket-desk does not sign in. Say how it should"),
    typed_line(
        "/mcp disconnect ticket-desk", "is disconnected", "→ /mcp connect ticket-desk", audit=("disconnected server",)
    ),
    typed_line("/mcp connect ticket-desk", "ticket-desk is connected: 12 tools", audit=("switched server on",)),
    typed_line(
        "/mcp disable ticket-desk",
        "ticket-desk is off",
        "→ /mcp enable ticket-desk   Undo",
        audit=("switched server off",),
    ),
    typed_line("/mcp sync ticket-desk --page 1", "ticket-desk is disabled: it is not connected."),
    typed_line("/mcp enable ticket-desk", "ticket-desk is on.", audit=("switched server on",)),
    for_all("/mcp grants list", "No grant is active"),
    for_all("/mcp grants revoke 0123456789ab", "There is no such grant that still holds."),
    for_all("/profile list", "No profiles yet"),
    typed_line("/profile set Support", "Profile saved", fills=PROFILING, audit=("added profile",)),
    typed_line("/profile show Support", "You are kind.", "no place yet"),
    typed_line("/profile enable ticket-desk", "No profile holds here, so every server is enabled."),
    typed_line(
        "/profile disable ticket-desk --profile Support",
        "ticket-desk is off from the next answer on.",
        audit=("changed profile",),
    ),
    for_all("/agents", "Nobody can be asked by name here"),
    for_all("/ask support How?", "Nobody can be asked by name here"),
    typed_line("/profile bind Support", "The profile holds in this channel", "Undo", audit=("bound profile",)),
    typed_line("/profile unbind", "No profile holds in this channel any more.", audit=("unbound profile",)),
    for_all("/profile help", "/profile list"),
    for_all("/conversations list", "Run ticket-desk.look_01"),
    for_all("/conversations show", "The last 2 turns", "Run ticket-desk.look_01"),
    for_all("/conversations export", "The conversation as Markdown: 2 turns.", "ticket 7 is open"),
    for_all("/conversations help", "/conversations list"),
    for_all("/usage me", "Your usage: no model was asked since"),
    typed_line("/usage channel", "This channel: no model was asked since"),
    typed_line("/usage workspace", "This workspace: no model was asked since"),
    typed_line("/usage all", "All workspaces: no model was asked since"),
    for_all("/usage help", "/usage me"),
    typed_line(
        "/approvals delegate ops for 3 days",
        "may decide the calls that you may decide",
        who=RequiredRole.EVERYONE,
        audit=("granted",),
    ),
    for_all("/approvals delegations", "1 delegation"),
    typed_line("/approvals undelegate ops", "Ended.", who=RequiredRole.EVERYONE, audit=("revoked grant",)),
    for_all("/approvals help", "/approvals delegate"),
    for_all("/console open", "There is no console here"),
    for_all("/console sessions", "No session is open"),
    for_all("/console end 1", "No open session has this id"),
    typed_line("/console tokens", "There are no tokens"),
    typed_line("/console token create Nightly! member", "cannot be the name of a token"),
    typed_line("/console token revoke nightly --confirm nightly", "There is no such token"),
    typed_line("/console installations", "No workspace has installed the app"),
    typed_line("/console uninstall T1 --confirm T1", "No workspace of this id has the app"),
    for_all("/console help", "/console sessions"),
    for_all("/preferences show", "In a terminal, LC_ALL or LANG and TZ say your language and time zone."),
    for_all("/preferences set", "In a terminal, LC_ALL or LANG and TZ say"),
    for_all("/preferences clear", "In a terminal, LC_ALL or LANG and TZ say"),
    for_all("/preferences help", "/preferences show"),
)
AFTER = (
    typed_line("/profile delete Support --confirm support-desk", "That was not its name. Nothing was deleted."),
    typed_line(
        "/profile delete Support",
        "The profile is deleted.",
        fills=(Fill("Type Support to confirm", "Support"),),
        audit=("deleted profile",),
    ),
    typed_line("/mcp audit ticket-desk", "Audit of ticket-desk · 15", "console:owner", "secret auth stored → stored"),
    typed_line("/mcp audit ticket-desk --kind refusals", "Audit of ticket-desk · 1", "forbidden"),
    typed_line("/mcp audit ticket-desk --page 2", "added server", "authentication: api_key", "policy: ASK_USER"),
    typed_line(
        "/mcp remove ticket-desk",
        "ticket-desk is removed, with its secrets and rules.",
        fills=(Fill("Type ticket-desk to confirm", "ticket-desk"),),
        audit=("removed server",),
    ),
    typed_line("/mcp show ticket-desk --page 1", "MCP server ticket-desk not found.", who=RequiredRole.EVERYONE),
    typed_line("/mcp lst", "Did you mean /mcp list?", who=RequiredRole.EVERYONE),
    typed_line(
        "/conversations delete",
        "The conversation is deleted.",
        fills=(Fill("Type c1 to confirm", "c1"),),
        who=RequiredRole.EVERYONE,
        audit=("deleted conversation",),
    ),
)
LINES = (*BEFORE, *MIDDLE, *AFTER)


@pytest.fixture
async def desk() -> AsyncIterator[FakeEndpoint]:
    """A ticket desk with more tools than a page has, something to read and something to ask with."""
    async with FakeEndpoint(capabilities={"tools": {}, "resources": {}, "prompts": {}}) as endpoint:
        endpoint.speak_legacy(*TOOLS)
        endpoint.on |= {
            "resources/list": _listing("resources", {"uri": "desk://hours", "name": "hours"}),
            "resources/templates/list": _listing("resourceTemplates"),
            "prompts/list": _listing("prompts", {"name": "letter", "arguments": [{"name": "topic"}]}),
            "resources/read": lambda m: result(m, {"contents": [{"uri": "desk://hours", "text": "nine **to** five"}]}),
            "prompts/get": lambda m: result(m, {"messages": [_message("Write of trees.")]}),
            "tools/call": lambda m: result(m, {"content": [{"type": "text", "text": "ticket 7 is open"}]}),
        }
        yield endpoint


def _listing(name: str, *what: Message) -> Callable[[Message], Answer]:
    return lambda message: result(message, {name: list(what)})


def _message(text: str) -> Message:
    return {"role": "user", "content": {"type": "text", "text": text}}


@pytest.fixture
def model() -> Iterator[FakeLanguageModel]:
    """The model gets no requests: commands are no messages."""
    with FakeLanguageModel("openai", rule=_speechless) as model:
        yield model
    assert model.requests == []


def _speechless(_request: Request) -> Reply:
    return Say("I was not asked.")


def test_every_verb_there_is_has_a_line_here() -> None:
    for command, verbs in CommandHarness().registry.verbs.items():
        for verb in verbs:
            start = f"/{command} {verb.path}".strip()
            lines = [each for each in LINES if f"{each.line} ".startswith(f"{start} ")]
            assert lines, start
            assert {each.who for each in lines} <= {verb.who}, start


async def test_the_operator_does_everything_at_the_terminal_and_the_audit_holds_each_change_once(
    tmp_path: Path, model: FakeLanguageModel, desk: FakeEndpoint
) -> None:
    place = Installation(tmp_path, {}, model=model, MCP_ALLOWED_HOSTS=f"127.0.0.1:{desk.port}")
    async with place.terminal("--new", "--conversation", "c1", columns=COLUMNS, rows=ROWS) as terminal:
        for each in LINES:
            await _type_and_check(terminal, each, desk.url)
        await terminal.prompts()
        assert await terminal.leaves() == 0
        for secret in (FIRST, SECOND):
            assert secret.encode() not in terminal.raw
    keys = [headers.get("authorization") for headers, message in desk.seen if message.get("method") == "initialize"]
    assert list(dict.fromkeys(keys)) == [f"Bearer {FIRST}", f"Bearer {SECOND}", None]
    assert _audit(place) == [kind for each in LINES for kind in each.audit]
    for name, content in place.folder_files().items():
        for secret in (FIRST, SECOND, TOKEN):
            assert secret.encode() not in content, name


async def test_a_user_without_rights_reads_at_the_terminal_who_has_them_and_nothing_happens(
    tmp_path: Path, model: FakeLanguageModel, desk: FakeEndpoint
) -> None:
    place = Installation(tmp_path, {"ticket-desk": {"url": desk.url}}, model=model)
    async with place.terminal("--user", "ben", columns=COLUMNS, rows=ROWS) as terminal:
        await terminal.asks("/mcp list", "● ticket-desk")
        for each in MIDDLE:
            if each.who is RequiredRole.ADMINS:
                await _type_and_check(terminal, Typed(each.line, (REFUSED,)), desk.url)
            elif each.line.startswith("/mcp"):
                await _type_and_check(terminal, each, desk.url)
        for line in (
            "/mcp add",
            "/mcp reload --apply",
            "/mcp remove ticket-desk",
            "/mcp audit",
            "/profile delete Support",
        ):
            await _type_and_check(terminal, Typed(line, (REFUSED,)), desk.url)
        await _type_and_check(terminal, for_all("/conversations list", "No conversations yet."), desk.url)
        assert await terminal.leaves() == 0
        assert desk.url not in terminal.text
    assert _audit(place) == []
    assert "tools/call" not in desk.methods()


async def _type_and_check(terminal: ProgramOnTerminal, each: Typed, url: str) -> None:
    """Type a line, answer its questions, and expect its texts below it."""
    await terminal.asks(each.line)
    for fill in each.fills:
        await _fill_field(terminal, fill, url)
    if each.signed:
        await terminal.until(lambda: KEYS in _below(terminal, each.line), "a card that asks for a key")
        terminal.press("y")
    for text in each.sees:
        await terminal.until(lambda text=text: text in _below(terminal, each.line), repr(text))  # type: ignore[misc]


async def _fill_field(terminal: ProgramOnTerminal, fill: Fill, url: str) -> None:
    holds, keys = fill.holds.replace("URL", url), fill.keys.replace("URL", url)
    asked = f"{fill.label}: {holds}".rstrip()
    await terminal.until(lambda: terminal.lines[-1] == asked, repr(asked))
    if keys:
        shown = "•" * len(keys) if fill.hidden else keys.removeprefix(EMPTY)
        terminal.press(keys)
        await terminal.until(lambda: terminal.lines[-1] == f"{fill.label}: {shown}", shown)
    terminal.press("\r")
    if fill.open:
        await terminal.until(lambda: terminal.lines[-1] == f"{fill.label}:", "the next line")
        return
    await terminal.until(lambda: not terminal.lines[-1].startswith(f"{fill.label}:"), f"{fill.label} is taken")


def _below(terminal: ProgramOnTerminal, line: str) -> str:
    """Text below the last echo of a line, folded as it is."""
    _, echo, below = "\n".join(terminal.lines).rpartition(f"{prompt_line(line)}\n")
    return below if echo else ""


def _audit(place: Installation) -> list[str]:
    """Changes made by command, in order, without those of turns."""
    with closing(sqlite3.connect(place.data / "countersign.db")) as database:
        return [kind for (kind,) in database.execute("SELECT kind FROM audit WHERE turn_id = '' ORDER BY seq")]
