"""auth.test, auth.revoke, auth.teams.list, apps.connections.open, bots.info."""

from __future__ import annotations

from tests.fakes.slack.arguments import Arguments
from tests.fakes.slack.messages import Json
from tests.fakes.slack.methods.table import method
from tests.fakes.slack.refusals import Refused
from tests.fakes.slack.state import Caller


@method("auth.test", "special", ())
def auth_test(caller: Caller, _: Arguments) -> Json:
    """Identity of this token."""
    if caller.installation is None:
        return {"app_name": "Countersign", "app_id": caller.world.app.id}
    bot, team = caller.bot.bot, caller.bot.team
    if caller.bot.organization:
        return {
            "url": f"https://{caller.bot.organization.lower()}.enterprise.slack.com/",
            "team": caller.bot.organization,
            "user": bot.name.lower(),
            "team_id": caller.bot.organization,
            "user_id": bot.id,
            "bot_id": bot.bot_id,
            "is_enterprise_install": True,
            "enterprise_id": caller.bot.organization,
        }
    return {
        "url": f"https://{team.domain}.slack.com/",
        "team": team.name,
        "user": bot.name.lower(),
        "team_id": team.id,
        "user_id": bot.id,
        "bot_id": bot.bot_id,
        "is_enterprise_install": False,
    } | ({"enterprise_id": team.enterprise} if team.enterprise else {})


@method("auth.revoke", "tier3", ("test",))
def auth_revoke(caller: Caller, _: Arguments) -> Json:
    """Revoke this token: the app is gone from the workspace, or from the organization."""
    for installation in caller.world.app.installations.values():
        if installation.token == caller.token:
            installation.revoked = True
    return {"revoked": True}


@method("auth.teams.list", "tier2", ("cursor", "limit", "include_icon"))
def auth_teams_list(caller: Caller, _: Arguments) -> Json:
    """Return the workspaces of this token."""
    installations = caller.world.app.installations.values()
    teams = [each.team for each in installations if each.token == caller.token and not each.access_revoked]
    return {
        "teams": [{"id": team.id, "name": team.name} for team in teams],
        "response_metadata": {"next_cursor": ""},
    }


@method("apps.connections.open", "tier1", (), "connections:write", app_token=True)
def apps_connections_open(caller: Caller, _: Arguments) -> Json:
    """Return an address for one Socket Mode connection."""
    return {"url": caller.world.socket_url()}


@method("bots.info", "tier3", ("bot", "team_id"), "users:read", json=False)
def bots_info(caller: Caller, args: Arguments) -> Json:
    """Return a bot by its bot id."""
    for user in caller.workspace.users.values():
        if user.bot_id and user.bot_id == args.text("bot"):
            return {"bot": {"id": user.bot_id, "name": user.name, "app_id": user.app_id, "user_id": user.id}}
    raise Refused("bot_not_found")
