"""Principals in sentences become names. Principals that Slack does not resolve, and principals in code, stay."""

from __future__ import annotations

from bot.chat.users import MOST, TTL_SECONDS, resolve_mentions, resolve_reply_mentions
from bot.domain.commands import Reply
from bot.platforms.slack.users import UserDirectory
from tests.fakes.slack import Fails
from tests.platforms.slack.connected_bot import ConnectedBot


async def test_people_and_groups_are_called_by_their_names(worker: ConnectedBot) -> None:
    group = worker.slack.group("ops")
    mentions = await resolve_mentions(
        worker.people.names, f"It needs slack-group:{group.id}, slack:{worker.priya.id}, console:ana."
    )
    assert mentions == "It needs @ops, @priya, console:ana."


async def test_an_unknown_user_is_named_as_in_the_settings(worker: ConnectedBot) -> None:
    sentence = "It needs slack:U0NOBODY1, slack-group:S0NOTHING1, myslack:U1, slack:everyone."
    assert await resolve_mentions(worker.people.names, sentence) == sentence


async def test_a_sentence_is_told_also_when_slack_gives_no_names(worker: ConnectedBot) -> None:
    worker.slack.fail("users.info", Fails("fatal_error"))
    worker.slack.fail("usergroups.list", Fails("fatal_error"))
    sentence = f"It needs slack:{worker.priya.id}, slack-group:S0NOTHING1."
    assert await resolve_mentions(worker.people.names, sentence) == sentence


async def test_without_mentions_no_user_is_looked_up(worker: ConnectedBot) -> None:
    assert await resolve_mentions(worker.people.names, "Already approved by sam.") == "Already approved by sam."
    assert not worker.slack.calls


async def test_a_long_list_is_not_looked_up_without_end(worker: ConnectedBot) -> None:
    users = [worker.slack.user(f"P{number}") for number in range(MOST + 5)]
    mentions = await resolve_mentions(worker.people.names, ", ".join(f"slack:{user.id}" for user in users))
    assert len(worker.slack.calls.of("users.info")) == MOST
    assert mentions.endswith(f"slack:{users[-1].id}")


async def test_names_in_a_reply_are_no_markdown_and_its_code_stays(worker: ConnectedBot) -> None:
    user = worker.slack.user("al_*x*")
    reply = Reply(f"Only slack:{user.id} can. Try `slack:{user.id}`.", details=(("by", f"slack:{user.id}"),))
    named = await resolve_reply_mentions(worker.people.names, reply)
    escaped = "".join(each if each.isalnum() else f"\\{each}" for each in f"@{user.name}")
    assert named.text == f"Only {escaped} can. Try `slack:{user.id}`."
    assert named.details == (("by", f"@{user.name}"),)


async def test_handles_of_groups_are_asked_for_once_in_five_minutes(worker: ConnectedBot) -> None:
    group, now = worker.slack.group("ops"), [0.0]
    people = UserDirectory(worker.api, clock=lambda: now[0])
    assert [await people.group_name(group.id), await people.group_name("S0NOTHING1")] == ["ops", ""]
    assert len(worker.slack.calls.of("usergroups.list")) == 1
    group.handle, now[0] = "operations", TTL_SECONDS
    assert await people.group_name(group.id) == "operations"
