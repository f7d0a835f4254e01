"""Do a call's arguments fit the tool's schema? The one home of `jsonschema`.

Asked before a call is sent, so that the model can correct itself without the server having seen anything. A schema
that is broken itself proves nothing against the arguments: then the server judges.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

# The library comes without type information.
from jsonschema import SchemaError  # type: ignore[import-untyped]
from jsonschema.validators import validator_for  # type: ignore[import-untyped]
from referencing import Registry
from referencing.exceptions import Unresolvable

from bot.domain.tools import canonical_json

_MOST = 5
_LONGEST_SENTENCE = 300
_LARGEST_SCHEMA = 200_000


def misfits(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """One phrase for each argument that does not fit, at most five; empty if all fit or nobody can tell.

    References outside the schema are never fetched (MCP specification 2026-07-28: MUST NOT).
    """
    text = canonical_json(schema)
    if len(text) > _LARGEST_SCHEMA:
        return ()
    try:
        errors = list(islice(_validator(text).iter_errors(dict(arguments)), _MOST))
    except (SchemaError, Unresolvable, RecursionError, ValueError):
        return ()
    return tuple(_phrase(error) for error in errors)


@lru_cache(maxsize=512)
def _validator(text: str) -> Any:
    schema = json.loads(text)
    kind = validator_for(schema)
    kind.check_schema(schema)
    return kind(schema, registry=Registry())


def _phrase(error: Any) -> str:
    where = error.json_path.removeprefix("$").removeprefix(".")
    message = error.message if len(error.message) <= _LONGEST_SENTENCE else error.message[:_LONGEST_SENTENCE] + "..."
    return f"{where}: {message}" if where else message
