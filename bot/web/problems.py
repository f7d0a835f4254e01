"""What goes wrong, in the one shape in which the HTTP API says so.

    {"error": {"code": "not_found", "message": "…", "fix": "…", "fields": {"name": "…"}}, "requestId": "…"}

Routes raise `Problem`, or let errors of `bot.errors` pass: what those come to is decided here and nowhere else. No text
repeats a value that was sent: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from fastapi.exceptions import RequestValidationError
from pydantic import AliasChoices, BaseModel, Field
from pydantic.fields import FieldInfo
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bot.commands.rejections import CommandRejected, ForbiddenRejection, NotFoundRejection
from bot.commands.text_format import did_you_mean
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

# -------------------- validation errors
# What is wrong with the fields of a request, in words for whoever sent it: each field by its place in what was sent,
# and what it takes instead. Called by `problems`; knows no subject.
#
# What the library that checks says of itself is not told: only what kind of mistake it has found, and where. No
# sentence repeats a value that was sent; a name that is not known here may be answered with the one it looks most
# like.

Place = tuple[str | int, ...]

_MOST_FIELDS = 50
_LONGEST_NAME = 100
_OURS = "value_error"
"""What an error is called that a function of ours has raised, in words for people."""
_PREFIX = "Value error, "
_BETWEEN = re.compile(", | or ")
"""What stands between the words of `'a', 'b' or 'c'`."""

_TEXT, _TRUTH, _WHOLE, _NUMBER = "text", "true or false", "a whole number", "a number"
_LIST, _OBJECT = "a list", "a JSON object"
_KINDS: Mapping[str, str] = {
    "string_type": _TEXT,
    "bool_type": _TRUTH,
    "bool_parsing": _TRUTH,
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "list_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "none_required": "null",
}
"""What a value has to be that is of another kind. Where a field takes several kinds there is an error of each."""
_LIMITS: Mapping[str, str] = {
    "missing": "It is missing.",
    "string_too_short": "It must have {min_length} or more characters.",
    "string_too_long": "It must be at most {max_length} characters long.",
    "string_pattern_mismatch": "It must match the regular expression {pattern}",
    "too_short": "It must have {min_length} or more entries.",
    "too_long": "It must have at most {max_length} entries.",
    "greater_than": "It must be more than {gt}.",
    "greater_than_equal": "It must be at least {ge}.",
    "less_than": "It must be less than {lt}.",
    "less_than_equal": "It must be at most {le}.",
    "enum": "It must be one of: {expected}.",
    "literal_error": "It must be one of: {expected}.",
    "int_parsing_size": "It must be a whole number with fewer digits.",
    "finite_number": "It must be a number that is not infinite.",
}
_UNTHOUGHT_OF = "It cannot be used as it is."


def validation_errors(found: Sequence[Mapping[str, Any]], body: object, shape: object) -> dict[str, str]:
    """A sentence on each field, by its place, of what pydantic has found (`ValidationError.errors`) in a request.
    `body` is what was sent, and `shape` the type it should have had, None if nobody knows.
    """
    by_place: dict[Place, list[Mapping[str, Any]]] = {}
    for each in found[:_MOST_FIELDS]:
        by_place.setdefault(_place(each, body), []).append(each)
    # A list with a mistake inside is no text either, which is not what is wrong where a field takes text or a list.
    around = {place[:length] for place in by_place for length in range(len(place))}
    return {
        ".".join(map(str, place[1:]))[:_LONGEST_NAME] or "body": _told(errors, place[1:], shape)
        for place, errors in by_place.items()
        if place not in around
    }


def _place(error: Mapping[str, Any], body: object) -> Place:
    """Where a mistake is: in the body, the query, the path or a header, and where there. Of a body, pydantic puts the
    types that a field may have among the names, and they are left out.
    """
    source, *names = error["loc"]
    if source != "body":
        return tuple(error["loc"])
    place: list[str | int] = [source]
    value = body
    for name in names:
        match value:
            case dict() if name in value:
                value = value[name]
            case list() if isinstance(name, int) and name < len(value):
                value = value[name]
            case dict() if name == names[-1] and error["type"] == "missing":
                pass
            case _:
                continue
        place.append(name)
    return tuple(place)


def _told(errors: Sequence[Mapping[str, Any]], place: Place, shape: object) -> str:
    """What is wrong at one place. An error that is not about the kind of a value says more: the kind was right."""
    kinds = [_KINDS[each["type"]] for each in errors if each["type"] in _KINDS]
    if len(kinds) == len(errors):
        return f"It must be {' or '.join(dict.fromkeys(kinds))}."
    error = next(each for each in errors if each["type"] not in _KINDS)
    if error["type"] == "extra_forbidden":
        return f"It is not known here.{did_you_mean(str(place[-1]), _known(shape, place[:-1]))}"
    if error["type"] == _OURS:
        return _sentence(str(error["msg"]).removeprefix(_PREFIX))
    return _limit(error["type"], error.get("ctx", {}))


def _limit(kind: str, limits: Mapping[str, Any]) -> str:
    """What is wrong with a value of the right kind, or with none. Limits are the program's own: nothing that was sent
    is among those that are named.
    """
    shown = {name: f"{each:,.15g}" if isinstance(each, int | float) else str(each) for name, each in limits.items()}
    if "expected" in shown:
        shown["expected"] = ", ".join(each.strip("'") for each in _BETWEEN.split(shown["expected"]))
    return _LIMITS.get(kind, _UNTHOUGHT_OF).format_map(shown)


def _sentence(said: str) -> str:
    return f"{said[:1].upper()}{said[1:]}{'' if said.endswith(('.', '?')) else '.'}"


def _known(shape: object, place: Place) -> Iterable[str]:
    """The names of all fields there may be at a place."""
    shapes = [*_models(shape)]
    for name in place:
        shapes = [each for one in shapes for each in _inside(one, name)]
    return [name for each in shapes for field, info in each.model_fields.items() for name in _names(field, info)]


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that are, or are in, a type: in a union, a list or a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)


def _inside(model: type[BaseModel], name: str | int) -> Iterator[type[BaseModel]]:
    """The models in a field. A place in a list leads to what the list is of, which `_models` has looked through."""
    if isinstance(name, int):
        yield model
    for field, info in model.model_fields.items():
        if name in (field, *_names(field, info)):
            yield from _models(info.annotation)


def _names(field: str, info: FieldInfo) -> Sequence[str]:
    """What a field is called in a request."""
    match info.validation_alias:
        case AliasChoices(choices=choices):
            return [each for each in choices if isinstance(each, str)]
        case str(alias):
            return [alias]
        case _:
            return [field]


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
