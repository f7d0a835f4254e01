"""Conversion of elicitations between the MCP types and the domain's.

Follows MCP specification 2026-07-28, client/elicitation and basic/patterns/mrtr, and 2025-11-25 for pages that must be
visited first. A request that no user could be shown is rejected here; `elicitations.rejection_reason` holds the other
rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, assert_never

from mcp import MCPError, types
from mcp.types import URL_ELICITATION_REQUIRED
from pydantic import ValidationError

from bot.domain.characters import visible
from bot.domain.elicitations import (
    ElicitationAction,
    ElicitationMode,
    ElicitationRequest,
    ElicitationResult,
    ElicitationResults,
    FormMode,
    UrlMode,
)
from bot.domain.lenient_json import DEEPEST, exceeds_json_depth
from bot.domain.tools import CallNeedsInput
from bot.i18n import gettext_lazy
from bot.mcp.redaction import Redaction
from bot.mcp.results import clean_schema, storable_json, strip_unstorable

LONGEST_MESSAGE = 2_000
LONGEST_URL = 2_000
LARGEST_SCHEMA = 32 * 1024
"""Maximum size of a form's schema, in characters of JSON."""
MOST_QUESTIONS = 10
"""Maximum number of elicitations at once."""
_LONGEST_KEY = 200
_LONGEST_STATE = 100_000
_MORE = "..."
_CHOICES = ("enum", "oneOf", "anyOf")


class UnsupportedElicitation(Exception):
    """The server asks for something unsupported: `request` ends the sentence "It asks for ..."."""

    def __init__(self, request: str) -> None:
        super().__init__(request)
        self.request = request


def parse_input_required(answer: types.InputRequiredResult, redact: Redaction) -> CallNeedsInput:
    """Parse the elicitations that a call needs before it is sent again. Raises UnsupportedElicitation."""
    requests = answer.input_requests or {}
    if not requests:
        raise UnsupportedElicitation(gettext_lazy("the same call again and again, and for nothing else"))
    _check_number(len(requests))
    state = answer.request_state
    if state is not None and (len(state) > _LONGEST_STATE or strip_unstorable(state) != state):
        raise UnsupportedElicitation(gettext_lazy("answers together with a state of its own that cannot be kept"))
    return CallNeedsInput(tuple(_parse_required(key, item, redact) for key, item in requests.items()), state)


def visits_required(error: MCPError, redact: Redaction) -> CallNeedsInput | None:
    """Parse the pages that must be visited before a call, or return None if the error does not ask for any. Raises
    UnsupportedElicitation.
    """
    if error.code != URL_ELICITATION_REQUIRED:
        return None
    try:
        required = types.ElicitationRequiredErrorData.model_validate(error.data).elicitations
    except ValidationError:
        return None
    if not required:
        return None
    _check_number(len(required))
    keys = [item.elicitation_id or "" for item in required]
    if "" in keys or len(set(keys)) < len(keys):
        keys = [str(n) for n in range(1, len(required) + 1)]
    return CallNeedsInput(tuple(parse_request(key, item, redact) for key, item in zip(keys, required, strict=True)))


def parse_request(key: str, params: types.ElicitRequestParams, redact: Redaction) -> ElicitationRequest:
    """Parse one elicitation; texts lose invisible characters and secrets. Raises UnsupportedElicitation."""
    if len(key) > _LONGEST_KEY or strip_unstorable(key) != key:
        raise UnsupportedElicitation(gettext_lazy("an answer under a name that cannot be kept"))
    message = redact(visible(params.message)).strip()
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - len(_MORE)] + _MORE
    return ElicitationRequest(key, message, _mode(params, redact))


def encode_results(replies: ElicitationResults) -> types.InputResponses | None:
    """Encode the answers for the repeated call."""
    return {key: result(reply) for key, reply in replies.by_key.items()} or None


def result(reply: ElicitationResult) -> types.ElicitResult:
    """Encode one answer."""
    try:
        match reply.action:
            case ElicitationAction.ACCEPT:
                content = None if reply.content is None else dict(reply.content)
                return types.ElicitResult(action="accept", content=content)
            case ElicitationAction.DECLINE:
                return types.ElicitResult(action="decline")
            case ElicitationAction.CANCEL:
                return types.ElicitResult(action="cancel")
            case _:
                assert_never(reply.action)
    except ValidationError:
        # The protocol has no such value types, even if the schema allows them.
        return types.ElicitResult(action="cancel")


