"""The HTTP server of a fake platform on a loopback address, and the calls that hang or break on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Handler


class LoopbackServer:
    """Listens from `open` to `close`, on the same port again after a `close`. `broken` takes errors of the fake."""

    def __init__(self, broken: list[Exception]) -> None:
        self._broken = broken
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def listen(self, routes: Iterable[web.RouteDef]) -> str:
        """Listen, and return the host with the port."""
        application = web.Application(client_max_size=64 * 1024 * 1024, middlewares=[self._noting])
        application.add_routes(routes)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return f"127.0.0.1:{self.port}"

    async def close(self) -> None:
        """Close the port and its connections."""
        if self._runner is not None:
            await self._runner.cleanup()

    @web.middleware
    async def _noting(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            self._broken.append(error)
            raise


class HangingCalls:
    """Calls without an answer until `close`."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()

    def close(self) -> None:
        """End the calls that hang now."""
        self._closing.set()
        self._closing = asyncio.Event()

    async def hang(self, request: web.Request) -> web.StreamResponse:
        """Wait for `close`, and break the connection."""
        await self._closing.wait()
        return cut(request)


def cut(request: web.Request) -> web.StreamResponse:
    """Break the connection."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
