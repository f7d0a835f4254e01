"""Suggested prompts in the agent's pane, when it opens and when its context changes."""

from __future__ import annotations

import pytest

from bot.chat.context import Lookups
from bot.chat.users import AudiencePolicy
from bot.domain.conversations import ConversationKey
from bot.platforms.slack.home import SET_PROMPTS, USUAL_PROMPTS
from tests.fakes.slack import User
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot

PROMPTS = ("Why is CI red?", "What was deployed today, and by whom? " + "Please be brief. " * 5)


def suggested_prompts(place: ConnectedBot, user: User, thread: str = "") -> list[str]:
    prompts = place.slack.workspace.prompts.get((place.slack.dm(user).id, thread), [])
    return [prompt["message"] for prompt in prompts]


def lookups(*prompts: str) -> tuple[Lookups, list[ConversationKey]]:
    asked: list[ConversationKey] = []

    def find(conversation: ConversationKey) -> tuple[str, ...]:
        asked.append(conversation)
        return prompts

    return Lookups(prompts=find), asked


async def test_the_opened_pane_suggests_the_prompts_of_the_profile() -> None:
    records, asked = lookups(*PROMPTS)
    async with connected_bot(records=records) as place:
        place.slack.open_home(place.priya, "messages")
        await place.slack.until(lambda: suggested_prompts(place, place.priya))
        dm = place.slack.dm(place.priya)
        titles = [prompt["title"] for prompt in place.slack.workspace.prompts[dm.id, ""]]
        assert suggested_prompts(place, place.priya) == list(PROMPTS)
        assert asked == [ConversationKey("slack", place.slack.workspace.team.id, dm.id, "")]
        assert all(len(title) <= 60 for title in titles)
        assert not place.slack.calls.failed_calls()


async def test_without_prompts_in_the_profile_the_pane_still_shows_something(place: ConnectedBot) -> None:
    place.slack.open_home(place.priya, "messages")
    await place.slack.until(lambda: suggested_prompts(place, place.priya) == list(USUAL_PROMPTS))


async def test_the_prompts_follow_the_profile_when_the_user_looks_at_something_else() -> None:
    records, _ = lookups("One?")
    async with connected_bot(records=records) as place:
        place.slack.change_context(place.priya)
        await place.slack.until(lambda: suggested_prompts(place, place.priya) == ["One?"])


async def test_a_new_thread_of_the_older_surface_gets_prompts_of_its_own() -> None:
    records, _ = lookups("One?")
    async with connected_bot(records=records) as place:
        dm = place.slack.dm(place.priya)
        root = place.slack.say(place.priya, dm, "hello")
        thread = {"user_id": place.priya.id, "channel_id": dm.id, "thread_ts": root.ts, "context": {}}
        place.slack.app.events.add("assistant_thread_started")
        place.slack.tell("assistant_thread_started", {"type": "assistant_thread_started", "assistant_thread": thread})
        await place.slack.until(lambda: suggested_prompts(place, place.priya, root.ts) == ["One?"])


@pytest.mark.parametrize("absent", [False, True])
async def test_a_user_without_answers_and_a_workspace_without_prompts_get_none(absent: bool) -> None:
    async with connected_bot(audience=AudiencePolicy()) as place:
        user = place.priya if absent else place.slack.user("Gus", guest="multi")
        if absent:
            place.slack.absent.add(SET_PROMPTS)
        place.slack.open_home(user, "messages")
        await place.wait_for_responses()
        await place.slack.until(lambda: place.slack.calls.of(SET_PROMPTS if absent else "users.info"))
        assert suggested_prompts(place, user) == []
        assert len(place.slack.calls.of(SET_PROMPTS)) == int(absent)
