"""Answering over HTTP what servers ask back: the same as on a card, for the token in whose name the call runs.

Whether it may is for the engine to say. What was answered is given back to nobody.
"""

from __future__ import annotations

from typing import Annotated, Any, assert_never

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from bot.domain.answering import Answered, Inquiry, NotAnswerable, UnfitAnswer
from bot.domain.approvals import AlreadySettled, NoSuchApproval, NotAllowed
from bot.domain.callers import Caller
from bot.domain.elicitations import Action, Elicited, FormAsk
from bot.web.authentication import MemberCaller
from bot.web.parts import WebParts
from bot.web.problems import Problem
from bot.web.routes import api_router
from bot.web.turns.addresses import id_of
from bot.web.turns.elicitations import ElicitationShape, elicitation_shape
from bot.web.wire import Sent, Taken

ElicitationId = Annotated[str, Path(alias="elicitationId", max_length=100)]


class ElicitationAnswer(Taken):
    """What the server is told: `accept` with the values of a form, or once a page was visited; `decline`; `cancel` for
    no choice at all.
    """

    model_config = ConfigDict(strict=True)

    action: Annotated[Action, Field(strict=False)]
    content: dict[str, Any] | None = Field(
        default=None, description="Of an accepted form: the values, which have to fit `requestedSchema`."
    )


class ElicitationOutcome(Sent):
    """What has become of it."""

    elicitation_id: str
    action: Action


def routes(parts: WebParts) -> APIRouter:
    """See what a server asks, and answer."""
    router = api_router(tags=["elicitations"])
    desk = _Desk(parts)

    @router.get("/api/responses/elicitation/{elicitationId}", response_model=ElicitationShape)
    async def read_elicitation(elicitation_id: ElicitationId, caller: MemberCaller) -> ElicitationShape:
        """What a server waits to hear from the caller."""
        return desk.shape(caller, await desk.find(caller, elicitation_id))

    @router.post("/api/responses/elicitation/{elicitationId}", response_model=ElicitationOutcome)
    async def answer_elicitation(
        elicitation_id: ElicitationId, said: ElicitationAnswer, caller: MemberCaller
    ) -> ElicitationOutcome:
        """Answer a server: only the token that asked may. The first answer counts."""
        return await desk.answer(caller, elicitation_id, said)

    return router


class _Desk:
    """Takes answers. Every refusal is a Problem."""

    def __init__(self, parts: WebParts) -> None:
        self._engine = parts.engine

    async def find(self, caller: Caller, elicitation_id: str) -> Inquiry:
        """A question that the caller may answer now."""
        found = await self._engine.inquiry(elicitation_id, caller.member)
        if not isinstance(found, Inquiry):
            raise _refused(found)
        if not caller.reaches(found.turn.conversation.home):
            raise _not_found()
        return found

    def shape(self, caller: Caller, found: Inquiry) -> ElicitationShape:
        """A question on the wire."""
        turn = found.turn
        return elicitation_shape(
            turn, found.step, found.elicitation, id_of(caller, turn.conversation), caller.author.principal
        )

    async def answer(self, caller: Caller, elicitation_id: str, said: ElicitationAnswer) -> ElicitationOutcome:
        """Take an answer."""
        found = await self.find(caller, elicitation_id)
        match await self._engine.answer(elicitation_id, _checked(said, found), caller.member):
            case Answered(action):
                return ElicitationOutcome(elicitation_id=elicitation_id, action=action)
            case UnfitAnswer(problems):
                fields = {".".join(filter(None, ("content", each.argument))): each.problem for each in problems}
                raise _wrong(fields)
            case objection:
                raise _refused(objection)


def _checked(said: ElicitationAnswer, found: Inquiry) -> Elicited:
    """The answer. Raises Problem for values where none are asked for."""
    form = isinstance(found.elicitation.question.ask, FormAsk)
    if said.content is not None and not (form and said.action is Action.ACCEPT):
        raise _wrong({"content": "Only a form that is accepted has values."})
    return Elicited(said.action, (said.content or {}) if form and said.action is Action.ACCEPT else None)


def _refused(objection: NotAnswerable) -> Problem:
    """Why an answer has changed nothing."""
    match objection:
        case AlreadySettled(how):
            return Problem(409, "already_settled", how, "see what has become of the response")
        case NotAllowed():
            return Problem(403, "not_allowed", "Only the token that asked can answer this.", "leave it to that one")
        case NoSuchApproval():
            return _not_found()
        case _:
            assert_never(objection)


def _not_found() -> Problem:
    return Problem(
        404, "not_found", "No server waits for an answer to that.", "GET /api/responses/{responseId} lists what does"
    )


def _wrong(fields: dict[str, str]) -> Problem:
    return Problem(422, "invalid", "Some fields cannot be used.", "correct the fields that are named", fields)
