"""Errors in the format of the HTTP API.

    {"error": {"code": "not_found", "message": "…", "fix": "…", "fields": {"name": "…"}}, "requestId": "…"}

Routes raise `Problem` or errors of `bot.errors`; this module maps both to responses. No message repeats a value of the
request, because it may be a secret. A field's error names its position and the expected type, never pydantic's own
message.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import AliasChoices, BaseModel, Field
from pydantic.fields import FieldInfo
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from bot.admin.command import CommandRejected, ForbiddenRejection, NotFoundRejection
from bot.admin.text_format import did_you_mean, sentences
from bot.errors import (
    Conflict,
    ContentDeleted,
    CountersignError,
    DatabaseUnavailable,
    ModelRejected,
    ModelUnavailable,
    NotConnected,
    NotFound,
    QueueFull,
    SecretUnavailable,
    ServerTrouble,
    SettingsError,
)
from bot.i18n import _, format_alternatives, gettext_lazy

# -------------------- validation errors

Position = tuple[str | int, ...]

_MOST_FIELDS = 50
_LONGEST_NAME = 100
_VALUE_ERROR = "value_error"
"""pydantic's error type for a ValueError of this project, with a message for users."""
_PREFIX = "Value error, "
_SEPARATORS = re.compile(", | or ")
"""Separators in `'a', 'b' or 'c'`."""

_TEXT, _BOOLEAN = gettext_lazy("text"), gettext_lazy("true or false")
_INTEGER, _NUMBER = gettext_lazy("a whole number"), gettext_lazy("a number")
_LIST, _OBJECT = gettext_lazy("a list"), gettext_lazy("a JSON object")
_TYPE_NAMES: Mapping[str, str] = {
    "string_type": _TEXT,
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "int_type": _INTEGER,
    "int_parsing": _INTEGER,
    "int_from_float": _INTEGER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "list_type": _LIST,
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "model_attributes_type": _OBJECT,
    "none_required": "null",
}
"""Expected type by pydantic's error type. A field of several types has one error for each."""
_LIMITS: Mapping[str, str] = {
    "missing": gettext_lazy("It is missing."),
    "string_too_short": gettext_lazy("It must have {min_length} or more characters."),
    "string_too_long": gettext_lazy("It must be at most {max_length} characters long."),
    "string_pattern_mismatch": gettext_lazy("It must match the regular expression {pattern}"),
    "too_short": gettext_lazy("It must have {min_length} or more entries."),
    "too_long": gettext_lazy("It must have at most {max_length} entries."),
    "greater_than": gettext_lazy("It must be more than {gt}."),
    "greater_than_equal": gettext_lazy("It must be at least {ge}."),
    "less_than": gettext_lazy("It must be less than {lt}."),
    "less_than_equal": gettext_lazy("It must be at most {le}."),
    "enum": gettext_lazy("It must be one of: {expected}."),
    "literal_error": gettext_lazy("It must be one of: {expected}."),
    "int_parsing_size": gettext_lazy("It must be a whole number with fewer digits."),
    "finite_number": gettext_lazy("It must be a number that is not infinite."),
}
_OTHER_ERROR = gettext_lazy("It cannot be used as it is.")


def validation_errors(errors: Sequence[Mapping[str, Any]], body: object, body_type: object) -> dict[str, str]:
    """Return one sentence per field, by its position, for pydantic's errors (`ValidationError.errors`). `body` is the
    request body, `body_type` its type, None if unknown.
    """
    by_position: dict[Position, list[Mapping[str, Any]]] = {}
    for error in errors[:_MOST_FIELDS]:
        by_position.setdefault(_position(error, body), []).append(error)
    # A list with an invalid item is not a string either; report the item.
    containers = {position[:length] for position in by_position for length in range(len(position))}
    return {
        ".".join(map(str, position[1:]))[:_LONGEST_NAME] or "body": _message(errors, position[1:], body_type)
        for position, errors in by_position.items()
        if position not in containers
    }


