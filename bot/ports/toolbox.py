"""Tools of MCP servers, and the administration of these servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bot.domain.capabilities import Piece, ServerCapabilities
from bot.domain.checks import Check
from bot.domain.conversations import Author
from bot.domain.elicitations import ElicitationResults, ElicitCallback, cancel_without_user
from bot.domain.messages import ToolCall
from bot.domain.pins import ReviewPolicy
from bot.domain.secrets import SecretSpan
from bot.domain.servers import EVERYWHERE, DesiredServer, ServerSnapshot
from bot.domain.tools import ArgumentError, Tool, ToolOutcome, ToolSet


@dataclass(frozen=True, slots=True)
class CallContext:
    """Context of a tool call. `key` is stable over repeats of the same call; `deadline` is seconds from now.
    `replies` answer earlier elicitations; `elicit` asks the user during the call, for servers of the protocol before
    2026, and pauses the deadline meanwhile.
    """

    author: Author
    key: str
    deadline: float | None = None
    on_progress: Callable[[str], None] = lambda _text: None
    replies: ElicitationResults | None = None
    elicit: ElicitCallback = cancel_without_user


class Toolbox(Protocol):
    """The tools of all servers."""

    async def offer(self, workspace: str = EVERYWHERE) -> ToolSet:
        """Return the usable tools of a workspace: those of its own servers and of the shared ones. Waits, within a
        limit, for servers that connect for the first time.
        """

    async def confirm(self, server_id: str) -> str:
        """Make sure, within a limit, that `offer` gives this server's tools as they are now. Return why that could not
        be found out, in a sentence for the model; empty if it could, or if there is no such server.
        """

    async def call(self, tool: Tool, call: ToolCall, context: CallContext) -> ToolOutcome:
        """Run a tool. A tool's failure is a result; this raises for nothing but cancellation, which reaches the
        server.
        """

    def argument_error(self, tool: Tool, call: ToolCall) -> str:
        """Why `call` would not send these arguments, in words for the model; empty if they fit or nobody can tell."""

    def validate(self, schema: Mapping[str, Any], values: Mapping[str, Any]) -> Sequence[ArgumentError]:
        """Return the values that violate the schema of a tool, server or form; empty if all are valid or the schema
        cannot be evaluated.
        """

    def secret_spans(self, server_id: str, text: str) -> Sequence[SecretSpan]:
        """Return where the secrets of this server are in a text. Secrets of other servers are not looked for: a call
        of one server must not tell whether a guess at another one's secret is right.
        """


class ServerAdmin(Protocol):
    """The connections to all servers, as whoever administers them uses them. Servers are named by id; methods that
    take one raise NotFound.
    """

    @property
    def enabled(self) -> bool:
        """False if MCP is switched off altogether."""

    async def wait_ready(self) -> None:
        """Wait, within a limit, for servers that are connecting for the first time."""

    async def reconcile(self, entries: Sequence[DesiredServer]) -> None:
        """Keep these servers and no others: what is new is connected to if it should be, what has changed is connected
        to anew, what is gone is closed. Calls to servers that stay as they are go on undisturbed.
        """

    @property
    def review(self) -> ReviewPolicy:
        """Return the policy for tools without a pin."""

    def unpinned_tools(self, server: str) -> Sequence[Tool]:
        """The tools of a server whose definition is not the one that is pinned, in its own order: new ones, changed
        ones, and those of a first sync that an admin should see. They are not offered unless `review` says so.
        """

    def servers(self) -> Sequence[ServerSnapshot]:
        """Every server, by name, as it may be shown: without secrets."""

    def capabilities(self, server: str) -> ServerCapabilities:
        """Return the known capabilities of a server."""

    async def connect(self, server: str) -> ServerSnapshot:
        """Connect now, or find that it is; how it stands then."""

    async def sync(self, server: str) -> ServerCapabilities:
        """Ask the server for everything it offers, and keep that. Raises ServerTrouble."""

    async def sync_all(self) -> None:
        """The same for every connected server, one's trouble not keeping it from the others."""

    def verify(self, entry: DesiredServer) -> AsyncGenerator[Check, None]:
        """Look whether a server that need not be kept could be used: from its address to its tools, one after the
        other. Starts a process only if the entry is the operator's or an admin's who may.
        """

    def diagnose(self, server: str) -> AsyncGenerator[Check, None]:
        """The same for a kept one, and how its tools and last calls stand."""

    async def read_resource(self, server: str, uri: str) -> Sequence[Piece]:
        """Read a resource. Raises ServerTrouble."""

    async def get_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> Sequence[Piece]:
        """Have a prompt written out. Raises ServerTrouble."""
