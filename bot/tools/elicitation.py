"""What servers ask back, from the protocol's words into ours, and the answers from ours into the protocol's (MCP
specification 2026-07-28, client/elicitation and basic/patterns/mrtr; 2025-11-25 for pages that must be visited first).

Called by `calls` and `elicitation_calls`. Pure. Whether a question may be put to anybody is not decided here but by
`elicitations.forbidden`; what no person could be shown is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

from mcp import MCPError, types
from mcp.types import URL_ELICITATION_REQUIRED
from pydantic import ValidationError

from bot.domain.characters import visible
from bot.domain.elicitations import Action, Ask, Elicited, FormAsk, LinkAsk, Replies, ServerQuestion
from bot.domain.nesting import DEEPEST, is_too_deep
from bot.domain.tools import AsksBack
from bot.tools.characters import cleaned_schema, storable, storable_json
from bot.tools.redaction import Redaction

LONGEST_MESSAGE = 2_000
LONGEST_URL = 2_000
LARGEST_SCHEMA = 32 * 1024
"""Characters of its JSON."""
MOST_QUESTIONS = 10
"""At once."""
_LONGEST_KEY = 200
_LONGEST_STATE = 100_000
_MORE = "..."
_CHOICES = ("enum", "oneOf", "anyOf")


class NotAskable(Exception):
    """A server asks for what nobody here can be asked for. The message says what, as the end of `It asks for ...`."""


def asked_back(answer: types.InputRequiredResult, redact: Redaction) -> AsksBack:
    """What a call wants to know before it is sent again. Raises NotAskable."""
    requests = answer.input_requests or {}
    if not requests:
        raise NotAskable("the same call again and again, and for nothing else")
    _check_number(len(requests))
    state = answer.request_state
    if state is not None and (len(state) > _LONGEST_STATE or storable(state) != state):
        raise NotAskable("answers together with a state of its own that cannot be kept")
    return AsksBack(tuple(_asked(key, each, redact) for key, each in requests.items()), state)


def visits_required(error: MCPError, redact: Redaction) -> AsksBack | None:
    """The pages that are to be visited before a call can be made, None if that is not what an error says. Raises
    NotAskable.
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
    keys = [each.elicitation_id or "" for each in required]
    if "" in keys or len(set(keys)) < len(keys):
        keys = [str(n) for n in range(1, len(required) + 1)]
    return AsksBack(tuple(question(key, each, redact) for key, each in zip(keys, required, strict=True)))


def question(key: str, asked: types.ElicitRequestParams, redact: Redaction) -> ServerQuestion:
    """One question as people may see it: nothing hidden in it, nothing secret. Raises NotAskable."""
    if len(key) > _LONGEST_KEY or storable(key) != key:
        raise NotAskable("an answer under a name that cannot be kept")
    message = redact(visible(asked.message)).strip()
    if len(message) > LONGEST_MESSAGE:
        message = message[: LONGEST_MESSAGE - len(_MORE)] + _MORE
    return ServerQuestion(key, message, _ask(asked, redact))


def responses(replies: Replies) -> types.InputResponses | None:
    """The answers as they go along with a call."""
    return {key: result(reply) for key, reply in replies.by_key.items()} or None


def result(reply: Elicited) -> types.ElicitResult:
    """One answer in the protocol's words."""
    try:
        match reply.action:
            case Action.ACCEPT:
                content = None if reply.content is None else dict(reply.content)
                return types.ElicitResult(action="accept", content=content)
            case Action.DECLINE:
                return types.ElicitResult(action="decline")
            case Action.CANCEL:
                return types.ElicitResult(action="cancel")
            case _:
                assert_never(reply.action)
    except ValidationError:
        # The protocol has no words for such values, whatever the schema says.
        return types.ElicitResult(action="cancel")


def unvisited(server: str, replies: Replies) -> str:
    """Why a call need not be sent again, a sentence; empty if every page was visited."""
    actions = {reply.action for reply in replies.by_key.values()}
    if actions <= {Action.ACCEPT}:
        return ""
    did = "declined to" if Action.DECLINE in actions else "did not"
    return f"Server {server} wants the person to visit a page first, and they {did}. Nothing was done."


def _asked(key: str, request: types.InputRequest, redact: Redaction) -> ServerQuestion:
    match request:
        case types.ElicitRequest(params=params):
            return question(key, params, redact)
        case types.CreateMessageRequest():
            raise NotAskable("a text by the language model (sampling), which is switched off here")
        case types.ListRootsRequest():
            raise NotAskable("a list of folders (roots), which is switched off here")
        case _:
            assert_never(request)


def _ask(asked: types.ElicitRequestParams, redact: Redaction) -> Ask:
    match asked:
        case types.ElicitRequestFormParams(requested_schema=schema):
            return FormAsk(_form(schema, redact))
        case types.ElicitRequestURLParams(url=url):
            if len(url) > LONGEST_URL:
                raise NotAskable(f"a visit to an address of more than {LONGEST_URL} characters")
            if redact.found_in(url) or storable(url) != url:
                raise NotAskable("a visit to an address that nobody may see, because there is a secret in it")
            return LinkAsk(url)
        case _:
            assert_never(asked)


def _form(schema: Mapping[str, Any], redact: Redaction) -> dict[str, Any]:
    if is_too_deep(schema):
        raise NotAskable(f"a form whose description is nested deeper than {DEEPEST} levels")
    if len(json.dumps(schema, ensure_ascii=False)) > LARGEST_SCHEMA:
        raise NotAskable(f"a form whose description has more than {LARGEST_SCHEMA} characters")
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not all(map(_plain, properties.values())):
        raise NotAskable("a form with fields that are no texts, numbers, switches or choices")
    if redact.found_in(schema):
        # What a form is made of has to stay as it is: names of fields, choices, patterns.
        raise NotAskable("a form that nobody may see, because there is a secret of the server in it")
    cleaned: dict[str, Any] = cleaned_schema(_names_cleaned(storable_json(dict(schema))), visible)
    return cleaned


def _plain(field: Any) -> bool:
    """It is a field of the kinds that forms may have: flat (MCP specification 2026-07-28, client/elicitation)."""
    match field:
        case {"type": "string" | "number" | "integer" | "boolean"}:
            return _sayable(field)
        case {"type": "array", "items": {**items}}:
            return _is_choice(items)
        case {"type": _}:
            return False
        case Mapping():
            return _is_choice(field)
        case _:
            return False


def _is_choice(field: Mapping[Any, Any]) -> bool:
    return any(isinstance(field.get(word), list) for word in _CHOICES) and _sayable(field)


def _sayable(field: Mapping[Any, Any]) -> bool:
    """What can be chosen is what an answer may hold: the protocol has no words for objects and lists of anything."""
    lists = {word: field[word] for word in _CHOICES if isinstance(field.get(word), list)}
    named = (each for word, of_it in lists.items() if word != "enum" for each in of_it if isinstance(each, Mapping))
    values = (*lists.get("enum", ()), *(each.get("const") for each in named))
    return not any(isinstance(each, Mapping | list) for each in values)


def _names_cleaned(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without hidden characters in what its choices are called."""
    return {**schema, "properties": {name: _with_names(field) for name, field in schema["properties"].items()}}


def _with_names(field: Mapping[str, Any]) -> dict[str, Any]:
    names = field.get("enumNames")
    if not isinstance(names, Sequence) or isinstance(names, str):
        return dict(field)
    return {**field, "enumNames": [visible(str(name)) for name in names]}


def _check_number(asked: int) -> None:
    if asked > MOST_QUESTIONS:
        raise NotAskable(f"{asked} answers at once")
