"""Sessions of conversations and users: their sharing, number, end, and effects on other sessions."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.domain.conversations import Author, ConversationKey
from bot.domain.messages import ToolCall
from bot.domain.servers import (
    CachedCapabilities,
    DesiredServer,
    Handshake,
    Protocol,
    ServerCapabilities,
    ServerConfig,
    ServerSnapshot,
    ServerStatus,
    SessionScope,
    StdioTransport,
    SyncStatus,
    kind_of,
)
from bot.domain.tools import CallNotSent, ToolOutcome
from bot.mcp.config.checks import endpoint_fingerprint
from bot.mcp.server.retry import BreakerSettings
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from tests.fakes.programs import listening, python
from tests.mcp.toolboxes import (
    ANA,
    LIMIT,
    alive,
    connected_toolbox,
    faster,
    remote,
    text,
    tool_by_name,
    unsent_reason,
    until,
)

BEN = Author("console", "ben", "Ben")
NEW_SESSION = "began a new session"
CONVERSATION, PERSON = SessionScope.CONVERSATION, SessionScope.PERSON


def room(name: str, workspace: str = "w") -> ConversationKey:
    return ConversationKey("slack", workspace, name, "1")


def stateful(**fields: Any) -> ServerConfig:
    return ServerConfig("s", StdioTransport(python(), ("-m", "tests.fakes.mcp.stateful", "stdio")), **fields)


def over_http(url: str, **fields: Any) -> DesiredServer:
    """Return a server with a stored handshake of the protocol that has sessions."""
    config = remote("s", url, **fields)
    handshake = Handshake(kind_of(config.transport), endpoint_fingerprint(config), time.time())
    known = CachedCapabilities(SyncStatus.SYNCED, ServerCapabilities(handshake=handshake, server_version="1"), 1.0)
    return DesiredServer(config, synced=known)


class Talk:
    """Calls of one user in one conversation."""

    def __init__(self, box: McpToolbox, where: ConversationKey, author: Author = ANA) -> None:
        self._box = box
        self.where = where
        self._author = author
        self.progress: list[str] = []

    async def call(self, tool: str, *, deadline: float | None = None, **arguments: Any) -> ToolOutcome:
        context = CallContext(self._author, "turn:1", deadline, self.progress.append, conversation=self.where)
        async with asyncio.timeout(LIMIT):
            return await self._box.call(tool_by_name(self._box, tool), ToolCall("c1", f"s__{tool}", arguments), context)

    async def remember(self, what: str) -> str:
        return text(await self.call("remember", text=what))

    async def recall(self) -> dict[str, Any]:
        seen: dict[str, Any] = json.loads(text(await self.call("recall")).partition("\n")[0])
        return seen

    async def recall_items(self) -> list[str]:
        kept: list[str] = (await self.recall())["kept"]
        return kept

    def work(self, seconds: float = 30.0) -> asyncio.Task[ToolOutcome]:
        return asyncio.create_task(self.call("work", seconds=seconds))

    async def is_working(self) -> None:
        await until(lambda: bool(self.progress))


@pytest.fixture(params=["stdio", "http"])
def box_of(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Return a context manager of a toolbox with the stateful server, over either transport."""

    @asynccontextmanager
    async def open_box(**fields: Any) -> AsyncIterator[McpToolbox]:
        if request.param == "stdio":
            async with begun(stateful(**fields)) as box:
                yield box
            return
        with listening("tests.fakes.mcp.stateful", "http") as (port, _):
            async with begun(over_http(f"http://127.0.0.1:{port}/mcp", **fields)) as box:
                yield box

    return open_box


@asynccontextmanager
async def begun(server: ServerConfig | DesiredServer, **options: Any) -> AsyncIterator[McpToolbox]:
    async with connected_toolbox(server, **options) as box:
        await until(lambda: box.servers()[0].status is ServerStatus.CONNECTED)
        yield box


def snapshot(box: McpToolbox) -> ServerSnapshot:
    return box.servers()[0]


# sharing of sessions


async def test_conversations_do_not_share_server_state(box_of: Callable[..., Any]) -> None:
    async with box_of(sessions=CONVERSATION) as box:
        here, there = Talk(box, room("here")), Talk(box, room("there"))
        await asyncio.gather(here.remember("tea"), there.remember("coffee"))
        assert [await here.recall_items(), await there.recall_items()] == [["tea"], ["coffee"]]
        assert await Talk(box, room("here"), BEN).recall_items() == ["tea"], "a conversation is shared by its people"
        assert len(snapshot(box).sessions) == 2


