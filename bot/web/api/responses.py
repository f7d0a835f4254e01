"""Responses over HTTP: send input to the bot and follow the turn.

Input is stored before the turn starts, and the turn runs with or without a client. A client that lost its stream
resumes it with `Last-Event-ID` from any process.

The last user message is the input. In a new conversation, earlier messages become context for the model, marked as
information and not as instructions; a continued conversation uses its stored history, if its content is kept. Model,
parameters and tools are set by the operator: the response lists such fields as ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from bot.chat.message_handler import append_file_names, describe_files, format_lines
from bot.domain.agents import PLACE_AGENT, PLACE_NAME, AgentRef
from bot.domain.api_clients import ApiClient
from bot.domain.conversations import Attachment, ConversationKey, InboundMessage
from bot.domain.turns import Receipt, TurnView
from bot.errors import ContentDeleted, CountersignError, NotFound, QueueFull
from bot.i18n import _, ngettext
from bot.rendering.response_models import ResponseModel, ResponseShape, StreamErrorShape, is_waiting, response_shape
from bot.rendering.turn_events import Cursor, EventEncoder, event_schemas
from bot.web.conversation_ids import format_id, is_own, may_see, own_conversation
from bot.web.dependencies import WebDependencies
from bot.web.limits import StreamPlace
from bot.web.parameters import MemberCaller, RequestStreamPlace
from bot.web.problems import Problem, invalid_fields, problem_of_error
from bot.web.routes import (
    SCHEMA_REFERENCE,
    EventStream,
    RequestModel,
    ServerEvent,
    api_router,
    stream_description,
)
from bot.web.surface import Uploads

MOST_IMAGES = 5
_DATA = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=\s]+)")
_TEXTS = ("text", "input_text", "output_text")
_IMAGES = ("image_url", "input_image")
_USER = "user"


class Piece(BaseModel):
    """A part of a message: text, or an image as a `data:` address."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(max_length=40)
    text: str | None = None
    image_url: str | dict[str, Any] | None = None


class InputMessage(BaseModel):
    """One message in the format of either chat protocol. Other fields have no effect."""

    model_config = ConfigDict(extra="allow")

    role: Literal["user", "assistant", "system", "developer", "tool"] = "user"
    content: str | list[Piece] = ""


class Payload(BaseModel):
    """Input: `messages`, or `input` as one text or a list of messages. `stream` selects a response with events. Other
    fields, such as `tools`, have no effect, and so has a model that the operator does not allow.
    """

    model_config = ConfigDict(extra="allow")

    messages: list[InputMessage] | None = Field(default=None, max_length=500)
    input: str | list[InputMessage] | None = None
    stream: bool = True
    model: str | None = Field(default=None, max_length=200, description="`PROVIDER:NAME`, one of those in API_MODELS.")

    def ignored_fields(self, models: Collection[str]) -> list[str]:
        """Return the names of the fields that have no effect, if requests may choose one of these models."""
        others = [name for name in self.model_extra or {} if len(name) <= 64]
        return sorted([*others, *(["model"] if self.model is not None and self.model not in models else [])])[:50]


def parse_input(payload: Payload, uploads: Uploads, owner: str) -> tuple[str, tuple[str, ...], tuple[Attachment, ...]]:
    """Return the input text, the earlier messages and the images of a request. Images are stored in `uploads` for
    `owner`. Raises Problem with 422 if the input is missing or invalid.
    """
    if (payload.messages is None) == (payload.input is None):
        raise invalid_fields({"payload": _("It takes either messages or input.")})
    if payload.messages is not None:
        messages = payload.messages
    else:
        messages = [InputMessage(content=payload.input)] if isinstance(payload.input, str) else payload.input or []
    last = next((index for index in reversed(range(len(messages))) if messages[index].role == _USER), None)
    if last is None:
        raise _invalid_messages(_("There is no message of the role user."))
    if last != len(messages) - 1:
        raise _invalid_messages(_("The last message must be of the role user: it is the question."))
    text, images = _text_and_images(messages[last])
    if len(images) > MOST_IMAGES:
        most = ngettext("A question takes {n} image at most.", "A question takes {n} images at most.", MOST_IMAGES)
        raise _invalid_messages(most)
    if not text.strip() and not images:
        raise _invalid_messages(_("The question is empty."))
    earlier = []
    for message in messages[:last]:
        said, shown = _text_and_images(message)
        names = [f"image {number}" for number in range(1, len(shown) + 1)]
        earlier.append((message.role, append_file_names(said, names)))
    lines = format_lines([line for line in earlier if line[1].strip()])
    attachments = tuple(
        uploads.store(data, f"image-{number}.{mime_type.removeprefix('image/')}", mime_type, owner)
        for number, (data, mime_type) in enumerate(images, start=1)
    )
    return text.strip() or describe_files(attachments), lines, attachments


