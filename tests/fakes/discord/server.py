"""The fake's port: one HTTP server on a loopback address for the REST API, the gateway and the files."""

from __future__ import annotations

from aiohttp import web

from tests.fakes.discord.gateway import Gateway
from tests.fakes.discord.rest import PREFIX, Rest
from tests.fakes.discord.state import DiscordState
from tests.fakes.http_server import LoopbackServer


class Server(LoopbackServer):
    """The port of the REST API, the gateway and the files."""

    def __init__(self, world: DiscordState, rest: Rest, gateway: Gateway) -> None:
        super().__init__(world.broken)
        self._world, self._rest, self._gateway = world, rest, gateway

    async def open(self) -> None:
        """Listen."""
        host = await self.listen(
            [
                web.route("*", PREFIX + "/{tail:.*}", self._rest.serve),
                web.get("/gateway", self._gateway.serve),
                web.get("/gateway/", self._gateway.serve),
                web.get("/attachments/{channel}/{file}/{name}", self._download),
            ]
        )
        self._world.base, self._world.gateway_url = f"http://{host}", f"ws://{host}/gateway"

    async def close(self) -> None:
        """Close the port and its connections."""
        self._rest.close()
        await self._gateway.drop()
        await super().close()

    async def _download(self, request: web.Request) -> web.StreamResponse:
        stored = self._world.files.get(request.match_info["file"])
        if stored is None or "hm" not in request.query:
            return web.Response(status=404, text="This content is no longer available.")
        return web.Response(body=stored.content, headers={"Content-Type": stored.kind})
