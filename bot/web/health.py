"""Probes: `/healthz` says that the process lives, `/readyz` (and `/health`) whether it can do its work.

Open to everybody who reaches the address, like the metrics: they say how many things stand how, and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from bot import __version__
from bot.domain.health import Health, HealthStatus

ALIVE = "/healthz"
READY = ("/readyz", "/health")


def alive_route() -> Route:
    """An answer at all is the answer: whoever restarts what does not answer asks here."""

    async def alive(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    return Route(ALIVE, alive)


def ready_routes(look: Callable[[], Awaitable[Health]]) -> list[Route]:
    """503 while messages would not arrive or could not be kept: whoever balances load asks here."""

    async def ready(_request: Request) -> Response:
        health = await look()
        status = 503 if health.condition is HealthStatus.UNREADY else 200
        return JSONResponse(_told(health), status)

    return [Route(path, ready) for path in READY]


def _told(health: Health) -> dict[str, object]:
    unwritable = {"cause": f"The database cannot be written: {health.unwritable}.", "fix": health.fix}
    return {
        "status": health.condition.value,
        "version": __version__,
        "database": "down" if not health.database else "unwritable" if health.unwritable else "up",
        **(unwritable if health.unwritable else {}),
        **({"auditCheckpoints": "failing"} if health.checkpoints_fail else {}),
        "platforms": {name: listening.value for name, listening in sorted(health.platforms.items())},
        "servers": {
            "total": health.servers.total,
            "connected": health.servers.connected,
            "errors": health.servers.errors,
        },
    }
