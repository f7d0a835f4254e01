"""MCP servers of all workspaces, or of the token's own: `/api/mcp/servers`, and routes about all servers together."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from bot.domain.servers import ServerStatus
from bot.web.routes import ResponseModel, WebDependencies, api_router
from bot.web.servers.actions import server_action_routes
from bot.web.servers.dependencies import AtHere, Services
from bot.web.servers.responses import ResponseOptions, ServerSerializer, ToolAnswer
from bot.web.servers.reviews import server_review_routes
from bot.web.servers.routes import server_routes


class FileDifference(ResponseModel):
    """Difference between the operator's file and the running configuration."""

    added: list[str]
    changed: dict[str, str] = Field(description="By name, what is different; values are not shown.")
    removed: list[str]
    problems: list[str]
    applied: bool


class Instruction(ResponseModel):
    """Instructions from one server."""

    server_id: str
    name: str
    system_instruction: str
    response_instruction: str
    auto_context_tool: str


class Instructions(ResponseModel):
    """Instructions from all connected servers."""

    instructions: str = Field(description="Every `systemInstruction`, as the model gets them.")
    servers: list[Instruction]


class OfferedTool(ToolAnswer):
    """A tool with its server."""

    server_id: str


class AllServers:
    """Routes about all servers together."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def tools(self, here: AtHere) -> list[OfferedTool]:
        """List the known tools of every enabled server."""
        writer = ServerSerializer(self._services.parts, self._services.directory, ResponseOptions())
        return [
            OfferedTool(**writer.tool(tool, here.conversation).model_dump(by_alias=False), server_id=seen.name)
            for seen in await self._services.directory.all(here.conversation)
            if seen.status not in (ServerStatus.DISABLED, ServerStatus.DISCONNECTED)
            for tool in self._services.directory.capabilities(seen).tools
        ]

    async def instructions(self, here: AtHere) -> Instructions:
        """Return the instructions for the model. An unusable server contributes none."""
        entries = [
            Instruction(
                server_id=seen.name,
                name=seen.config.title or seen.name,
                system_instruction=seen.config.system_instruction,
                response_instruction=seen.config.response_instruction,
                auto_context_tool=seen.config.auto_context_tool,
            )
            for seen in await self._services.directory.all(here.conversation)
            if seen.status in (ServerStatus.CONNECTED, ServerStatus.IDLE)
        ]
        joined = "\n\n".join(entry.system_instruction for entry in entries if entry.system_instruction)
        return Instructions(instructions=joined, servers=entries)

    async def reloaded(
        self,
        here: AtHere,
        *,
        dry_run: Annotated[bool, Query(alias="dryRun", description="Say what would change, change nothing.")] = False,
    ) -> FileDifference:
        """Apply servers and rules from the operator's file as it is now."""
        services = self._services
        found = await (services.parts.administration.difference() if dry_run else services.keeping.reload(here.member))
        return FileDifference(
            added=list(found.added),
            changed=dict(found.changed),
            removed=list(found.removed),
            problems=list(found.problems),
            applied=not dry_run,
        )


def routes(parts: WebDependencies) -> APIRouter:
    """Return the routes."""
    services = Services.of(parts.command_parts)
    router = api_router()
    for routes_of_one in (server_routes, server_action_routes, server_review_routes):
        router.routes.extend(routes_of_one(services, services.globally, "/api/mcp/servers").routes)
    together, everything = api_router("/api/mcp", dependencies=[Depends(services.asked)]), AllServers(services)
    together.get("/tools", name="list_tools", summary="Every tool that servers offer here", tags=["tools"])(
        everything.tools
    )
    together.get(
        "/instructions", name="list_instructions", summary="What the model is told of the servers", tags=["servers"]
    )(everything.instructions)
    together.post("/reload", name="reload_file", summary="Read the operator's file again", tags=["servers"])(
        everything.reloaded
    )
    router.routes.extend(together.routes)
    return router
