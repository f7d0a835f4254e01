"""The application itself and its registered commands."""

from __future__ import annotations

from tests.fakes.discord.commands import CHAT, checked_commands, registered_command, untranslated_commands
from tests.fakes.discord.refusals import Json, Refused
from tests.fakes.discord.routes.table import Request, route

DAY = 86_400


@route("GET /applications/@me")
def me(request: Request) -> Json:
    """Return the application."""
    return request.world.app.to_json()


@route("GET /oauth2/applications/@me")
def oauth2_me(request: Request) -> Json:
    """Return the application, at the second address that discord.py uses."""
    return request.world.app.to_json()


@route("GET /applications/{application}/commands", query=("with_localizations",))
def commands(request: Request) -> list[Json]:
    """Return the global commands, without their translations unless they are asked for."""
    kept = _stored_commands(request)
    return kept if request.query.get("with_localizations") == "true" else untranslated_commands(kept)


@route("PUT /applications/{application}/commands", body="list")
def put_commands(request: Request) -> list[Json]:
    """Replace all global commands."""
    world = request.world
    before = {(command["type"], command["name"]): command["id"] for command in _stored_commands(request)}
    given = checked_commands(request.body, world.app)
    fresh = [command for command in given if (command.get("type", CHAT), command["name"]) not in before]
    today = [moment for moment in world.created if moment > world.now() - DAY]
    if len(today) + len(fresh) > world.limits.commands_a_day:
        raise Refused(30034)
    world.created = today + [world.now()] * len(fresh)
    world.app.commands[""] = [
        registered_command(
            command,
            before.get((command.get("type", CHAT), command["name"])) or world.ids.new(),
            world.app.id,
            world.ids.new(),
        )
        for command in given
    ]
    return world.app.commands[""]


def _stored_commands(request: Request) -> list[Json]:
    if request.path["application"] != request.world.app.id:
        raise Refused(10002)
    return request.world.app.commands.get("", [])
