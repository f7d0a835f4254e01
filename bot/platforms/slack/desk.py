"""What everything that receives works with, for as long as it receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.domain.conversations import Author, Member
from bot.domain.turns import ToolStep, Turn
from bot.platforms.slack.errands import Errands
from bot.platforms.slack.home import Home
from bot.platforms.slack.people import People
from bot.platforms.slack.rights import Manners
from bot.platforms.slack.web_api import WebApi
from bot.ports import Commands, FrontDoor


@dataclass(frozen=True, slots=True)
class Records:
    """What is kept that the engine has no word for; each may be missing.

    `opinion` keeps what somebody thinks of a turn's answer: its id, whether it was good, and who says so. `home` makes
    one person's Home. `approval` finds the call that an approval asks about (`TurnLog.approval`).
    """

    opinion: Callable[[str, bool, Author], Awaitable[None]] | None = None
    home: Callable[[Member], Awaitable[Home]] | None = None
    approval: Callable[[str], Awaitable[tuple[Turn, ToolStep] | None]] | None = None


@dataclass(frozen=True, slots=True)
class Desk:
    """Slack on one side, the engine and the commands on the other."""

    api: WebApi
    people: People
    manners: Manners
    errands: Errands
    engine: FrontDoor
    commands: Commands
    records: Records = Records()
