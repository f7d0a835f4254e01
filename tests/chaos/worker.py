"""One worker process of the chaos run, `python -m tests.chaos.worker DATABASE_URL FOLDER`: the real engine, a trivial
model and tool, and files that record every effect.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bot.domain.approvals import ApprovalPolicy
from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest, StopReason
from bot.domain.conversations import Attachment, Author, ConversationKey, Member
from bot.domain.elicitations import ElicitationRequest, FormMode
from bot.domain.messages import MessageRole, TextPart, ToolCall, ToolResult, assistant
from bot.domain.secrets import SecretSpan
from bot.domain.tools import Annotations, ArgumentError, CallNeedsInput, CallReturned, Tool, ToolOutcome, ToolSet
from bot.domain.turns import MessageRefs, Notice, NoticeTarget, PostedMessage, TurnView
from bot.engine.engine import Engine
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.rules import Policies, RuleBook, ServerPolicy
from bot.ports import CallContext
from bot.storage.address import PostgresServer, SqliteFile, read_address
from bot.storage.database import Database
from bot.storage.postgresql import PostgresDatabase, listen
from bot.storage.sqlite import open_sqlite
from bot.storage.turn_log.log import SqlTurnLog
from tests.fakes.fork_server import end_with_parent

READ = Tool("s__read", "s", "read", annotations=Annotations(read_only=True), trusted=True)
WRITE = Tool("s__write", "s", "write", annotations=Annotations(read_only=False), trusted=True)
ASK = Tool("s__ask", "s", "ask", annotations=Annotations(read_only=False), trusted=True)
BOOK = Tool("s__book", "s", "book", annotations=Annotations(read_only=False), trusted=True)
"""Asks back, and books when it is sent again with an answer."""
CHAT = Tool("s__chat", "s", "chat", annotations=Annotations(read_only=False), trusted=True)
"""Asks while it is under way."""
RUN_AT_ONCE = ("read", "write", "book", "chat")
POLICIES = Policies(servers={"s": ServerPolicy(dict.fromkeys(RUN_AT_ONCE, ApprovalPolicy.ALWAYS_ALLOW))})
QUESTION = ElicitationRequest("q", "Really?", FormMode({"type": "object", "properties": {}}))
APPROVER = Author("chaos", "ana", "Ana")


class Harness:
    """A file that several processes append whole lines to, one write each."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


class Model:
    """Asks for the tools that the question names, all at once, then answers."""

    capabilities = Capabilities()

    async def get(self, name: str) -> Model:
        return self

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        await asyncio.sleep(random.uniform(0, 0.05))
        if request.messages[-1].role is MessageRole.TOOL:
            yield Completion(assistant("Done."), StopReason.ANSWERED)
        else:
            names = request.messages[-1].text.split()[1:]
            calls = [ToolCall(f"c{n}", f"s__{name}", {"n": n}) for n, name in enumerate(names)]
            yield Completion(assistant("", *calls), StopReason.TOOLS)

    async def close(self) -> None:
        pass


class World:
    """Tools that write each effect into a file."""

    def __init__(self, effects: Harness) -> None:
        self._effects = effects

    async def offer(self, workspace: str = "") -> ToolSet:
        return ToolSet((READ, WRITE, ASK, BOOK, CHAT))

    async def confirm(self, _server_id: str, _context: CallContext) -> str:
        return ""

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        await asyncio.sleep(random.uniform(0, 0.1))
        if tool is BOOK and context.replies is None:
            return CallNeedsInput((QUESTION,), context.key)
        if tool is BOOK and context.replies is not None:
            assert context.replies.state == context.key
        if tool is CHAT:
            await context.elicit(QUESTION)
        self._effects.write(f"{tool.original_name} {context.key}")
        await asyncio.sleep(random.uniform(0, 0.1))
        return CallReturned(ToolResult(call.id, (TextPart("ok"),)))

    def argument_error(self, _tool: Tool, _call: ToolCall) -> str:
        return ""

    def secret_spans(self, server_id: str, text: str) -> Sequence[SecretSpan]:
        return ()

    def validate(self, schema: Mapping[str, Any], values: Mapping[str, Any]) -> Sequence[ArgumentError]:
        return ()


class Wall:
    """A surface on which every drawing is a line."""

    key_prefixes = ("chaos:",)
    min_interval = 0.1

    def __init__(self, drawings: Harness) -> None:
        self._drawings = drawings

    async def deliver(self, view: TurnView, refs: MessageRefs) -> AsyncGenerator[PostedMessage, None]:
        self._drawings.write(f"{view.turn.id} {view.turn.status.value}")
        yield PostedMessage("reply", refs.get("reply", f"message-{os.getpid()}"))

    async def post_notice(self, audience: NoticeTarget, notice: Notice) -> None:
        pass

    async def member(self, author: Author, where: ConversationKey) -> Member:
        return Member(author)

    async def fetch(self, attachment: Attachment) -> bytes:
        return b""


def engine_on(url: str, folder: Path) -> tuple[Database, Engine]:
    """The database and the engine of one process. On SQLite, too, all processes want all turns."""
    database: Database
    match read_address(url):
        case PostgresServer() as server:
            database = PostgresDatabase(server)
            turn_log = SqlTurnLog(database, functools.partial(listen, server))
        case SqliteFile(path):
            database = open_sqlite(path)
            turn_log = SqlTurnLog(database)
    engine = Engine(
        turn_log,
        Model(),
        World(Harness(folder / "effects")),
        [Wall(Harness(folder / "drawings"))],
        rules=RuleBook(POLICIES, Approvers(admins=frozenset({APPROVER.principal}))),
    )
    return database, engine


async def work(url: str, folder: Path) -> None:
    """Drive turns until SIGTERM."""
    database, engine = engine_on(url, folder)
    running = asyncio.create_task(engine.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    await asyncio.gather(running, return_exceptions=True)
    await database.close()


if __name__ == "__main__":
    end_with_parent()
    logging.basicConfig(filename=str(Path(sys.argv[2]) / "log"), level="INFO", format="%(process)d %(message)s")
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