def unvisited_reason(server: str, replies: ElicitationResults) -> str:
    """Return a sentence about the pages that were not visited; empty if every page was."""
    actions = {reply.action for reply in replies.by_key.values()}
    if actions <= {ElicitationAction.ACCEPT}:
        return ""
    if ElicitationAction.DECLINE in actions:
        return gettext_lazy(
            "Server {server} wants the person to visit a page first, and they declined to. Nothing was done.",
            server=server,
        )
    return gettext_lazy(
        "Server {server} wants the person to visit a page first, and they did not. Nothing was done.", server=server
    )


def _parse_required(key: str, request: types.InputRequest, redact: Redaction) -> ElicitationRequest:
    match request:
        case types.ElicitRequest(params=params):
            return parse_request(key, params, redact)
        case types.CreateMessageRequest():
            raise UnsupportedElicitation(
                gettext_lazy("a text by the language model (sampling), which is switched off here")
            )
        case types.ListRootsRequest():
            raise UnsupportedElicitation(gettext_lazy("a list of folders (roots), which is switched off here"))
        case _:
            assert_never(request)


def _mode(params: types.ElicitRequestParams, redact: Redaction) -> ElicitationMode:
    match params:
        case types.ElicitRequestFormParams(requested_schema=schema):
            return FormMode(_form(schema, redact))
        case types.ElicitRequestURLParams(url=url):
            if len(url) > LONGEST_URL:
                raise UnsupportedElicitation(
                    gettext_lazy("a visit to an address of more than {most} characters", most=LONGEST_URL)
                )
            if redact.found_in(url) or strip_unstorable(url) != url:
                raise UnsupportedElicitation(gettext_lazy("a visit to an address that contains a secret"))
            return UrlMode(url)
        case _:
            assert_never(params)


def _form(schema: Mapping[str, Any], redact: Redaction) -> dict[str, Any]:
    if exceeds_json_depth(schema):
        raise UnsupportedElicitation(
            gettext_lazy("a form whose description is nested deeper than {levels} levels", levels=DEEPEST)
        )
    if len(json.dumps(schema, ensure_ascii=False)) > LARGEST_SCHEMA:
        raise UnsupportedElicitation(
            gettext_lazy("a form whose description has more than {most} characters", most=LARGEST_SCHEMA)
        )
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not all(map(_is_flat_field, properties.values())):
        raise UnsupportedElicitation(gettext_lazy("a form with fields that are no texts, numbers, switches or choices"))
    if redact.found_in(schema):
        # Field names, choices and patterns of a form must not be altered by redaction.
        raise UnsupportedElicitation(gettext_lazy("a form that contains a secret of the server"))
    cleaned: dict[str, Any] = clean_schema(storable_json(dict(schema)), visible)
    for field in cleaned["properties"].values():
        names = field.get("enumNames")
        if isinstance(names, list):
            field["enumNames"] = [visible(str(name)) for name in names]
    return cleaned


def _is_flat_field(field: Any) -> bool:
    """Return True for a field of a flat kind (MCP specification 2026-07-28, client/elicitation)."""
    match field:
        case {"type": "string" | "number" | "integer" | "boolean"}:
            return _has_valid_choices(field)
        case {"type": "array", "items": {**items}}:
            return _is_choice(items)
        case {"type": _}:
            return False
        case Mapping():
            return _is_choice(field)
        case _:
            return False


def _is_choice(field: Mapping[Any, Any]) -> bool:
    return any(isinstance(field.get(word), list) for word in _CHOICES) and _has_valid_choices(field)


def _has_valid_choices(field: Mapping[Any, Any]) -> bool:
    """Return True if all choices are values that an answer can hold: the protocol has no objects and mixed lists."""
    lists = {word: field[word] for word in _CHOICES if isinstance(field.get(word), list)}
    named = (item for word, entries in lists.items() if word != "enum" for item in entries if isinstance(item, Mapping))
    values = (*lists.get("enum", ()), *(item.get("const") for item in named))
    return not any(isinstance(value, Mapping | list) for value in values)


def _check_number(count: int) -> None:
    if count > MOST_QUESTIONS:
        raise UnsupportedElicitation(gettext_lazy("{count} answers at once", count=count))
