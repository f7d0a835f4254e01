"""The application itself and its registered commands."""

from __future__ import annotations

from tests.fakes.discord.commands import CHAT, checked_commands, registered, untranslated
from tests.fakes.discord.refusals import Json, Refused
from tests.fakes.discord.routes.table import Answered, Request, route

DAY = 86_400


@route("GET /applications/@me")
def me(request: Request) -> Json:
    """Return the application."""
    return request.world.app.described()


@route("GET /oauth2/applications/@me")
def oauth2_me(request: Request) -> Json:
    """Return the application, at the second address that discord.py uses."""
    return request.world.app.described()


@route("GET /applications/{application}/commands", query=("with_localizations",))
def commands(request: Request) -> list[Json]:
    """Return the global commands, without their translations unless they are asked for."""
    return _described(request)


@route("PUT /applications/{application}/commands", body="list")
def put_commands(request: Request) -> list[Json]:
    """Replace all global commands."""
    return _replaced(request)


@route("GET /applications/{application}/guilds/{guild}/commands", query=("with_localizations",))
def guild_commands(request: Request) -> list[Json]:
    """Return the commands of one guild, without their translations unless they are asked for."""
    return _described(request)


@route("PUT /applications/{application}/guilds/{guild}/commands", body="list")
def put_guild_commands(request: Request) -> list[Json]:
    """Replace all commands of one guild."""
    return _replaced(request)


@route("GET /applications/{application}/guilds/{guild}/commands/permissions")
def command_permissions(request: Request) -> list[Json]:
    """Return an empty list: no permissions of commands are changed."""
    _own(request)
    return []


@route("DELETE /applications/{application}/commands/{command}")
def delete_command(request: Request) -> Answered:
    """Delete one global command."""
    kept = _kept(request)
    left = [command for command in kept if command["id"] != request.path["command"]]
    if len(left) == len(kept):
        raise Refused(10063)
    request.world.app.commands[""] = left
    return Answered(204, None)


def _own(request: Request) -> str:
    if request.path["application"] != request.world.app.id:
        raise Refused(10002)
    guild = request.path.get("guild", "")
    if guild and (guild not in request.world.guilds or not request.world.guilds[guild].with_bot):
        raise Refused(50001)
    return guild


def _described(request: Request) -> list[Json]:
    kept = _kept(request)
    return kept if request.query.get("with_localizations") == "true" else untranslated(kept)


def _kept(request: Request) -> list[Json]:
    return request.world.app.commands.get(_own(request), [])


def _replaced(request: Request) -> list[Json]:
    world, guild = request.world, _own(request)
    before = {(command["type"], command["name"]): command["id"] for command in _kept(request)}
    given = checked_commands(request.body, world.app, guild)
    fresh = [command for command in given if (command.get("type", CHAT), command["name"]) not in before]
    today = [moment for moment in world.created if moment > world.now() - DAY]
    if len(today) + len(fresh) > world.limits.commands_a_day:
        raise Refused(30034)
    world.created = today + [world.now()] * len(fresh)
    world.app.commands[guild] = [
        registered(
            command,
            before.get((command.get("type", CHAT), command["name"])) or world.ids.new(),
            world.app.id,
            guild,
            world.ids.new(),
        )
        for command in given
    ]
    return world.app.commands[guild]
