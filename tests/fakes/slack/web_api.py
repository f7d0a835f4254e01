"""The Web API over HTTP: reading a call, checking the token, scopes, pace and faults, writing the answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web

from tests.fakes.http_server import HangingCalls, cut
from tests.fakes.slack.apps import Installation
from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.blocks import refuse_blocks
from tests.fakes.slack.calls import Call
from tests.fakes.slack.faults import Answers, Cut, Fails, Fault, Hangs, Lost, Slow, TooMany
from tests.fakes.slack.messages import Json
from tests.fakes.slack.methods import METHODS, Method
from tests.fakes.slack.oauth import OAuth
from tests.fakes.slack.refusals import Refused, invalid_arguments
from tests.fakes.slack.state import Caller, SlackState

ALWAYS = frozenset({"token", "team_id"})
PER_CHANNEL = frozenset({"chat.postMessage"})


class WebApi(HangingCalls):
    """Answers `/api/{method}`."""

    def __init__(self, world: SlackState) -> None:
        super().__init__()
        self._world = world
        self.oauth = OAuth(world)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one call."""
        name = request.match_info["method"]
        call = Call(name, {}, "", self._world.clock.now(), verb=request.method)
        self._world.calls.append(call)
        fault = self._world.faults.next(name)
        try:
            given = await _read(request)
        except Refused as refused:
            return _answer_call(call, _refusal(refused))
        call.token = _token(request, given)
        call.args = {key: value for key, value in given.items() if key != "token"}
        match fault:
            case Hangs():
                call.outcome = "hung"
                return await self.hang(request)
            case Cut():
                call.outcome = "cut"
                return cut(request)
            case Answers(status, body):
                call.outcome = f"http {status}"
                return web.Response(status=status, text=body, content_type="text/html")
            case TooMany(seconds):
                return _rate_limit_response(call, seconds)
            case _:
                return await self._done(request, call, fault)

    async def _done(self, request: web.Request, call: Call, fault: Fault | None) -> web.StreamResponse:
        installation = self._world.installation_of(call.token, call.args)
        call.team = installation.team.id if installation else ""
        try:
            if call.method == "oauth.v2.access":
                return _answer_call(call, {"ok": True} | self._access(request, call, fault))
            method = self._authorize_call(call, installation, fault)
            if wait := self._wait(method, call):
                return _rate_limit_response(call, wait)
            arguments = Arguments(call.args if method.json or not _is_json(request) else {})
            unknown = set(arguments.given) - method.arguments - ALWAYS
            if unknown:
                raise invalid_arguments(*(f"unknown argument: {name}" for name in sorted(unknown)))
            refuse_blocks(call.args, self._world.unsupported_blocks)
            answer = {"ok": True} | method.handler(Caller(self._world, call.token, installation), arguments)
        except Refused as refused:
            answer = _refusal(refused)
        response = _answer_call(call, answer, installation)
        if isinstance(fault, Slow):
            await asyncio.sleep(fault.seconds)
        if isinstance(fault, Lost):
            call.outcome = "lost"
            return cut(request)
        return response

    def _access(self, request: web.Request, call: Call, fault: Fault | None) -> Json:
        if isinstance(fault, Fails):
            raise Refused(fault.code)
        return self.oauth.access(request.headers.get("Authorization", ""), call.args)

    def _authorize_call(self, call: Call, installation: Installation | None, fault: Fault | None) -> Method:
        if isinstance(fault, Fails):
            raise Refused(fault.code)
        method = METHODS.get(call.method)
        if method is None or call.method in self._world.absent:
            raise Refused("unknown_method", req_method=call.method)
        if not call.token:
            raise Refused("not_authed")
        is_app = call.token == self._world.app.app_token
        if installation is None and not is_app:
            raise Refused("invalid_auth")
        if installation is not None and installation.revoked:
            raise Refused("token_revoked")
        if installation is not None and installation.access_revoked:
            raise Refused("team_access_not_granted")
        if installation is not None and self._is_expired(installation, call.token):
            raise Refused("token_expired")
        if method.name != "auth.test" and method.app_token != is_app:
            raise Refused("not_allowed_token_type")
        scopes = self._world.app.app_scopes if is_app else installation.scopes if installation else set()
        if method.scopes and not scopes & set(method.scopes):
            raise Refused("missing_scope", needed=method.scopes[0], provided=",".join(sorted(scopes)))
        return method

    def _is_expired(self, installation: Installation, token: str) -> bool:
        end = installation.expires_at if token == installation.token else installation.earlier[token]
        return end is not None and self._world.clock.now() >= end

    def _wait(self, method: Method, call: Call) -> int:
        pace = self._world.pace
        if method.name in PER_CHANNEL:
            return pace.wait_to_post(call.team, str(call.args.get("channel")))
        return pace.wait_for(call.team, method.name, method.tier)


async def _read(request: web.Request) -> dict[str, Any]:
    given: dict[str, Any] = dict(request.query)
    if request.method == "GET":
        return given
    if _is_json(request):
        try:
            body = json.loads(await request.text() or "{}")
        except ValueError:
            raise Refused("invalid_json") from None
        if not isinstance(body, dict):
            raise Refused("json_not_object")
        return given | body
    if request.content_type in {"application/x-www-form-urlencoded", "multipart/form-data"}:
        return given | {key: value for key, value in (await request.post()).items() if isinstance(value, str)}
    if request.can_read_body and await request.read():
        raise Refused("invalid_post_type")
    return given


def _is_json(request: web.Request) -> bool:
    return request.content_type == "application/json"


def _token(request: web.Request, given: dict[str, Any]) -> str:
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer" and token:
        return token.strip()
    return "" if _is_json(request) else str(given.get("token", ""))


def _refusal(refused: Refused) -> Json:
    return {"ok": False, "error": refused.code} | refused.more


def _answer_call(call: Call, answer: Json, installation: Installation | None = None) -> web.Response:
    call.outcome, call.answer = "ok" if answer["ok"] else str(answer["error"]), answer
    headers = {"x-slack-req-id": f"{id(call):x}"}
    if installation is not None:
        headers["x-oauth-scopes"] = ",".join(sorted(installation.scopes))
    return web.json_response(answer, headers=headers)


def _rate_limit_response(call: Call, seconds: int) -> web.Response:
    call.outcome, call.answer = "ratelimited", {"ok": False, "error": "ratelimited"}
    return web.json_response(call.answer, status=429, headers={"Retry-After": str(seconds)})
