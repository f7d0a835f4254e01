"""The fake's port: one HTTP server on a loopback address for the REST API, the gateway and the files."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from tests.fakes.discord.gateway import Gateway
from tests.fakes.discord.rest import PREFIX, Rest
from tests.fakes.discord.state import DiscordState


class Server:
    """Listens from `open` to `close`, on the same port again after a `close`."""

    def __init__(self, world: DiscordState, rest: Rest, gateway: Gateway) -> None:
        self._world, self._rest, self._gateway = world, rest, gateway
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def open(self) -> None:
        """Listen."""
        application = web.Application(client_max_size=64 * 1024 * 1024, middlewares=[self._noting])
        application.router.add_route("*", PREFIX + "/{tail:.*}", self._rest.serve)
        application.router.add_get("/gateway", self._gateway.serve)
        application.router.add_get("/gateway/", self._gateway.serve)
        application.router.add_get("/attachments/{channel}/{file}/{name}", self._download)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self._world.base = f"http://127.0.0.1:{self.port}"
        self._world.gateway_url = f"ws://127.0.0.1:{self.port}/gateway"

    async def close(self) -> None:
        """Close the port and its connections."""
        self._rest.close()
        await self._gateway.drop()
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _noting(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            self._world.broken.append(error)
            raise

    async def _download(self, request: web.Request) -> web.StreamResponse:
        stored = self._world.files.get(request.match_info["file"])
        if stored is None or "hm" not in request.query:
            return web.Response(status=404, text="This content is no longer available.")
        return web.Response(body=stored.content, headers={"Content-Type": stored.kind})
