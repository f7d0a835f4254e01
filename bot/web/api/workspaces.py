"""MCP servers of one workspace: `/api/workspaces/{workspace}/mcp-servers`, with what `/api/mcp/servers` can do."""

from __future__ import annotations

from fastapi import APIRouter

from bot.web.parts import WebParts
from bot.web.servers.actions import server_action_routes
from bot.web.servers.reviews import server_review_routes
from bot.web.servers.routes import server_routes
from bot.web.servers.services import Services


def routes(parts: WebParts) -> APIRouter:
    """Its routes."""
    services = Services.of(parts.command_parts)
    router = APIRouter(prefix="/api/workspaces/{workspace}")
    router.include_router(server_routes(services, services.in_workspace, named="workspace_"), prefix="/mcp-servers")
    router.include_router(
        server_action_routes(services, services.in_workspace, named="workspace_"), prefix="/mcp-servers"
    )
    router.include_router(
        server_review_routes(services, services.in_workspace, named="workspace_"), prefix="/mcp-servers"
    )
    return router
