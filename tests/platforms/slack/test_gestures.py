"""Home, Slack's own Stop, and the shortcut on a message."""

from __future__ import annotations

import dataclasses

from bot.domain.conversations import ConversationKey, Member
from bot.domain.turns import StepStatus, TurnStatus
from bot.platforms.slack.desk import Records
from bot.platforms.slack.home import Home, Waiting
from tests.platforms.slack.test_presses import drawn, waiting
from tests.platforms.slack.workplace import a_workplace
from tests.rendering.turns import a_reply, a_step, a_view, an_approval


async def test_home_shows_what_waits_and_a_call_can_be_reviewed_there() -> None:
    step = a_step(StepStatus.AWAITING, approval=an_approval(), arguments={"text": "Buy milk"})
    view = a_view(step, status=TurnStatus.WAITING)
    seen: list[Member] = []

    async def home(member: Member) -> Home:
        seen.append(member)
        return Home(0.0, waiting=(Waiting(view.turn, step),))

    async def approval(approval_id: str) -> object:
        return (view.turn, step) if approval_id == "apr-12345678" else None

    async with a_workplace(records=Records(home=home, approval=approval)) as place:  # type: ignore[arg-type]
        place.slack.open_home(place.priya)
        await place.slack.until(lambda: place.slack.home(place.priya))
        published = place.slack.home(place.priya)
        assert published is not None
        assert "Waiting for you (1)" in str(published.drawn)
        assert [member.author.id for member in seen] == [place.priya.id]
        await place.slack.press(place.priya, published, "Review")
        await place.slack.until(lambda: place.slack.modals(place.priya))
        assert "Buy milk" in str(place.slack.modal(place.priya).drawn)


async def test_home_says_hello_where_nothing_is_known_yet() -> None:
    async with a_workplace() as place:
        place.slack.open_home(place.priya)
        await place.slack.until(lambda: place.slack.home(place.priya))


async def test_slacks_own_stop_stops_what_runs_in_that_thread() -> None:
    async with a_workplace() as place:
        root = place.slack.say(place.priya, place.channel, "please")
        key = ConversationKey("slack", place.slack.workspace.team.id, place.channel.id, root.ts)
        place.door.knows(a_view(), key)
        ended = a_view(status=TurnStatus.DONE)
        place.door.knows(dataclasses.replace(ended, turn=dataclasses.replace(ended.turn, id="t0")), key)
        place.slack.tell(
            "agent_session_stopped",
            {
                "type": "agent_session_stopped",
                "channel": place.channel.id,
                "user": place.priya.id,
                "thread_ts": root.ts,
                "event_ts": root.ts,
            },
        )
        await place.slack.until(lambda: place.door.stopped)
        await place.settled()
        assert [turn_id for turn_id, _ in place.door.stopped] == ["t1"]


async def test_the_shortcut_asks_about_a_message_in_its_thread() -> None:
    async with a_workplace() as place:
        sam = place.slack.user("Sam")
        place.channel.members.append(sam.id)
        said = place.slack.say(sam, place.channel, "checkout is broken & slow")
        await place.slack.shortcut(place.priya, "cs.ask", said)
        await place.slack.until(lambda: place.slack.modals(place.priya))
        await place.slack.submit(place.priya, {"question": "since <when>?"})
        await place.slack.until(lambda: place.door.received)
        (message,) = place.door.received
        assert (message.text, message.context) == ("since <when>?", ("sam: checkout is broken & slow",))
        assert message.conversation.thread == said.ts
        assert message.author.id == place.priya.id
        (anchor,) = place.bot_posts(thread=said.ts)
        assert anchor.text == "priya asks about this: since &lt;when&gt;?"


async def test_an_opinion_is_kept() -> None:
    kept: list[tuple[str, bool, str]] = []

    async def opinion(turn_id: str, good: bool, by: object) -> None:
        kept.append((turn_id, good, getattr(by, "id", "")))

    async with a_workplace(records=Records(opinion=opinion)) as place:
        view = a_view(status=TurnStatus.DONE)
        message = await drawn(place, dataclasses.replace(view, steps=(a_reply(0, "The pool."),)))
        await place.slack.press(place.priya, message, "Bad answer")
        await place.slack.until(lambda: kept)
        assert kept == [("t1", False, place.priya.id)]


async def test_a_card_that_was_replaced_shows_nothing_any_more() -> None:
    async with a_workplace() as place:
        card = await drawn(place, waiting(text="long " * 400))
        place.door.views.clear()
        await place.slack.press(place.priya, card, "cs.view")
        await place.slack.until(lambda: place.whispers(place.priya))
        assert place.slack.modals(place.priya) == []
