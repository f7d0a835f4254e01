"""What is taken of a request before a route sees it: of a body so much, so soon, and JSON alone.

Stands between the gate and the routes of the API: nothing is read of whoever has no token.
"""

from __future__ import annotations

import asyncio
import json

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bot.domain.json_depth import DEEPEST, exceeds_json_depth
from bot.domain.lenient_json import DuplicateName, unique_names
from bot.web.problems import Problem, problem_of_status, to_response

LARGEST_BODY = 1024 * 1024
"""Bytes."""
READING_SECONDS = 15.0


class BodyLimitMiddleware:
    """Reads bodies. `largest` is in bytes; a body must have arrived within `seconds`."""

    def __init__(self, app: ASGIApp, largest: int = LARGEST_BODY, seconds: float = READING_SECONDS) -> None:
        self._app = app
        self._largest = largest
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on with its whole body, or say why not."""
        try:
            if "\0" in scope["path"]:
                # No id and no name has it, and PostgreSQL fails on it instead of finding nothing.
                raise problem_of_status(404)
            body = await self._read(scope, receive)
        except Problem as problem:
            await to_response(problem, scope["state"]["request_id"])(scope, receive, send)
            return
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def next_message() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, next_message, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        body = bytearray()
        more = True
        try:
            async with asyncio.timeout(self._seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise problem_of_status(400)
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > self._largest:
                        raise Problem(
                            413, "too_large", f"The body is larger than {self._largest} bytes.", "send less at once"
                        )
        except TimeoutError:
            raise problem_of_status(408, {"Connection": "close"}) from None
        if body and not _is_json(Headers(scope=scope).get("content-type", "")):
            raise Problem(415, "not_json", "The body must be JSON.", "send Content-Type: application/json")
        if body and (problem := _unfit(bytes(body))) is not None:
            raise problem
        return bytes(body)


def _unfit(body: bytes) -> Problem | None:
    """What is wrong with a body, that the routes' own reader would not notice: it reads UTF-16 as well, takes NaN and
    1e999 for numbers, half a surrogate pair for a character, and the last of two members of one name.
    """
    too_deep = Problem(400, "too_deep", f"The body is nested deeper than {DEEPEST} levels.", "send it flatter")
    try:
        read = json.loads(body.decode("utf-8-sig"), object_pairs_hook=unique_names)
        if exceeds_json_depth(read):
            return too_deep
        json.dumps(read, ensure_ascii=False, allow_nan=False).encode()
    except DuplicateName as error:
        return Problem(400, "duplicate_name", f"The body cannot be used: {error}.", "send each name once")
    except UnicodeEncodeError:
        return Problem(400, "not_text", "A text in the body holds half a character.", "send whole characters")
    except RecursionError:
        return too_deep
    except ValueError:
        return Problem(400, "not_json", "The body is not JSON in UTF-8.", "send one JSON object")
    return None


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