def _position(error: Mapping[str, Any], body: object) -> Position:
    """Return the position of an error: body, query, path or header, and the path in it. pydantic adds the types of a
    union to positions in the body; they are removed.
    """
    source, *names = error["loc"]
    if source != "body":
        return tuple(error["loc"])
    position: list[str | int] = [source]
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
        position.append(name)
    return tuple(position)


def _message(errors: Sequence[Mapping[str, Any]], position: Position, body_type: object) -> str:
    """Return the error at one position. An error that is not about the type is more specific."""
    type_names = [_TYPE_NAMES[candidate["type"]] for candidate in errors if candidate["type"] in _TYPE_NAMES]
    if len(type_names) == len(errors):
        return _("It must be {types}.", types=format_alternatives([str(name) for name in dict.fromkeys(type_names)]))
    error = next(candidate for candidate in errors if candidate["type"] not in _TYPE_NAMES)
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(str(position[-1]), _known_fields(body_type, position[:-1]))
        return sentences(_("It is not known here."), hint)
    if error["type"] == _VALUE_ERROR:
        text = str(error["msg"]).removeprefix(_PREFIX)
        return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '?', '。')) else '.'}"
    kind = error["type"]
    limits = error.get("ctx", {})
    texts = {name: f"{limit:,.15g}" if isinstance(limit, int | float) else str(limit) for name, limit in limits.items()}
    if "expected" in texts:
        texts["expected"] = ", ".join(limit.strip("'") for limit in _SEPARATORS.split(texts["expected"]))
    return str(_LIMITS.get(kind, _OTHER_ERROR)).format_map(texts)


def _known_fields(body_type: object, position: Position) -> Iterable[str]:
    """Yield the names of all possible fields at a position."""
    models = [*_models(body_type)]
    for name in position:
        models = [model for parent in models for model in _field_models(parent, name)]
    return [
        name for model in models for field, info in model.model_fields.items() for name in _request_names(field, info)
    ]


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models in a type: in a union, a list or a mapping."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _field_models(model: type[BaseModel], name: str | int) -> Iterator[type[BaseModel]]:
    """Yield the models of a field. An index leads to the items of a list, which `_models` has included."""
    if isinstance(name, int):
        yield model
    for field, info in model.model_fields.items():
        if name in (field, *_request_names(field, info)):
            yield from _models(info.annotation)


def _request_names(field: str, info: FieldInfo) -> Sequence[str]:
    match info.validation_alias:
        case AliasChoices(choices=choices):
            return [choice for choice in choices if isinstance(choice, str)]
        case str(alias):
            return [alias]
        case _:
            return [field]


Handler = Callable[[Request, Exception], Awaitable[Response]]


