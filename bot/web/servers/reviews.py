"""Reviews of changed tools over HTTP: differences and approval, as in `/mcp review`."""

from __future__ import annotations

from fastapi import APIRouter, Depends
from pydantic import Field

from bot.commands.tool_review import UnreviewedTool
from bot.domain.pins import combined_digest
from bot.web.problems import Problem
from bot.web.routes import RequestModel, ResponseModel, api_router
from bot.web.servers.dependencies import AtHere, FindHere, Services
from bot.web.servers.responses import AskedManner, Moment, ResponseOptions


class DefinitionDiff(ResponseModel):
    """Difference between a definition and its pin; null where one of them is missing."""

    part: str
    before: str | None
    after: str | None


class WaitingTool(ResponseModel):
    """A tool whose definition is not approved."""

    name: str
    review: str = Field(description="`new`, `changed` or `flagged`.")
    flags: list[str] = Field(description="What to look at, in a few words each.")
    differences: list[DefinitionDiff]
    definition: str = Field(description="Its digest: approving names what was looked at.")
    pinned_by: str | None
    pinned_at: Moment


class ReviewAnswer(ResponseModel):
    """Unreviewed tools of a server."""

    server_id: str
    tools: list[WaitingTool]
    definition: str | None = Field(description="The digest of all of them together; null if nothing waits.")


class ApprovalBody(RequestModel):
    """Definitions to approve."""

    definition: str = Field(description="The digest of what was looked at: of `tool`, or of everything that waits.")
    tool: str = Field(default="", description="One tool alone, by the server's own name for it.")


class Approved(ResponseModel):
    """Offered tools after an approval."""

    approved: list[str]


class ReviewRoutes:
    """The routes, over the services of `/mcp review`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def shown(self, ref: str, manner: AskedManner, here: AtHere) -> ReviewAnswer:
        """Return the unreviewed tools and their differences from the pins."""
        seen = await self._services.calls.found(ref, here.conversation)
        waiting = await self._services.reviewing.waiting(seen.id)
        return ReviewAnswer(
            server_id=seen.name,
            tools=[_waiting(each, manner) for each in waiting],
            definition=combined_digest(each.tool for each in waiting) if waiting else None,
        )

    async def approved(self, ref: str, body: ApprovalBody, here: AtHere) -> Approved:
        """Approve tools in the reviewed version."""
        seen = await self._services.directory.find(ref, here.conversation)
        found = await self._services.reviewing.approve(seen, body.tool, body.definition, here.member)
        if not found:
            raise Problem(
                409, "conflict", "What waits is not what was looked at any more. Nothing was approved.", "look again"
            )
        return Approved(approved=[each.tool.original_name for each in found])


def server_review_routes(services: Services, find_here: FindHere, prefix: str, *, named: str = "") -> APIRouter:
    """Return the routes below `prefix`. `named` is the prefix of their names."""
    router = api_router(f"{prefix}/{{ref}}/review", tags=["servers"], dependencies=[Depends(find_here)])
    reviews = ReviewRoutes(services)
    router.get("", name=f"{named}show_review", summary="Tools that wait for a review")(reviews.shown)
    router.post("", name=f"{named}approve_tools", summary="Approve tools as they were shown")(reviews.approved)
    return router


def _waiting(waiting: UnreviewedTool, manner: ResponseOptions) -> WaitingTool:
    pin = waiting.pin
    return WaitingTool(
        name=waiting.tool.original_name,
        review=waiting.review.value,
        flags=list(waiting.tool.flags),
        differences=[
            DefinitionDiff(part=alteration.part, before=alteration.before, after=alteration.after)
            for alteration in waiting.alterations
        ],
        definition=waiting.tool.definition,
        pinned_by=pin.pinned_by if pin else None,
        pinned_at=manner.moment(pin.pinned_at if pin else None),
    )
