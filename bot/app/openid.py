"""Sign-in by OpenID Connect: the operator's issuer, and the members that its users are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import urlsplit

from bot.app.secrets import secret_value
from bot.chat.users import NOT_FOR_GUESTS
from bot.domain.api_clients import DEFAULT_WORKSPACE
from bot.domain.conversations import HTTP, OIDC, Author, ConversationKey, Member
from bot.domain.openid import Identity
from bot.engine.surfaces import Surfaces
from bot.errors import NotFound
from bot.i18n import gettext_lazy
from bot.mcp.config.checks import AllowedTargets
from bot.mcp.oauth.openid import OpenIdConnect
from bot.ports import Surface
from bot.ports.openid import IdentityDirectory
from bot.settings import Settings
from bot.web.console.dependencies import OpenIdSignIn


def build_openid(settings: Settings, surfaces: Sequence[Surface]) -> OpenIdSignIn | None:
    """Return the sign-in at the operator's issuer, None without one."""
    if settings.oidc_issuer is None:
        return None
    slack = urlsplit(settings.slack_api_url)
    issuer = OpenIdConnect(
        settings.oidc_issuer,
        settings.oidc_client_id,
        secret_value(settings.oidc_client_secret),
        AllowedTargets(settings.mcp_allowed_hosts, proxy=settings.mcp_proxy),
        slack_issuer=f"{slack.scheme}://{slack.netloc}",
    )
    return OpenIdSignIn(issuer, partial(_find_person, surfaces, admits_guests=settings.slack_guests))


async def _find_person(
    surfaces: Sequence[Surface], identity: Identity, *, admits_guests: bool
) -> tuple[Member, ConversationKey]:
    """Return the member that a user of the issuer is: that of a platform, else one who is known by the issuer alone."""
    directories = [surface for surface in surfaces if isinstance(surface, IdentityDirectory)]
    people = [person for directory in directories for person in await directory.find_people(identity)]
    if len(people) > 1:
        raise NotFound(
            gettext_lazy("You are a user of several workspaces."),
            gettext_lazy("say `/console` in the one that you mean"),
        )
    if people:
        member, conversation = people[0]
        if member.guest and not admits_guests:
            raise NotFound(NOT_FOR_GUESTS)
        return member, conversation
    if identity.slack_team:
        raise NotFound(
            gettext_lazy("The bot is not in the Slack workspace that you signed in to, or you are no member there."),
            gettext_lazy("sign in again, to another workspace"),
        )
    author = Author(OIDC, identity.subject, identity.name)
    conversation = ConversationKey(HTTP, DEFAULT_WORKSPACE, author.principal, "console")
    surface = Surfaces(surfaces).find(conversation)
    member = Member(author, external=True) if surface is None else await surface.member(author, conversation)
    if member.external:
        raise NotFound(
            gettext_lazy("You are {user} here, whom the operator of the bot has not let in.", user=author.principal),
            gettext_lazy("the operator adds that name to ADMINS or APPROVERS, or sets OIDC_STRANGERS"),
        )
    return member, conversation
