"""What models took, over HTTP: a token sees its own, an admin's what its workspaces took."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.commands.moments import MOMENT, read_moment
from bot.commands.usage_figures import figures
from bot.domain.callers import Caller, Role
from bot.domain.servers import EVERYWHERE
from bot.domain.usage import Every, Spender, SpentBy, Unit, UsageQuery
from bot.web.authentication import MemberCaller
from bot.web.parts import WebParts
from bot.web.problems import Problem
from bot.web.routes import api_router
from bot.web.turns.addresses import place
from bot.web.wire import Sent


class Of(StrEnum):
    """Whose use is counted."""

    ME = "me"
    WORKSPACE = "workspace"
    ALL = "all"


class Sum(Sent):
    """Requests to models, added up. Tokens that were cached or written to the cache are input too, those of reasoning
    output.
    """

    requests: int
    input_tokens: int
    cached_tokens: int
    cache_writes: int
    output_tokens: int
    reasoning_tokens: int
    costs: dict[str, float] = Field(description="By currency, at the prices of the day.")
    unpriced: int = Field(description="How many of the requests had no price: `costs` does not count them.")
    estimated: int = Field(
        description="How many of the requests are estimated in part: their services have not counted all of them."
    )


class NamedSum(Sum):
    """One of the names that are added up for."""

    name: str


class LimitShape(Sent):
    """A limit that holds for the caller, and how much of it is used up."""

    per: str
    every: str
    unit: Unit
    used: float
    most: float
    currency: str
    resets_at: str


class UsageShape(Sent):
    """What was used since then."""

    since: str
    by: SpentBy
    total: Sum
    sums: list[NamedSum] = Field(description="The most expensive first, at most 1,000.")
    omitted: int = Field(description="How many names are left out of `sums`; `total` counts them.")
    limits: list[LimitShape]


def routes(parts: WebParts) -> APIRouter:
    """One route."""
    router = api_router(tags=["usage"])
    usage = parts.command_parts.usage

    @router.get("/api/usage", response_model=UsageShape)
    async def read_usage(
        caller: MemberCaller,
        of: Annotated[Of, Query(description="An admin's tokens may see more than their own.")] = Of.ME,
        by: SpentBy = SpentBy.MODEL,
        since: Annotated[str, Query(max_length=100, description=f"{MOMENT}; this month without.")] = "",
        workspace: Annotated[str, Query(max_length=200, description="PLATFORM:ID; the token's own if empty.")] = "",
    ) -> UsageShape:
        """Tokens and money that questions took, since the beginning of the month."""
        query = _query(caller, of, workspace, _moment(since, parts.clock()))
        found = await usage.by(query, by)
        spender = Spender.of(caller.author, place(caller, workspace, "-"))
        limits = await parts.command_parts.balances(spender) if of is Of.ME else ()
        return UsageShape.model_validate(figures(query.since, by, found, limits))

    return router


def _moment(text: str, now: float) -> float:
    try:
        return read_moment(text, now) if text else Every.MONTH.begin(now)
    except (ValueError, OverflowError):
        fields = {"since": f"A point in time is {MOMENT}."}
        raise Problem(
            422, "invalid", "Some fields cannot be used.", "correct the fields that are named", fields
        ) from None


def _query(caller: Caller, of: Of, workspace: str, since: float) -> UsageQuery:
    match of:
        case Of.ME:
            home = place(caller, workspace, "-").home if workspace else ""
            return UsageQuery(since, person=caller.author.principal, workspace=home)
        case Of.WORKSPACE if caller.may(Role.ADMIN):
            return UsageQuery(since, workspace=place(caller, workspace, "-").home)
        case Of.ALL if caller.may(Role.ADMIN) and caller.workspace == EVERYWHERE:
            return UsageQuery(since)
        case _:
            raise Problem(
                403, "forbidden", "This token may see only what it used itself.", "leave `of` out, or use another token"
            )