def _invalid_messages(error: str) -> Problem:
    return invalid_fields({"payload.messages": error})


def _text_and_images(message: InputMessage) -> tuple[str, Sequence[tuple[bytes, str]]]:
    """Return the text of a message, and its images with their media types."""
    if isinstance(message.content, str):
        return message.content, ()
    texts: list[str] = []
    images: list[tuple[bytes, str]] = []
    for piece in message.content:
        if piece.type in _TEXTS and piece.text is not None:
            texts.append(piece.text)
        elif piece.type in _IMAGES and piece.image_url is not None:
            images.append(_image(piece.image_url))
        else:
            raise _invalid_messages(_("A piece of a message must be a text or an image."))
    return "\n".join(texts), images


def _image(address: str | dict[str, Any]) -> tuple[bytes, str]:
    url = address.get("url") if isinstance(address, dict) else address
    match = _DATA.fullmatch(url) if isinstance(url, str) else None
    if match is None:
        text = _("An image must be in the request itself: data:image/png;base64,… (PNG, JPEG, GIF or WebP).")
        raise _invalid_messages(text)
    try:
        return base64.b64decode("".join(match[2].split()), validate=True), match[1]
    except binascii.Error:
        raise _invalid_messages(_("An image is no base64.")) from None


WAIT_SECONDS = 50.0
"""Seconds that a request without a stream waits: proxies time out after a minute."""

ResponseId = Annotated[str, Path(alias="responseId", max_length=64)]
OutputIndex = Annotated[int, Path(alias="outputIndex", ge=0, le=100_000)]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", max_length=10_000)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Of this very question, the caller's own: sent again under it, it is asked once.",
    ),
]
_STREAM = stream_description(event_schemas(SCHEMA_REFERENCE)[0])
_UNFINISHED = {
    "model": ResponseShape,
    "description": "It waits for an approval or for an answer to a server, or is still being answered.",
}


class ResponseRequest(RequestModel):
    """Input, and the conversation that it belongs to."""

    conversation_id: str | int | None = Field(default=None, description="A new conversation without one.")
    title: str = Field(default="", max_length=255, description="Of a new conversation; without one its first words.")
    workspace: str = Field(
        default="", description="Where a new conversation is held: PLATFORM:ID; the token's if empty."
    )
    agent: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="Name or id of the agent to ask, from `GET /api/agents`. Without it, the conversation goes on with "
        "the one that was named last. `default` goes back to the profile that answers without a name.",
    )
    payload: Payload


class Attempted(StrEnum):
    """Actions for a call of unknown outcome."""

    AGAIN = "again"
    CHECK = "check"


