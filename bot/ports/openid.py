"""Port for the sign-in of users at an OpenID Connect issuer, and for the platforms that know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from bot.domain.conversations import ConversationKey, Member
from bot.domain.openid import Identity, OpenIdRequest
from bot.ports.toolbox import AuthorizationResponse


class OpenIdIssuer(Protocol):
    """The operator's issuer."""

    @property
    def origin(self) -> str:
        """Scheme and host of the issuer."""

    @property
    def client(self) -> str:
        """The issuer and the bot's client id there: subjects are users of these alone."""

    async def authorization_url(self, request: OpenIdRequest) -> str:
        """Return the address at which a user signs in. Raises ServerTrouble."""

    async def identify(self, response: AuthorizationResponse, request: OpenIdRequest) -> Identity:
        """Return the user whom the issuer has sent back. Raises ServerTrouble."""


@runtime_checkable
class IdentityDirectory(Protocol):
    """Optional half of a Surface: it knows users by their e-mail addresses, or by its own issuer."""

    async def find_people(self, identity: Identity) -> Sequence[tuple[Member, ConversationKey]]:
        """Return the member that a user is, with their direct conversation, for each workspace. Raises
        DeliveryFailed.
        """
        ...
