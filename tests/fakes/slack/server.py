"""The fake's port: one HTTP server on a loopback address for the Web API, Socket Mode, response URLs and files."""

from __future__ import annotations

from aiohttp import web

from tests.fakes.http_server import LoopbackServer
from tests.fakes.slack.calls import Call
from tests.fakes.slack.sockets import Sockets
from tests.fakes.slack.state import SlackState
from tests.fakes.slack.web_api import WebApi


class Server(LoopbackServer):
    """The port of the Web API, Socket Mode, response URLs and files."""

    def __init__(self, world: SlackState, api: WebApi, sockets: Sockets) -> None:
        super().__init__(world.broken)
        self._world, self._api, self._sockets = world, api, sockets

    async def open(self) -> None:
        """Listen."""
        host = await self.listen(
            [
                web.route("*", "/api/{method}", self._api.serve),
                web.get("/link", self._sockets.serve),
                web.post("/actions/{secret:.+}", self._respond),
                web.post("/upload/v1/{secret}", self._upload),
                web.get("/files-pri/{id}/{name}", self._download),
            ]
        )
        self._world.base = f"http://{host}"

    async def close(self) -> None:
        """Close the port and its connections."""
        self._api.close()
        await self._sockets.close()
        await super().close()

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        return await self._world.response_urls.serve(self._world, request)

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        call = Call("upload", {"secret": request.match_info["secret"]}, "", self._world.clock.now())
        self._world.calls.append(call)
        waiting = self._world.uploads.get(request.match_info["secret"])
        if waiting is None:
            call.outcome = "http 404"
            return web.Response(status=404)
        stored, length = waiting
        if request.content_type == "multipart/form-data":
            parts = [part for part in (await request.post()).values() if isinstance(part, web.FileField)]
            content = parts[0].file.read() if parts else b""
        else:
            content = await request.read()
        if len(content) != length:
            call.outcome = "http 400"
            return web.Response(status=400, text="size mismatch")
        stored.content, call.outcome = content, "ok"
        return web.Response(text=f"OK - {length}")

    async def _download(self, request: web.Request) -> web.StreamResponse:
        team, _, file_id = request.match_info["id"].partition("-")
        stored = self._world.workspaces[team].files.get(file_id) if team in self._world.workspaces else None
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        call = Call("download", {"file": file_id}, token, self._world.clock.now(), team=team, verb="GET")
        self._world.calls.append(call)
        if stored is None or not stored.complete:
            call.outcome = "http 404"
            return web.Response(status=404)
        installation = self._world.installation_of(token)
        if installation is None or installation.team.id != team or "files:read" not in installation.scopes:
            # Slack answers requests without access to a file with a sign-in page and status 200.
            call.outcome = "signed out"
            return web.Response(text="<!DOCTYPE html><html>Sign in to Slack</html>", content_type="text/html")
        call.outcome = "ok"
        content_type = str(stored.to_json()["mimetype"])
        return web.Response(body=stored.content, headers={"Content-Type": content_type})
