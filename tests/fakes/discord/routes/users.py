"""The app's own user, other users, direct conversations, and the address of the gateway."""

from __future__ import annotations

from tests.fakes.discord.checks import only
from tests.fakes.discord.refusals import Json, Refused, invalid, missing_field
from tests.fakes.discord.routes.table import Request, route


@route("GET /users/@me")
def me(request: Request) -> Json:
    """Return the bot."""
    return request.world.bot.to_json() | {"flags": 0, "verified": True, "mfa_enabled": False, "email": None}


@route("POST /users/@me/channels", body="object")
def open_dm(request: Request) -> Json:
    """Open the direct conversation with a user. A refusal of messages shows only when one is sent."""
    only("", request.body, "recipient_id")
    if "recipient_id" not in request.body:
        raise missing_field("recipient_id")
    user = request.world.users.get(str(request.body["recipient_id"]))
    if user is None:
        raise Refused(10013)
    if user.bot or user.webhook:
        raise Refused(50007)
    return request.world.dm(user).to_json()


@route("GET /users/@me/guilds", query=("before", "after", "limit", "with_counts"))
def my_guilds(request: Request) -> list[Json]:
    """The guilds the app is in, in part, in the order of their ids."""
    world, query = request.world, request.query
    limit, after = int(query.get("limit", "200")), int(query.get("after", "0"))
    if not 1 <= limit <= 200:
        raise invalid("limit", "NUMBER_TYPE_MAX", "int value should be less than or equal to 200.")
    names = ("id", "name", "icon", "banner", "features")
    mine = [guild for guild in world.guilds.values() if guild.with_bot and int(guild.id) > after]
    if "before" in query:
        mine = [guild for guild in mine if int(guild.id) < int(query["before"])][-limit:]
    return [
        {name: guild.to_json()[name] for name in names}
        | {"owner": False, "permissions": str(int(guild.permissions(guild.members[world.bot.id])))}
        for guild in sorted(mine, key=lambda guild: int(guild.id))[:limit]
    ]


@route("GET /users/{user}")
def user(request: Request) -> Json:
    """Return any user."""
    found = request.world.users.get(request.path["user"])
    if found is None or found.webhook:
        raise Refused(10013)
    return found.to_json()


@route("GET /gateway", without_token=True)
def gateway(request: Request) -> Json:
    """Return the gateway's address."""
    return {"url": request.world.gateway_url}


@route("GET /gateway/bot")
def gateway_bot(request: Request) -> Json:
    """Return the gateway's address, and the number of IDENTIFYs left."""
    total = request.world.limits.identifies_a_day
    limits = request.world.limits
    limit = {"total": total, "remaining": max(0, total - request.world.identified), "reset_after": 86_400_000}
    limit |= {"max_concurrency": limits.max_concurrency}
    return {"url": request.world.gateway_url, "shards": limits.shards, "session_start_limit": limit}
