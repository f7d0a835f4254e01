"""What everything that receives works with, for as long as it receives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bot.domain.conversations import Member
from bot.platforms.slack.home import Home
from bot.platforms.slack.people import People
from bot.platforms.slack.web_api import WebApi
from bot.ports import Commands, FrontDoor
from bot.reception.errands import Errands
from bot.reception.manners import Manners
from bot.reception.records import Records


@dataclass(frozen=True, slots=True)
class SlackRecords(Records):
    """What is kept for Slack beside. `home` makes one person's Home; it may be missing."""

    home: Callable[[Member], Awaitable[Home]] | None = None


@dataclass(frozen=True, slots=True)
class Desk:
    """Slack on one side, the engine and the commands on the other."""

    api: WebApi
    people: People
    manners: Manners
    errands: Errands
    engine: FrontDoor
    commands: Commands
    records: SlackRecords = SlackRecords()
