"""Guilds, their members, roles and channels."""

from __future__ import annotations

from tests.fakes.discord.refusals import Json, Refused, invalid
from tests.fakes.discord.routes.table import Request, route


@route("GET /guilds/{guild}", query=("with_counts",))
def guild(request: Request) -> Json:
    """Return one guild."""
    found = request.world.guild(request.path["guild"])
    counts = {"approximate_member_count": len(found.members), "approximate_presence_count": len(found.members)}
    return found.to_json() | (counts if request.query.get("with_counts") in {"1", "true"} else {})


@route("GET /guilds/{guild}/members/search", query=("query", "limit"))
def search(request: Request) -> list[Json]:
    """Return the members whose names begin with a text."""
    guild, typed = request.world.guild(request.path["guild"]), request.query.get("query", "").lower()
    found = [
        m.to_json()
        for m in guild.members.values()
        if m.user.handle.startswith(typed) or (m.nick or "").lower().startswith(typed)
    ]
    return found[: _limit(request, 1, 1000, 1)]


@route("GET /guilds/{guild}/members/{user}")
def member(request: Request) -> Json:
    """Return one member; no intent is needed."""
    found = request.world.guild(request.path["guild"]).members.get(request.path["user"])
    if found is None:
        raise Refused(10007 if request.path["user"] in request.world.users else 10013)
    return found.to_json()


@route("GET /guilds/{guild}/members", query=("limit", "after"))
def members(request: Request) -> list[Json]:
    """Return all members, which needs the Guild Members intent."""
    guild = request.world.guild(request.path["guild"])
    if not request.world.app.guild_members:
        raise Refused(50001)
    limit, after = _limit(request, 1, 1000, 1), int(request.query.get("after", "0"))
    found = sorted((m for m in guild.members.values() if int(m.user.id) > after), key=lambda m: int(m.user.id))
    return [member.to_json() for member in found[:limit]]


@route("GET /guilds/{guild}/roles")
def roles(request: Request) -> list[Json]:
    """Return all roles."""
    return [role.to_json() for role in request.world.guild(request.path["guild"]).roles.values()]


@route("GET /guilds/{guild}/channels")
def channels(request: Request) -> list[Json]:
    """Return all channels but threads."""
    guild = request.world.guild(request.path["guild"])
    return [c.to_json() for c in request.world.channels.values() if c.guild is guild and not c.is_thread]


def _limit(request: Request, least: int, most: int, otherwise: int) -> int:
    limit = int(request.query.get("limit", otherwise))
    if not least <= limit <= most:
        raise invalid("limit", "NUMBER_TYPE_MAX", f"int value should be less than or equal to {most}.")
    return limit
