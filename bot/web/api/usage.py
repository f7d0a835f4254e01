"""Usage of models over HTTP: a token reads its own, an admin's token its workspaces'."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.admin.text_format import MOMENT
from bot.admin.usage import usage_report
from bot.domain.api_clients import ApiRole
from bot.domain.servers import EVERYWHERE
from bot.domain.usage import LimitPeriod, LimitUnit, UsageGrouping, UsageOwner, UsageQuery
from bot.i18n import _
from bot.rendering.response_models import ResponseModel
from bot.web.conversation_ids import own_key
from bot.web.dependencies import WebDependencies
from bot.web.parameters import MemberCaller
from bot.web.problems import Problem
from bot.web.routes import api_router, parse_moment


class Of(StrEnum):
    """Scopes of usage."""

    ME = "me"
    WORKSPACE = "workspace"
    ALL = "all"


class Sum(ResponseModel):
    """Totals of model requests. Cached tokens and cache writes are part of input, reasoning tokens part of output."""

    questions: int = Field(description="How many turns had requests. In `sums`, a turn counts for each of its names.")
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
    """Totals of one name in a group."""

    name: str


class LimitShape(ResponseModel):
    """A limit that applies to the caller, and its current use."""

    per: str
    every: str
    unit: LimitUnit
    used: float
    most: float
    currency: str
    resets_at: str


class UsageShape(ResponseModel):
    """Usage since a time."""

    since: str
    by: UsageGrouping
    total: Sum
    sums: list[NamedSum] = Field(description="The most expensive first, at most 1,000.")
    omitted: int = Field(description="How many names are left out of `sums`; `total` counts them.")
    limits: list[LimitShape]


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the route."""
    router = api_router(tags=["usage"])
    usage = dependencies.command_dependencies.stores.usage

    @router.get("/api/usage", response_model=UsageShape)
    async def read_usage(
        caller: MemberCaller,
        of: Annotated[Of, Query(description="An admin's tokens may see more than their own.")] = Of.ME,
        by: UsageGrouping = UsageGrouping.MODEL,
        since: Annotated[str, Query(max_length=100, description=f"{MOMENT}; this month without.")] = "",
        workspace: Annotated[str, Query(max_length=200, description="PLATFORM:ID; the token's own if empty.")] = "",
    ) -> UsageShape:
        """Return tokens and cost of turns, by default since the start of the month."""
        now = dependencies.command_dependencies.clock()
        begin = parse_moment("since", since, now) if since else LimitPeriod.MONTH.start_of_period(now)
        match of:
            case Of.ME:
                workspace_key = own_key(caller, workspace, "-").workspace_key if workspace else ""
                query = UsageQuery(begin, person=caller.author.principal, workspace=workspace_key)
            case Of.WORKSPACE if caller.may(ApiRole.ADMIN):
                query = UsageQuery(begin, workspace=own_key(caller, workspace, "-").workspace_key)
            case Of.ALL if caller.may(ApiRole.ADMIN) and caller.workspace == EVERYWHERE:
                query = UsageQuery(begin)
            case _:
                raise Problem(
                    403,
                    "forbidden",
                    _("This token may see only what it used itself."),
                    _("leave `of` out, or use another token"),
                )
        sums = await usage.totals_by(query, by)
        owner = UsageOwner.of(caller.author, own_key(caller, workspace, "-"))
        limits = await dependencies.command_dependencies.process.usage_limits(owner) if of is Of.ME else ()
        questions = await usage.count_questions(query)
        return UsageShape.model_validate(usage_report(query.since, by, sums, limits, questions))

    return router
