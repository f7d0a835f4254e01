"""Open Home tabs are published again only after a change of their content."""

from __future__ import annotations

import pytest

from bot.chat.approval_inbox import PendingCall
from bot.chat.context import Lookups
from bot.chat.home_message import Home
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.turns import StepStatus, Turn, TurnInput, TurnStatus
from bot.engine.locales import LocaleResolver
from bot.errors import DatabaseUnavailable
from bot.platforms.slack.home import MOST, OPEN_SECONDS, HomeRefresher
from tests.fakes.slack import User
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot
from tests.rendering.turns import a_step, an_approval

PUBLISH = "views.publish"


class Records:
    """Home tab content, the same for each user.

    Each call raises the next error of `trouble`, or returns a later time than the call before.
    """

    def __init__(self) -> None:
        self.waiting: tuple[PendingCall, ...] = ()
        self.trouble: list[Exception] = []
        self.asked: list[Member] = []

    async def home(self, member: Member, _workspace: str) -> Home:
        return await self.tab(member)

    async def tab(self, member: Member) -> Home:
        self.asked.append(member)
        if self.trouble:
            raise self.trouble.pop(0)
        return Home(1_000.0 + len(self.asked), waiting=self.waiting)

    def ask(self) -> None:
        """Let a call wait for an approval."""
        turn = Turn(
            "t1",
            ConversationKey("slack", "T1", "C1", "1.1"),
            1,
            Author("slack", "U1", "ana"),
            TurnInput("file it"),
            TurnStatus.WAITING,
            0.0,
        )
        self.waiting = (PendingCall(turn, a_step(StepStatus.AWAITING, approval=an_approval())),)


def tabs_of(place: ConnectedBot, records: Records, clock: list[float]) -> HomeRefresher:
    return HomeRefresher(
        place.api, place.people, AudiencePolicy(), records.tab, LocaleResolver(), clock=lambda: clock[0]
    )


def home_text(place: ConnectedBot, user: User) -> str:
    home = place.slack.home(user)
    return str(home.drawn) if home is not None else ""


async def test_an_open_tab_shows_a_new_waiting_call_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.platforms.slack.home.POLL_SECONDS", 0.02)
    records = Records()
    async with connected_bot(records=Lookups(build_home=records.home)) as place:
        place.slack.open_home(place.priya)
        await place.slack.until(lambda: "Nothing waits for you." in home_text(place, place.priya))
        records.ask()
        await place.slack.until(lambda: "Waiting for you (1)" in home_text(place, place.priya))
        records.waiting = ()
        await place.slack.until(lambda: "Nothing waits for you." in home_text(place, place.priya))


async def test_a_tab_on_which_nothing_has_changed_but_the_time_is_left_alone(worker: ConnectedBot) -> None:
    records, clock = Records(), [0.0]
    tabs = tabs_of(worker, records, clock)
    await tabs.open(worker.priya.id, first_visit=True)
    for _ in range(3):
        await tabs.refresh()
    assert len(records.asked) == 4
    assert len(worker.slack.calls.of(PUBLISH)) == 1
    assert "Hello" in home_text(worker, worker.priya)


async def test_a_tab_that_was_opened_long_ago_is_not_looked_at_any_more(worker: ConnectedBot) -> None:
    records, clock = Records(), [0.0]
    tabs = tabs_of(worker, records, clock)
    await tabs.open(worker.priya.id, first_visit=False)
    records.ask()
    clock[0] += OPEN_SECONDS + 1
    await tabs.refresh()
    assert len(records.asked) == 1
    assert len(worker.slack.calls.of(PUBLISH)) == 1


async def test_of_very_many_tabs_those_that_were_opened_last_are_kept_up(worker: ConnectedBot) -> None:
    records, clock = Records(), [0.0]
    tabs = tabs_of(worker, records, clock)
    people = [worker.slack.user(f"Person {number}") for number in range(MOST + 3)]
    for user in people:
        await tabs.open(user.id, first_visit=False)
        worker.slack.clock.advance(2)
    records.ask()
    worker.slack.clock.advance(60)
    await tabs.refresh()
    anew = [user.name for user in people if "Waiting for you (1)" in home_text(worker, user)]
    assert anew == [user.name for user in people[3:]]


async def test_where_slack_has_no_room_to_spare_tabs_wait_for_the_next_look(worker: ConnectedBot) -> None:
    records, clock = Records(), [0.0]
    tabs = tabs_of(worker, records, clock)
    for _ in range(80):
        await tabs.open(worker.priya.id, first_visit=False)
    records.ask()
    await tabs.refresh()
    assert "Nothing waits for you." in home_text(worker, worker.priya)
    worker.slack.clock.advance(61)
    await tabs.refresh()
    assert "Waiting for you (1)" in home_text(worker, worker.priya)


@pytest.mark.parametrize("trouble", [DatabaseUnavailable("The database is away."), RuntimeError("bug")])
async def test_a_tab_that_cannot_be_made_now_stays_as_it_was_and_holds_up_no_other(
    worker: ConnectedBot, trouble: Exception
) -> None:
    records, clock = Records(), [0.0]
    tabs = tabs_of(worker, records, clock)
    sam = worker.slack.user("Sam")
    await tabs.open(worker.priya.id, first_visit=False)
    await tabs.open(sam.id, first_visit=False)
    records.ask()
    records.trouble = [trouble]
    await tabs.refresh()
    assert "Nothing waits for you." in home_text(worker, worker.priya)
    assert "Waiting for you (1)" in home_text(worker, sam)
    await tabs.refresh()
    assert "Waiting for you (1)" in home_text(worker, worker.priya)
