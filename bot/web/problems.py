"""What goes wrong, in the one shape in which the HTTP API says so.

    {"error": {"code": "not_found", "message": "…", "fix": "…", "fields": {"name": "…"}}, "requestId": "…"}

Routes raise `Problem`, or let errors of `bot.errors` pass: what those come to is decided here and nowhere else. No text
repeats a value that was sent: it may be a secret.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bot.commands.rejections import CommandRejected, ForbiddenRejection, NotFoundRejection
from bot.errors import (
    Conflict,
    CountersignError,
    DatabaseUnavailable,
    ModelRejected,
    ModelUnavailable,
    NotFound,
    QueueFull,
    SecretUnavailable,
    ServerTrouble,
    SettingsError,
)
from bot.web.validation_errors import validation_errors

Handler = Callable[[Request, Exception], Awaitable[Response]]


class Problem(Exception):
    """A request that is not done. `code` is for programs and stays what it is; `message` says in a sentence what
    happened and `fix` what to do; `fields` says of fields of the body, query or path what is wrong with each.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        fix: str = "",
        fields: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.fix = fix
        self.fields = dict(fields or {})
        self.headers = dict(headers or {})


class ErrorDetails(BaseModel):
    """What went wrong."""

    code: str = Field(description="A word for programs, such as `not_found`.")
    message: str = Field(description="What happened, in a sentence.")
    fix: str = Field(description="What to do about it; may be empty.")
    fields: dict[str, str] = Field(description="What is wrong with which field.")


class ErrorAnswer(BaseModel):
    """The body of every answer that is an error."""

    error: ErrorDetails
    requestId: str = Field(description="The same as in the header `X-Request-Id`, and in the log.")  # noqa: N815 - on the wire


_RETRY = {"Retry-After": "5"}
"""After the database or a model was away: about as long as a restart takes."""

_KNOWN: Mapping[type[CountersignError], tuple[int, str]] = {
    NotFound: (404, "not_found"),
    Conflict: (409, "conflict"),
    SettingsError: (422, "unusable"),
    SecretUnavailable: (409, "secret_unavailable"),
    ServerTrouble: (502, "server_trouble"),
    ModelUnavailable: (503, "model_unavailable"),
    ModelRejected: (502, "model_rejected"),
}
"""What errors of the program come to, in their own words. What is not here is a failure of the program itself."""

_REFUSALS: Mapping[type[CommandRejected], tuple[int, str]] = {
    NotFoundRejection: (404, "not_found"),
    ForbiddenRejection: (403, "forbidden"),
    CommandRejected: (422, "refused"),
}
"""The same of what commands turn down. Their reasons are Markdown of our own; the first that fits counts."""

_STATUSES = {
    400: ("bad_request", "The request cannot be read."),
    401: ("unauthorized", "The request needs a token."),
    403: ("forbidden", "This is not allowed."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take that method."),
    408: ("too_slow", "The body did not arrive in time."),
    413: ("too_large", "The body is too large."),
    415: ("not_json", "The body must be JSON."),
}
_BROKEN = ("broken", "Something broke. The log has the reason, under this request's id.")


def request_id(request: Request) -> str:
    """The id of a request, as it is in its answer and in the log."""
    return str(getattr(request.state, "request_id", ""))


def to_response(problem: Problem, about: str) -> Response:
    """A problem as it is sent; `about` is the request's id."""
    error = {"code": problem.code, "message": problem.message, "fix": problem.fix, "fields": problem.fields}
    return JSONResponse({"error": error, "requestId": about}, problem.status, problem.headers)


def internal_error() -> Problem:
    """What is told of a failure of the program itself: nothing."""
    return Problem(500, *_BROKEN)


def problem_of_error(error: CountersignError) -> Problem:
    """What an error of the program comes to."""
    if isinstance(error, DatabaseUnavailable):
        # Where the database is and what is the matter with it is the operator's to know: the log has it.
        return Problem(503, "database_unavailable", "The database is away for now.", "ask again later", headers=_RETRY)
    if isinstance(error, QueueFull):
        return Problem(429, "queue_full", error.cause, error.fix, headers=_RETRY)
    if type(error) not in _KNOWN:
        return internal_error()
    status, code = _KNOWN[type(error)]
    named = {error.field: error.cause} if isinstance(error, Conflict) and error.field else {}
    return Problem(status, code, error.cause, error.fix, named, headers=_RETRY if status == 503 else {})


def problem_of_status(status: int, headers: Mapping[str, str] | None = None, fix: str = "") -> Problem:
    """A problem that has little to it but its status."""
    code, message = _STATUSES.get(status, ("refused", "The request is not done."))
    return Problem(status, code, message, fix, headers=headers)


def problem_of_validation(error: RequestValidationError, shape: object = None) -> Problem:
    """What does not fit the shape of a request, field by field, without what was sent. `shape` is the body's type."""
    found = error.errors()
    if any(each["type"] == "json_invalid" for each in found):
        return Problem(400, "not_json", "The body is not JSON.", "send one JSON object")
    named = validation_errors(found, error.body, shape)
    return Problem(422, "invalid", "Some fields cannot be used.", "correct the fields that are named", named)


async def _answer_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return to_response(problem, request_id(request))


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, CountersignError)
    problem = problem_of_error(error)
    if problem.status == 500:
        raise error
    return to_response(problem, request_id(request))


async def _answer_refusal(request: Request, refusal: Exception) -> Response:
    status, code = next(told for kind, told in _REFUSALS.items() if isinstance(refusal, kind))
    return to_response(Problem(status, code, str(refusal)), request_id(request))


async def _answer_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    body = getattr(request.scope.get("route"), "body_field", None)
    shape = None if body is None else body.field_info.annotation
    return to_response(problem_of_validation(error, shape), request_id(request))


async def answer_status(request: Request, error: Exception) -> Response:
    """What the framework itself refuses."""
    assert isinstance(error, HTTPException)
    return rejection_response(request, error.status_code, headers=error.headers)


def rejection_response(
    request: Request, status: int, fix: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """The same, where it is known what to do instead."""
    return to_response(problem_of_status(status, headers, fix), request_id(request))


async def _answer_failure(request: Request, _error: Exception) -> Response:
    # It goes on to whoever stands around the application, who logs the reason.
    return to_response(internal_error(), request_id(request))


HANDLERS: Mapping[type[Exception], Handler] = {
    Problem: _answer_problem,
    CommandRejected: _answer_refusal,
    CountersignError: _answer_error,
    RequestValidationError: _answer_validation,
    HTTPException: answer_status,
    Exception: _answer_failure,
}
"""What answers which exception of a route."""
