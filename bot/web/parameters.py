"""Parameters of the API's handlers that take their value from the middleware: the client with the role that the route
requires, and the place of a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from bot.domain.api_clients import ApiClient, ApiRole
from bot.i18n import _
from bot.web.authentication import unauthorized_problem
from bot.web.limits import StreamPlace
from bot.web.problems import Problem

_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="Made with `countersign tokens create`, or ADMIN_API_TOKEN.",
)


@dataclass(frozen=True, slots=True)
class RequireRole:
    """Dependency that requires a role of the API client."""

    role: ApiRole

    async def __call__(self, request: Request, _header: Annotated[object, Depends(_bearer)]) -> ApiClient:
        """Return the API client. Raises Problem: 401 without authentication, 403 if the role is too low."""
        caller = getattr(request.state, "caller", None)
        if not isinstance(caller, ApiClient):
            raise unauthorized_problem()
        if not caller.may(self.role):
            raise Problem(
                403,
                "forbidden",
                _("This takes a token with the role {role}.", role=self.role),
                _("use another token, or have one made with `countersign tokens create`"),
            )
        return caller


MemberCaller = Annotated[ApiClient, Depends(RequireRole(ApiRole.MEMBER))]
"""Any valid token."""
ApproverCaller = Annotated[ApiClient, Depends(RequireRole(ApiRole.APPROVER))]
"""A token that may approve calls."""
AdminCaller = Annotated[ApiClient, Depends(RequireRole(ApiRole.ADMIN))]
"""A token that may administer."""


def _stream_place(request: Request) -> StreamPlace:
    place = request.state.stream_place
    assert isinstance(place, StreamPlace)
    return place


RequestStreamPlace = Annotated[StreamPlace, Depends(_stream_place)]
"""Dependency of a route that streams or waits."""
