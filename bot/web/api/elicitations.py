"""Elicitations over HTTP: answers to servers by the token that the call runs for.

The engine checks the caller's right to answer. No response contains an answer.
"""

from __future__ import annotations

from typing import Annotated, Any, assert_never

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from bot.domain.api_clients import ApiClient
from bot.domain.approvals import AlreadyDecided, ApprovalNotFound, NotAllowed
from bot.domain.elicitations import ElicitationAction, ElicitationResult, FormMode
from bot.i18n import _
from bot.ports.platform import AnswerRejected, ElicitationAnswered, InvalidValues, OpenElicitation
from bot.rendering.response_models import ElicitationShape, ResponseModel, elicitation_shape
from bot.web.conversation_ids import format_id
from bot.web.dependencies import WebDependencies
from bot.web.parameters import MemberCaller
from bot.web.problems import Problem, invalid_fields
from bot.web.routes import RequestModel, api_router

ElicitationId = Annotated[str, Path(alias="elicitationId", max_length=100)]


class ElicitationAnswer(RequestModel):
    """Answer to a server: `accept` with the values of a form, or after a visit of its page; `decline`; `cancel` to make
    no choice.
    """

    model_config = ConfigDict(strict=True)

    action: Annotated[ElicitationAction, Field(strict=False)]
    content: dict[str, Any] | None = Field(
        default=None, description="Of an accepted form: the values, which have to fit `requestedSchema`."
    )


class ElicitationOutcome(ResponseModel):
    """Result of an answer."""

    elicitation_id: str
    action: ElicitationAction


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the routes to read and answer elicitations."""
    router = api_router(tags=["elicitations"])
    engine = dependencies.engine

    async def find(caller: ApiClient, elicitation_id: str) -> OpenElicitation:
        """Return an elicitation that the caller may answer now. Raises Problem."""
        elicitation = await engine.elicitations.get(elicitation_id, caller.member)
        if not isinstance(elicitation, OpenElicitation):
            raise _rejection_problem(elicitation)
        if not caller.covers_workspace(elicitation.turn.conversation.workspace_key):
            raise _not_found()
        return elicitation

    @router.get("/api/responses/elicitation/{elicitationId}", response_model=ElicitationShape)
    async def read_elicitation(elicitation_id: ElicitationId, caller: MemberCaller) -> ElicitationShape:
        """Return an elicitation that waits for the caller."""
        found = await find(caller, elicitation_id)
        conversation = format_id(caller, found.turn.conversation)
        return elicitation_shape(found.turn, found.step, found.elicitation, conversation, caller.author.principal)

    @router.post("/api/responses/elicitation/{elicitationId}", response_model=ElicitationOutcome)
    async def answer_elicitation(
        elicitation_id: ElicitationId, body: ElicitationAnswer, caller: MemberCaller
    ) -> ElicitationOutcome:
        """Answer a server. Only the token that asked may answer; the first answer counts."""
        elicitation = await find(caller, elicitation_id)
        is_form = isinstance(elicitation.elicitation.question.ask, FormMode)
        takes_content = is_form and body.action is ElicitationAction.ACCEPT
        if body.content is not None and not takes_content:
            raise invalid_fields({"content": _("Only a form that is accepted has values.")})
        result = ElicitationResult(body.action, (body.content or {}) if takes_content else None)
        match await engine.elicitations.answer(elicitation_id, result, caller.member):
            case ElicitationAnswered(action):
                return ElicitationOutcome(elicitation_id=elicitation_id, action=action)
            case InvalidValues(problems):
                named = {".".join(filter(None, ("content", each.argument))): each.problem for each in problems}
                raise invalid_fields(named)
            case rejection:
                raise _rejection_problem(rejection)

    return router


def _rejection_problem(rejection: AnswerRejected) -> Problem:
    """Return the reason why an answer had no effect."""
    match rejection:
        case AlreadyDecided(how):
            return Problem(409, "already_settled", how, _("see what has become of the response"))
        case NotAllowed():
            return Problem(
                403, "not_allowed", _("Only the token that asked can answer this."), _("leave it to that one")
            )
        case ApprovalNotFound():
            return _not_found()
        case _:
            assert_never(rejection)


def _not_found() -> Problem:
    return Problem(
        404,
        "not_found",
        _("No server waits for an answer to that."),
        _("GET /api/responses/{responseId} lists what does"),
    )
