"""The REST API over HTTP: reading a call, checking the token, pace and faults, writing the answer."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from aiohttp import BodyPartReader, web

from tests.fakes.discord.calls import Call
from tests.fakes.discord.drafts import Upload
from tests.fakes.discord.faults import Answers, Cut, Fails, Fault, Hangs, Lost, Slow, TooMany
from tests.fakes.discord.pace import Granted
from tests.fakes.discord.refusals import Refused
from tests.fakes.discord.routes import Answered, Request, Route, find_route
from tests.fakes.discord.state import DiscordState
from tests.fakes.http_server import HangingCalls, cut

PREFIX = "/api/v10"
VIA = "1.1 google"


@dataclass(frozen=True)
class Incoming:
    """A call on its way in: `refused` if already its body will not do."""

    request: web.Request
    call: Call
    route: Route
    asked: Request
    fault: Fault | None
    refused: Refused | None


class Rest(HangingCalls):
    """Server of all routes under /api/v10."""

    def __init__(self, world: DiscordState) -> None:
        super().__init__()
        self._world = world

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one call."""
        path = request.rel_url.raw_path.removeprefix(PREFIX)
        matched = find_route(request.method, path)
        if matched is None:
            self._world.unknown.append(f"{request.method} {path}")
            self._world.calls.append(Call(f"{request.method} {path}", path, self._world.now(), status=404))
            return _json(404, {"message": "404: Not Found", "code": 0})
        route, raw = matched
        named = {name: unquote(value) for name, value in raw.items()}
        by_bot = request.headers.get("Authorization") == f"Bot {self._world.app.token}"
        call = Call(route.name, path, self._world.now(), dict(request.query), by_bot=by_bot)
        self._world.calls.append(call)
        fault = self._world.faults.next(route.name)
        body, uploads, refused = await _read(request, route, self._world.limits.request_size)
        call.body, call.files = (
            body if isinstance(body, dict) else {"": body},
            [upload.name for upload in uploads.values()],
        )
        match fault:
            case Hangs():
                call.outcome = "hung"
                return await self.hang(request)
            case Cut():
                call.outcome = "cut"
                return cut(request)
            case Answers(status, text):
                call.status, call.outcome = status, f"http {status}"
                return web.Response(status=status, text=text, content_type="text/html")
            case TooMany(seconds, everywhere):
                granted = Granted("fault", 1, 0, seconds, self._world.now() + seconds, seconds, everywhere)
                return _rate_limit_response(call, granted)
            case _:
                pass
        asked = Request(self._world, named, dict(request.query), body, uploads)
        return await self._done(Incoming(request, call, route, asked, fault, refused))

    async def _done(self, incoming: Incoming) -> web.StreamResponse:
        call, route = incoming.call, incoming.route
        granted = self._world.pace.grant(route.name, route.major(incoming.asked.path), counts=not route.open)
        if granted is not None and granted.wait:
            return _rate_limit_response(call, granted)
        try:
            answer = self._answer_request(incoming)
        except Refused as refused:
            answer, call.outcome = Answered(refused.status, refused.body), str(refused.code)
            if "FAKE_" in json.dumps(refused.body):
                self._world.unknown.append(f"{route.name}: {refused.body}")
        else:
            call.outcome = "ok"
        call.status, call.answer = answer.status, answer.body
        response = _json(answer.status, answer.body, granted.headers if granted else {})
        if isinstance(incoming.fault, Slow):
            await asyncio.sleep(incoming.fault.seconds)
        if isinstance(incoming.fault, Lost):
            call.outcome = "lost"
            return cut(incoming.request)
        return response

    def _answer_request(self, incoming: Incoming) -> Answered:
        route, asked = incoming.route, incoming.asked
        if incoming.refused is not None:
            raise incoming.refused
        if isinstance(incoming.fault, Fails):
            raise Refused(incoming.fault.code, status=incoming.fault.status)
        if not route.open and not incoming.call.by_bot:
            raise Refused(0, status=401, message="401: Unauthorized")
        if unknown := asked.query.keys() - route.query:
            self._world.unknown.append(f"{route.name}?{sorted(unknown)}")
            raise Refused(50035, message=f"unknown parameters {sorted(unknown)}")
        made = route.handler(asked)
        if isinstance(made, Answered):
            return made
        return Answered(204, None) if made is None else Answered(200, made)


async def _read(request: web.Request, route: Route, most: int) -> tuple[Any, dict[str, Upload], Refused | None]:
    """Return the body and the files of a call, or the error that refuses them."""
    length = request.content_length or 0
    if length > most:
        await request.read()
        return {}, {}, Refused(40005)
    if request.content_type == "multipart/form-data":
        body, uploads = await _multipart(request)
    else:
        text = await request.text() if request.can_read_body else ""
        if route.body == "none":
            return {}, {}, Refused(50035, message="this route takes no body") if text not in {"", "{}"} else None
        if request.content_type != "application/json":
            return {}, {}, Refused(50109, message=f"unsupported content type {request.content_type}")
        body, uploads = _parse_json(text), {}
    if not isinstance(body, dict if route.body == "object" else list):
        return {}, {}, Refused(50109)
    return body, uploads, None


async def _multipart(request: web.Request) -> tuple[Any, dict[str, Upload]]:
    body: Any = {}
    uploads: dict[str, Upload] = {}
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        content = bytes(await part.read(decode=True))
        if part.name == "payload_json":
            body = _parse_json(content.decode())
        elif index := re.fullmatch(r"files\[(\d+)\]", part.name or ""):
            uploads[index[1]] = Upload(part.filename or "unknown", content)
        else:
            return None, {}
    return body, uploads


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _json(status: int, body: Any, headers: dict[str, str] | None = None) -> web.Response:
    """Return a JSON response with exactly the content type that discord.py requires."""
    sent = {"Via": VIA} | (headers or {})
    if status == 204:
        return web.Response(status=204, headers=sent)
    return web.Response(
        status=status, body=json.dumps(body).encode(), headers=sent | {"Content-Type": "application/json"}
    )


def _rate_limit_response(call: Call, granted: Granted) -> web.Response:
    body = {
        "message": "You are being rate limited.",
        "retry_after": round(granted.wait, 3),
        "global": granted.everywhere,
    }
    call.status, call.outcome, call.answer = 429, "limited", body
    return _json(429, body, granted.headers | {"Retry-After": str(max(1, round(granted.wait)))})