async def test_a_session_for_a_person_spans_the_conversations_of_a_workspace(box_of: Callable[..., Any]) -> None:
    async with box_of(sessions=PERSON) as box:
        await Talk(box, room("here")).remember("tea")
        assert await Talk(box, room("there")).recall_items() == ["tea"]
        assert await Talk(box, room("here"), BEN).recall_items() == []
        assert await Talk(box, room("here", "another")).recall_items() == [], (
            "another workspace is no business of this one"
        )


async def test_sessions_are_shared_by_all_unless_the_server_says_otherwise(box_of: Callable[..., Any]) -> None:
    async with box_of() as box:
        await Talk(box, room("here")).remember("tea")
        assert await Talk(box, room("there"), BEN).recall_items() == ["tea"]
        assert snapshot(box).sessions == ()


async def test_first_calls_of_one_conversation_at_once_make_one_session() -> None:
    async with begun(stateful(sessions=CONVERSATION)) as box:
        here = Talk(box, room("here"))
        pids = {seen["pid"] for seen in await asyncio.gather(*(here.recall() for _ in range(6)))}
        assert len(pids) == 1


# ends


async def test_a_killed_session_leaves_the_others_and_its_conversation_reads_it() -> None:
    async with begun(stateful(sessions=CONVERSATION)) as box:
        here, there = Talk(box, room("here")), Talk(box, room("there"))
        await here.remember("tea")
        await there.remember("coffee")
        before = await there.recall()
        killed = (await here.recall())["pid"]
        os.kill(killed, signal.SIGKILL)
        await until(lambda: len(snapshot(box).sessions) == 1)
        assert snapshot(box).status is ServerStatus.CONNECTED
        assert await there.recall() == before
        first = text(await here.call("recall"))
        assert json.loads(first.partition("\n")[0])["kept"] == []
        assert NEW_SESSION in first
        assert NEW_SESSION not in text(await here.call("recall"))
        assert NEW_SESSION not in text(await there.call("recall"))


async def test_a_session_killed_in_the_middle_of_a_call_fails_this_call_only() -> None:
    async with begun(stateful(sessions=CONVERSATION)) as box:
        here, there = Talk(box, room("here")), Talk(box, room("there"))
        pid = (await here.recall())["pid"]
        lost, other = here.work(), there.work(1.0)
        await here.is_working()
        await there.is_working()
        os.kill(pid, signal.SIGKILL)
        assert "CallOutcomeUnknown" in repr(await lost)
        assert text(await other) == "done"


async def test_conversations_that_break_their_session_again_and_again_do_not_close_the_server() -> None:
    async with begun(
        stateful(sessions=CONVERSATION), pacing=faster(tripping=BreakerSettings(losses=2, loss_pause=60.0))
    ) as box:
        here, there = Talk(box, room("here")), Talk(box, room("there"))
        for _ in range(3):
            os.kill((await here.recall())["pid"], signal.SIGKILL)
            await until(lambda: not snapshot(box).sessions)
        assert await there.recall_items() == []


async def test_an_unused_session_ends_with_its_process_and_its_conversation_reads_it() -> None:
    async with begun(stateful(sessions=CONVERSATION, session_idle_timeout=0.5)) as box:
        here = Talk(box, room("here"))
        pid = (await here.recall())["pid"]
        await until(lambda: not snapshot(box).sessions)
        await until(lambda: not alive(pid))
        assert snapshot(box).status is ServerStatus.CONNECTED, "the server's own session has its own time"
        assert NEW_SESSION in text(await here.call("recall"))


async def test_closing_ends_all_sessions() -> None:
    async with begun(stateful(sessions=CONVERSATION)) as box:
        pids = [(await Talk(box, room(str(n))).recall())["pid"] for n in range(3)]
        assert len(set(pids)) == 3
    assert [pid for pid in pids if alive(pid)] == []


async def test_sessions_of_a_removed_server_end_and_calls_to_them_are_not_sent() -> None:
    async with begun(stateful(sessions=CONVERSATION)) as box:
        here = Talk(box, room("here"))
        pid = (await here.recall())["pid"]
        recall = tool_by_name(box, "recall")
        await box.reconcile([])
        context = CallContext(ANA, "turn:1", conversation=here.where)
        unsent_reason(await box.call(recall, ToolCall("c1", "s__recall"), context))
        await until(lambda: not alive(pid))


# limit


async def test_the_session_that_is_idle_for_the_longest_time_gives_way_to_a_new_one() -> None:
    async with begun(stateful(sessions=CONVERSATION, max_sessions=2)) as box:
        old, newer, newest = (Talk(box, room(name)) for name in ("old", "newer", "newest"))
        await old.remember("tea")
        await newer.remember("coffee")
        gone = (await old.recall())["pid"]
        await newer.recall()
        assert await newest.recall_items() == []
        assert not alive(gone), "the limit holds also while the new one starts"
        assert len(snapshot(box).sessions) == 2
        assert await newer.recall_items() == ["coffee"]
        assert NEW_SESSION in text(await old.call("recall"))