class Stopped(ResponseModel):
    """Result of a stop."""

    response_id: str
    stopped: bool = Field(description="False if it had ended.")


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes to create, follow, read and stop responses."""
    router = api_router(tags=["responses"])
    responses = _Responses(dependencies)

    @router.post("/api/responses/stream", response_model=ResponseShape, responses={**_STREAM, 202: _UNFINISHED})
    async def create_response(
        request: ResponseRequest,
        caller: MemberCaller,
        response: Response,
        *,
        place: RequestStreamPlace,
        idempotency_key: IdempotencyKey = None,
        last_event_id: LastEventId = None,
    ) -> Response | ResponseShape:
        """Create a response. Returns events until the turn has ended. With `stream: false`, returns one document, or
        202 if the turn waits for an approval or an elicitation, or takes longer than a minute.
        """
        name = "" if request.conversation_id is None else str(request.conversation_id)
        key = own_conversation(caller, request.workspace, name or _thread(idempotency_key))
        if last_event_id and idempotency_key is None:
            # A client that reconnects by itself would create a second turn.
            raise Problem(
                400,
                "no_such_event",
                _("Only a question with an Idempotency-Key can be taken up again."),
                _("follow it with GET /api/responses/{responseId}/stream"),
            )
        may_wait = responses.take_place(place, request.payload)
        receipt = await responses.receive(caller, key, request, idempotency_key)
        place.follow(receipt.turn_id)
        ignored = request.payload.ignored_fields(dependencies.models)
        if request.payload.stream:
            opening = {"title": request.title or None, "redelivery": receipt.redelivery, "ignored": ignored}
            return responses.stream(caller, receipt.turn_id, key, last_event_id, opening)
        view = await (responses.wait if may_wait else dependencies.engine.view)(receipt.turn_id)
        if not view.turn.status.ended:
            response.status_code = 202
            response.headers["Location"] = f"/api/responses/{view.turn.id}"
        return responses.shape(caller, view).model_copy(update={"ignored": ignored})

    @router.get("/api/responses/{responseId}", response_model=ResponseShape)
    async def read_response(response_id: ResponseId, caller: MemberCaller) -> ResponseShape:
        """Return the current state of a response."""
        return responses.shape(caller, await responses.find(caller, response_id))

    @router.get("/api/responses/{responseId}/stream", responses=_STREAM, response_class=EventStream)
    async def follow_response(
        response_id: ResponseId, caller: MemberCaller, place: RequestStreamPlace, last_event_id: LastEventId = None
    ) -> Response:
        """Follow a response from its start, or from the event after `Last-Event-ID`."""
        view = await responses.find(caller, response_id)
        place.take()
        place.follow(response_id)
        return responses.stream(caller, response_id, view.turn.conversation, last_event_id, {})

    @router.delete("/api/responses/{responseId}", response_model=Stopped)
    async def stop_response(response_id: ResponseId, caller: MemberCaller) -> Stopped:
        """Stop a response. Running calls are cancelled, too."""
        await responses.find(caller, response_id)
        stopped = await dependencies.engine.stop(response_id, caller.author)
        return Stopped(response_id=response_id, stopped=stopped)

    @router.post(
        "/api/responses/{responseId}/calls/{outputIndex}/{attempt}", response_model=ResponseShape, status_code=202
    )
    async def try_again(
        response_id: ResponseId, output_index: OutputIndex, attempt: Attempted, caller: MemberCaller, response: Response
    ) -> ResponseShape:
        """Continue after a call of unknown outcome. `check` asks the model to find out; `again` runs the call again
        after a new approval. `again` also retries a failed call. The result is a response of its own, created once for
        repeated requests.
        """
        view = await responses.find(caller, response_id)
        if not is_own(caller, view.turn.conversation):
            raise _no_such_response()
        retry = dependencies.engine.run_again if attempt is Attempted.AGAIN else dependencies.engine.check_outcome
        receipt = await retry(response_id, output_index, caller.author)
        response.headers["Location"] = f"/api/responses/{receipt.turn_id}"
        return responses.shape(caller, await responses.find(caller, receipt.turn_id))

    return router


class _Responses:
    """Shared implementation of the routes."""

    def __init__(self, dependencies: WebDependencies) -> None:
        self._dependencies = dependencies
        self._engine = dependencies.engine
        self._subscriptions = dependencies.surface.subscriptions
        self._uploads = dependencies.surface.uploads

    def take_place(self, place: StreamPlace, payload: Payload) -> bool:
        """Take a place for a stream or a wait. Return False without a place for a wait: the request is answered at
        once, with 202. Raises Problem.
        """
        if not payload.stream:
            return place.take_to_wait()
        place.take()
        return True

    async def find(self, caller: ApiClient, turn_id: str) -> TurnView:
        """Return the view of a turn that the caller may see. Raises Problem."""
        try:
            view = await self._engine.view(turn_id)
        except ContentDeleted:
            raise
        except NotFound:
            raise _no_such_response() from None
        if not may_see(caller, view.turn.conversation):
            raise _no_such_response()
        return view

    def shape(self, caller: ApiClient, view: TurnView) -> ResponseShape:
        """Return a turn for the response."""
        signed_by = self._dependencies.command_dependencies.administration.signed_by
        return response_shape(view, format_id(caller, view.turn.conversation), signed_by, caller.author.principal)

    async def receive(
        self, caller: ApiClient, key: ConversationKey, request: ResponseRequest, name: str | None
    ) -> Receipt:
        """Store the input once. Raises Problem if the idempotency key belongs to other input."""
        # An API client waits longer than a chat platform before it sends its message again.
        await self._engine.arrivals.wait()
        agent = self._agent(key, request.agent)
        text, earlier, attachments = parse_input(request.payload, self._uploads, caller.author.id)
        has_turns = await self._engine.latest_turn(key) is not None
        if request.title.strip() and not has_turns:
            await self._dependencies.command_dependencies.stores.archive.create(key, request.title)
        keys = (f"http:{caller.author.id}:{name}" if name is not None else f"http:{secrets.token_hex(16)}",)
        has_history = has_turns and self._dependencies.keeps_content
        earlier = () if has_history else earlier
        chosen = request.payload.model if request.payload.model in self._dependencies.models else None
        message = InboundMessage(keys, key, caller.author, text, attachments, earlier, model=chosen or "", agent=agent)
        try:
            receipt = await self._engine.receive(
                await self._dependencies.locales.with_locales(message, caller.member, direct=True)
            )
        except QueueFull:
            self._drop_images(attachments)
            raise
        if receipt.redelivery:
            self._drop_images(attachments)
            turn = (await self._engine.view(receipt.turn_id)).turn
            asked = (turn.question.text, turn.question.model, turn.conversation)
            is_same_agent = agent is None or agent.id == (turn.question.agent or PLACE_AGENT).id
            if asked != (text, message.model, key) or not is_same_agent:
                raise Problem(
                    409,
                    "idempotency_key_reused",
                    _("Another question was asked under this Idempotency-Key."),
                    _("take a new key for a new question"),
                )
        return receipt

    def _agent(self, conversation: ConversationKey, name: str | None) -> AgentRef | None:
        """Return the agent of a name or an id, None without one. Raises Problem."""
        if name is None:
            return None
        agents = self._engine.agents(conversation)
        by_id = (agent for agent in agents.here if agent.id == name)
        if (agent := agents.find(name) or next(by_id, None)) is None:
            message = _("There is no agent of that name here.")
            fix = _("name one of these: {names}", names=", ".join((*agents.names, PLACE_NAME)))
            raise Problem(404, "no_such_agent", message, fix, {"agent": message})
        return agent

    def _drop_images(self, attachments: Sequence[Attachment]) -> None:
        for attachment in attachments:
            self._uploads.drop(attachment)

    def stream(
        self,
        caller: ApiClient,
        turn_id: str,
        conversation: ConversationKey,
        last_event_id: str | None,
        opening: Mapping[str, Any],
    ) -> Response:
        """Return the remaining events, or 204 if there are none. Raises Problem if the id is not of an event of this
        turn.
        """
        cursor = _cursor(turn_id, last_event_id)
        if cursor.is_over:
            return Response(status_code=204)
        signed_by = self._dependencies.command_dependencies.administration.signed_by
        encoder = EventEncoder(format_id(caller, conversation), signed_by, cursor, opening, caller.author.principal)
        return EventStream(self._events(turn_id, encoder))

    async def _events(self, turn_id: str, encoder: EventEncoder) -> AsyncGenerator[ServerEvent, None]:
        try:
            async with aclosing(self._subscriptions.views(turn_id, self._engine.view)) as views:
                async for view in views:
                    for event in encoder.encode(view):
                        yield ServerEvent(event.name, event.data, str(event.cursor))
        except CountersignError as error:
            # Without an id, and not the end: a client that reconnects continues at this point.
            problem = problem_of_error(error)
            shape = StreamErrorShape(code=problem.code, message=problem.message)
            yield ServerEvent("error", shape.model_dump(by_alias=True, mode="json", exclude_unset=True))

    async def wait(self, turn_id: str) -> TurnView:
        """Return the turn once it has ended or waits for a user, or its current view after the timeout."""
        return await self._subscriptions.wait(
            turn_id, self._engine.view, WAIT_SECONDS, lambda view: view.turn.status.ended or is_waiting(view)
        )


def _thread(idempotency_key: str | None) -> str:
    return sha256(idempotency_key.encode()).hexdigest()[:16] if idempotency_key is not None else ""


def _cursor(turn_id: str, last_event_id: str | None) -> Cursor:
    if not last_event_id:
        return Cursor(turn_id)
    try:
        cursor = Cursor.parse(last_event_id)
    except ValueError:
        cursor = Cursor("")
    if cursor.turn_id != turn_id:
        raise Problem(
            400,
            "no_such_event",
            _("Last-Event-ID is no event of this response."),
            _("leave it out to begin at the beginning"),
        )
    return cursor


def _no_such_response() -> Problem:
    return Problem(404, "not_found", _("There is no such response."), _("GET /api/conversations lists conversations"))