class Problem(Exception):
    """A rejected request. `code` is stable and for programs; `message` is the cause, `fix` an imperative; `fields`
    has one message per invalid field of body, query or path.
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
    """Details of an error."""

    code: str = Field(description="A word for programs, such as `not_found`.")
    message: str = Field(description="Cause, in a sentence.")
    fix: str = Field(description="Fix, as an imperative; may be empty.")
    fields: dict[str, str] = Field(description="Messages by field name.")


class ErrorAnswer(BaseModel):
    """The body of every error response."""

    error: ErrorDetails
    requestId: str = Field(description="The same as in the header `X-Request-Id`, and in the log.")  # noqa: N815 - on the wire


_RETRY = {"Retry-After": "5"}
"""Header for an unavailable database or model; about the time of a restart."""

_ERRORS: Mapping[type[CountersignError], tuple[int, str]] = {
    NotFound: (404, "not_found"),
    ContentDeleted: (410, "deleted"),
    Conflict: (409, "conflict"),
    SettingsError: (422, "unusable"),
    SecretUnavailable: (409, "secret_unavailable"),
    ServerTrouble: (502, "server_trouble"),
    NotConnected: (502, "server_trouble"),
    ModelUnavailable: (503, "model_unavailable"),
    ModelRejected: (502, "model_rejected"),
}
"""Status and code by error class. Other errors are internal errors."""

_REJECTIONS: Mapping[type[CommandRejected], tuple[int, str]] = {
    NotFoundRejection: (404, "not_found"),
    ForbiddenRejection: (403, "forbidden"),
    CommandRejected: (422, "refused"),
}
"""Status and code by rejection class of commands; the first match counts. Their messages are Markdown of this project.
"""

_STATUSES = {
    400: ("bad_request", gettext_lazy("The request cannot be read.")),
    401: ("unauthorized", gettext_lazy("The request needs a token.")),
    403: ("forbidden", gettext_lazy("This is not allowed.")),
    404: ("not_found", gettext_lazy("There is nothing at this address.")),
    405: ("method_not_allowed", gettext_lazy("This address does not take that method.")),
    408: ("too_slow", gettext_lazy("The body did not arrive in time.")),
    413: ("too_large", gettext_lazy("The body is too large.")),
    415: ("not_json", gettext_lazy("The body must be JSON.")),
}
_INTERNAL_ERROR = ("broken", gettext_lazy("Something broke. The log has the reason, under this request's id."))


def request_id(request: Request) -> str:
    """Return the id of a request, as in its response and in the log."""
    return str(getattr(request.state, "request_id", ""))


def to_response(problem: Problem, about: str) -> Response:
    """Return a problem as a response in the current language; `about` is the request's id."""
    fields = {name: str(message) for name, message in problem.fields.items()}
    error = {"code": problem.code, "message": str(problem.message), "fix": str(problem.fix), "fields": fields}
    return JSONResponse({"error": error, "requestId": about}, problem.status, problem.headers)


def invalid_fields(fields: Mapping[str, str], message: str = "", fix: str = "") -> Problem:
    """Return the problem of a request with one message per invalid field."""
    message = message or _("Some fields cannot be used.")
    return Problem(422, "invalid", message, fix or _("correct the fields that are named"), fields)


def internal_error() -> Problem:
    """Return a problem without details for an internal error."""
    return Problem(500, *_INTERNAL_ERROR)


def problem_of_error(error: CountersignError) -> Problem:
    """Return the problem for an error of the program."""
    if isinstance(error, DatabaseUnavailable):
        # Details of the database are for the operator; the log has them.
        return Problem(
            503, "database_unavailable", _("The database is away for now."), _("ask again later"), headers=_RETRY
        )
    if isinstance(error, QueueFull):
        return Problem(429, "queue_full", error.cause, error.fix, headers=_RETRY)
    if type(error) not in _ERRORS:
        return internal_error()
    status, code = _ERRORS[type(error)]
    fields = {error.field: error.cause} if isinstance(error, Conflict) and error.field else {}
    return Problem(status, code, error.cause, error.fix, fields, headers=_RETRY if status == 503 else {})


def problem_of_status(status: int, headers: Mapping[str, str] | None = None, fix: str = "") -> Problem:
    """Return a problem from an HTTP status alone."""
    code, message = _STATUSES.get(status, ("refused", _("The request is not done.")))
    return Problem(status, code, message, fix, headers=headers)


async def answer_error(request: Request, error: Exception) -> Response:
    """Handle an expected error of a route. Raises one that is internal."""
    match error:
        case Problem():
            problem = error
        case CommandRejected():
            status, code = next(answer for rejected, answer in _REJECTIONS.items() if isinstance(error, rejected))
            problem = Problem(status, code, str(error))
        case CountersignError():
            problem = problem_of_error(error)
            if problem.status == 500:
                raise error
        case HTTPException():
            problem = problem_of_status(error.status_code, error.headers)
        case _:
            raise error
    return to_response(problem, request_id(request))


def rejection_response(
    request: Request, status: int, fix: str = "", headers: Mapping[str, str] | None = None
) -> Response:
    """Return the response to an `HTTPException` with a known fix."""
    return to_response(problem_of_status(status, headers, fix), request_id(request))
