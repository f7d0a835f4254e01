"""A language model that a service on the network runs: what is the same whoever the vendor is.

Called by the provider modules, each of which brings its vendor's client, the words of its requests, and what the
events of a reply mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from bot.domain.completions import Capabilities, Completion, ModelEvent, ModelRequest
from bot.llm.complaints import Complaint, Problem, problem_of
from bot.llm.concessions import without_reasoning, without_tools
from bot.llm.foreign_text import sendable
from bot.llm.image_words import without_files, without_images
from bot.llm.server_sent_events import EventReader
from bot.llm.service import Service
from bot.llm.streaming import Answer, Draft, read_reply

_MOST_PAUSES = 5


class Client(Protocol):
    """A vendor's client that tries nothing again by itself: waiting is the engine's, which shows it."""

    async def post(self, body: bytes) -> Answer:
        """Send a request; return when the answer begins. Raises the vendor's errors."""
        ...

    def complaint(self, error: Exception) -> Complaint | None:
        """What the service says, if an error of `post` is an answer of the service."""

    def translated(self, tools: Sequence[str]) -> AbstractContextManager[None]:
        """Turns the vendor's errors into those of `bot.errors`. `tools` are the names of those on offer."""

    async def close(self) -> None:
        """Let go of connections."""


@dataclass(frozen=True, slots=True)
class Wording:
    """A vendor's protocol. `body` writes a request, for a service that has had these problems with earlier ones;
    `draft` begins a reply; `passed_over` are events that are not even read.
    """

    body: Callable[[ModelRequest, Collection[Problem]], dict[str, Any]]
    draft: Callable[[], Draft]
    passed_over: frozenset[bytes] = frozenset()


class HostedModel:
    """The model that `service` runs."""

    def __init__(self, service: Service, capabilities: Capabilities, client: Client, wording: Wording) -> None:
        self._service = service
        self._capabilities = capabilities
        self._client = client
        self._wording = wording
        self._known: set[Problem] = set()

    @property
    def capabilities(self) -> Capabilities:
        """What the model can do, as far as its settings and the address tell, and what it has turned out not to do."""
        return self._capabilities

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """See the port. The connection is closed when the iterator is, also when it is cancelled."""
        draft = self._wording.draft()
        for _ in range(_MOST_PAUSES):
            completion = None
            async with aclosing(self._read(request, draft)) as events:
                async for event in events:
                    if isinstance(event, Completion):
                        completion = event
                    else:
                        yield event
            said = draft.resume()
            if said is None:
                break
            request = replace(request, messages=(*request.messages, said))
        if completion is not None:
            yield completion

    def _read(self, request: ModelRequest, draft: Draft) -> AsyncGenerator[ModelEvent, None]:
        return read_reply(
            lambda: self._open(request),
            draft,
            EventReader(self._wording.passed_over),
            service=self._service,
            limits=request.limits,
            translated=self._client.translated([tool.name for tool in request.tools]),
        )

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()

    async def _open(self, request: ModelRequest) -> Answer:
        """Send the request, and an easier one where the service says what it cannot take."""
        request = self._fitting(request)
        while True:
            # Aside: a server's schemas can be large, and other turns should not stand still while they are read.
            body = await asyncio.to_thread(self._written, request)
            try:
                return await self._client.post(body)
            except Exception as error:
                complaint = self._client.complaint(error)
                easier = None if complaint is None else self._easier(request, problem_of(complaint))
                if easier is None:
                    raise
                request = easier

    def _fitting(self, request: ModelRequest) -> ModelRequest:
        if not self._capabilities.images:
            request = without_images(request)
        if not self._capabilities.documents:
            request = without_files(request)
        return request if self._capabilities.tools else without_tools(request)

    def _written(self, request: ModelRequest) -> bytes:
        return sendable(self._wording.body(request, frozenset(self._known)))

    def _easier(self, request: ModelRequest, problem: Problem) -> ModelRequest | None:
        """The request as the service may take it, None if nothing is left to give up."""
        match problem:
            case Problem.NO_TOOLS if request.tools:
                self._capabilities = replace(self._capabilities, tools=False)
                return without_tools(request)
            case Problem.REASONING if forgetful := without_reasoning(request):
                return forgetful
            case Problem.REASONING | Problem.TOKEN_LIMIT if problem not in self._known:
                self._known.add(problem)
                return request
            case _:
                return None