async def test_a_session_with_a_running_call_is_never_ended_and_the_next_one_is_told_why_it_waits() -> None:
    pacing = faster(call_wait=0.2)
    async with begun(stateful(sessions=CONVERSATION, max_sessions=1), pacing=pacing) as box:
        busy, next_one = Talk(box, room("busy")), Talk(box, room("next"))
        working = busy.work(1.0)
        await busy.is_working()
        reason = unsent_reason(await next_one.call("recall"))
        assert reason.startswith("Server s has no free session: all of its 1 are in use, so nothing was sent.")
        assert "max_sessions" in reason
        assert text(await working) == "done"
        assert await next_one.recall_items() == []


async def test_a_call_waits_for_a_place_as_long_as_a_call_waits_for_a_connection() -> None:
    async with begun(stateful(sessions=CONVERSATION, max_sessions=1)) as box:
        busy, next_one = Talk(box, room("busy")), Talk(box, room("next"))
        working = busy.work(1.0)
        await busy.is_working()
        assert await next_one.recall_items() == []
        assert text(await working) == "done"


async def test_a_snapshot_has_idle_times_of_sessions_and_not_their_users() -> None:
    async with begun(stateful(sessions=CONVERSATION)) as box:
        busy, idle = Talk(box, room("board-secrets")), Talk(box, room("idle"))
        await idle.recall()
        working = busy.work()
        await busy.is_working()
        first, second = snapshot(box).sessions
        assert second.idle_since is None
        assert first.idle_since is not None
        assert first.started_at <= first.idle_since <= time.time()
        assert "board-secrets" not in repr(snapshot(box))
        working.cancel()
        await asyncio.wait({working})


# definitions


async def test_a_session_that_shows_another_definition_gets_no_call_of_the_tool_and_others_do() -> None:
    async with begun(stateful(sessions=CONVERSATION)) as box:
        turned, loyal = Talk(box, room("turned")), Talk(box, room("loyal"))
        approved = tool_by_name(box, "remember")
        await turned.remember("tea")
        await turned.call("turn_coat")
        async with asyncio.timeout(LIMIT):
            while not isinstance(outcome := await turned.call("remember", text="secret"), CallNotSent):
                await asyncio.sleep(0.05)
        assert "review" in outcome.reason
        assert await loyal.remember("coffee") == "kept"
        assert tool_by_name(box, "remember") == approved, "the server's own session still shows the approved one"


async def test_an_approved_call_is_confirmed_by_the_session_that_will_get_it() -> None:
    async with begun(stateful(sessions=CONVERSATION)) as box:
        here = Talk(box, room("here"))
        context = CallContext(ANA, "turn:1", conversation=here.where)
        assert await box.confirm("file:s", context) == ""
        assert len(snapshot(box).sessions) == 1
        assert await here.recall_items() == []
        assert len(snapshot(box).sessions) == 1


# failing servers


async def test_a_server_that_no_session_can_reach_is_left_alone_after_some_failures(tmp_path: Path) -> None:
    startable = tmp_path / "startable"
    startable.touch()
    run = f'test -e {startable} && exec {python()} -m tests.fakes.mcp.stateful stdio; echo "no licence" >&2; exit 3'
    config = ServerConfig("s", StdioTransport("sh", ("-c", run)), sessions=CONVERSATION)
    async with begun(config, pacing=faster(tripping=BreakerSettings(failures=2, pause=60.0))) as box:
        startable.unlink()
        here = Talk(box, room("here"))
        for _ in range(2):
            assert "no licence" in unsent_reason(await here.call("recall"))
        reason = unsent_reason(await Talk(box, room("there")).call("recall"))
        assert reason.startswith("Server s does not work and is not tried again for")
        assert "no licence" in reason
        assert snapshot(box).status is ServerStatus.CONNECTED


async def test_the_doctor_says_where_there_are_no_sessions_to_keep_apart() -> None:
    async def diagnose_sessions(**fields: Any) -> list[str]:
        async with connected_toolbox(remote("s", url, **fields)) as box:
            return [check.detail async for check in box.diagnose("file:s") if check.name == "sessions"]

    with listening("tests.fakes.mcp.stateful", "http") as (port, _):
        url = f"http://127.0.0.1:{port}/mcp"
        [detail] = await diagnose_sessions(sessions=PERSON)
        assert detail.startswith("2026-07-28 over HTTP has no sessions")
        assert await diagnose_sessions(sessions=PERSON, protocol=Protocol.V2025_11_25) == []
        assert await diagnose_sessions() == []
    async with begun(stateful(sessions=PERSON)) as box:
        assert [check async for check in box.diagnose("file:s") if check.name == "sessions"] == []
