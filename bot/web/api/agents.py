"""Agents that a client may ask by name in its conversations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from bot.rendering.response_model import ResponseModel
from bot.web.authentication import MemberCaller
from bot.web.conversation_ids import own_conversation
from bot.web.routes import WebDependencies, api_router


class Agent(ResponseModel):
    """A profile that answers to its name."""

    id: str
    name: str
    about: str = Field(description="What it does, in a sentence; may be empty.")
    default: bool = Field(description="True for the one that answers without a name, too.")


def routes(dependencies: WebDependencies) -> APIRouter:
    """Return the route."""
    router = api_router(tags=["agents"])
    administration = dependencies.command_dependencies.administration

    @router.get("/api/agents", response_model=list[Agent], summary="Who can be asked by name")
    async def list_callable_agents(
        caller: MemberCaller,
        conversation_id: Annotated[str, Query(alias="conversationId", max_length=500)] = "",
        workspace: Annotated[str, Query(max_length=200, description="PLATFORM:ID; the token's own if empty.")] = "",
    ) -> list[Agent]:
        """List the agents that this token may ask in its own conversations of a workspace."""
        conversation = own_conversation(caller, workspace, conversation_id or "-")
        default = administration.profile_of(conversation)
        return [
            Agent(id=profile.id, name=profile.name, about=profile.about, default=profile.id == default.id)
            for profile in administration.agent_profiles(conversation)
        ]

    return router
