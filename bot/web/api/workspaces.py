"""MCP servers of one workspace: `/api/workspaces/{workspace}/mcp-servers`: the routes of `/api/mcp/servers`."""

from __future__ import annotations

from fastapi import APIRouter

from bot.web.routes import WebDependencies, api_router
from bot.web.servers.actions import server_action_routes
from bot.web.servers.dependencies import Services
from bot.web.servers.reviews import server_review_routes
from bot.web.servers.routes import server_routes


def routes(parts: WebDependencies) -> APIRouter:
    """Return the routes."""
    services = Services.of(parts.command_parts)
    router, prefix = api_router(), "/api/workspaces/{workspace}/mcp-servers"
    for routes_of_one in (server_routes, server_action_routes, server_review_routes):
        router.routes.extend(routes_of_one(services, services.in_workspace, prefix, named="workspace_").routes)
    return router
