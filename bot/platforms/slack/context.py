"""Dependencies of all Slack event handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from bot.chat.context import ChatContext, Lookups
from bot.chat.home_message import Home
from bot.domain.conversations import ConversationKey, Member
from bot.platforms.slack.users import UserDirectory
from bot.platforms.slack.web_api import WebApi


@dataclass(frozen=True, slots=True)
class SlackLookups(Lookups):
    """Lookups outside the engine. `build_home` returns the content of a user's Home tab in a workspace, by its key
    (`slack:T1`); it may be missing. `engaged`
    returns conversations by key prefix with activity in the last seconds, latest first, up to a limit; it may be
    missing. `prompts` returns those that are suggested in a conversation; it may be missing.
    """

    build_home: Callable[[Member, str], Awaitable[Home]] | None = None
    engaged: Callable[[str, float, int], Awaitable[Sequence[ConversationKey]]] | None = None
    prompts: Callable[[ConversationKey], Sequence[str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformContext(ChatContext):
    """One workspace of Slack on one side, the engine and the commands on the other."""

    records: SlackLookups
    api: WebApi
    people: UserDirectory
