"""What the bot's Home in Slack shows one person, from the rows and from how the servers stand.

Nothing is kept: whose signature counts, and who administers, is asked whenever somebody opens it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import time

from bot.app.signing import signs
from bot.commands.parts import Rights
from bot.domain.conversations import ConversationKey, Member
from bot.domain.servers import EVERYWHERE, ServerState
from bot.domain.turns import StepStatus, ToolStep, Turn
from bot.engine.rules import RuleBook
from bot.errors import CountersignError
from bot.platforms.slack.home import SHOWN, Home, Waiting
from bot.ports import ServerAdmin
from bot.stores import Overview

log = logging.getLogger(__name__)

LOOKED_AT = 500
"""So many waiting calls of a workspace are looked at, the latest first, for those that a person may sign."""

FindCall = Callable[[str], Awaitable[tuple[Turn, ToolStep] | None]]


@dataclass(frozen=True, slots=True)
class Homes:
    """Makes everybody's Home in one workspace. `workspace` asks whose token this is; `approval` finds the call that an
    approval asks about.
    """

    workspace: Callable[[], Awaitable[str]]
    overview: Overview
    approval: FindCall
    rules: RuleBook
    rights: Rights
    servers: ServerAdmin

    async def home(self, member: Member) -> Home:
        """One person's. Raises CountersignError."""
        here = ConversationKey("slack", await self.workspace(), "", "").home
        waiting = await self.overview.waiting(f"{here}:", LOOKED_AT)
        theirs = [each for each in waiting if signs(self.rules, member, each)]
        calls = await asyncio.gather(*(self._call(each.approval_id) for each in theirs[:SHOWN]))
        return Home(
            time(),
            waiting=tuple(call for call in calls if call is not None),
            more_waiting=len(theirs[SHOWN:]),
            asked=await self.overview.asked(member.author.principal, f"{here}:", SHOWN),
            servers=self._servers(here) if self.rights.administers(member) else None,
        )

    async def _call(self, approval_id: str) -> Waiting | None:
        """The call, None if it does not wait any more."""
        try:
            found = await self.approval(approval_id)
        except CountersignError:
            raise
        except Exception:  # one that cannot be read must not hide the others
            log.exception("a call that waits for a signature cannot be read")
            return None
        return Waiting(*found) if found is not None and found[1].status is StepStatus.AWAITING else None

    def _servers(self, here: str) -> Sequence[ServerState]:
        return [state for state in self.servers.servers() if state.config.workspace in (EVERYWHERE, here)]
