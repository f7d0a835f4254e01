"""Messages that become turns: the real SDKs against the fake workspace."""

from __future__ import annotations

from bot.chat.users import NOT_FOR_GUESTS, NOT_FOR_STRANGERS, AudiencePolicy
from bot.domain.conversations import ConversationKey
from bot.engine.prompt.messages import UNREAD
from bot.errors import DatabaseUnavailable
from tests.fakes.slack import Fails, Slow, Team
from tests.platforms.slack.connected_bot import ConnectedBot, connected_bot


async def test_a_mention_becomes_one_turn_in_a_thread_though_it_arrives_as_two_events(place: ConnectedBot) -> None:
    slack = place.slack
    asked = slack.say(place.priya, place.channel, f"{slack.bot.mention} why 502?")
    await place.wait_for_responses()
    assert len([each for each in slack.sent_deliveries if each.kind == "events_api"]) == 2
    (message,) = place.engine.received
    assert message.text == "why 502?"
    assert message.author.principal == f"slack:{place.priya.id}"
    assert message.author.name == "priya"
    team = slack.workspace.team.id
    assert message.conversation == ConversationKey("slack", team, place.channel.id, asked.ts)
    assert f"slack:{team}:{place.channel.id}:{asked.ts}" in message.keys


async def test_the_same_message_sent_twice_by_its_client_is_one_turn(place: ConnectedBot) -> None:
    for _ in range(2):
        place.slack.say(place.priya, place.channel, f"{place.slack.bot.mention} hi", client_msg_id="c-1")
    await place.wait_for_responses()
    assert len(place.engine.received) == 1


async def test_a_direct_message_needs_no_mention_and_is_answered_in_its_thread(place: ConnectedBot) -> None:
    dm = place.slack.dm(place.priya)
    said = place.slack.say(place.priya, dm, "hello")
    await place.wait_for_responses()
    (message,) = place.engine.received
    assert (message.conversation.channel, message.conversation.thread) == (dm.id, said.ts)


async def test_messages_of_a_thread_are_received_in_order_at_any_speed_of_user_lookups(place: ConnectedBot) -> None:
    slack, sam = place.slack, place.slack.user("Sam")
    place.channel.members.append(sam.id)
    root = slack.say(place.priya, place.channel, f"{slack.bot.mention} why?")
    await place.wait_for_responses()
    slack.fail("users.info", Slow(0.3))
    slack.say(sam, place.channel, f"{slack.bot.mention} restart it", thread_ts=root.ts)
    slack.say(place.priya, place.channel, f"{slack.bot.mention} no, wait", thread_ts=root.ts)
    await place.wait_for_responses()
    assert [each.text for each in place.engine.received] == ["why?", "restart it", "no, wait"]


async def test_edits_deletions_joins_and_other_bots_are_ignored(place: ConnectedBot) -> None:
    slack, dm = place.slack, place.slack.dm(place.priya)
    said = slack.say(place.priya, dm, "hello")
    await place.wait_for_responses()
    slack.edit(said, "hello there")
    slack.delete(said)
    slack.join(slack.user("Lee"), place.channel)
    robot = slack.other_bot("Alerts")
    place.channel.members.append(robot.id)
    slack.say(robot, place.channel, f"{slack.bot.mention} checkout is down")
    await place.wait_for_responses()
    assert [each.text for each in place.engine.received] == ["hello"]


async def test_a_thread_that_cannot_be_read_in_time_does_not_hold_up_the_question(place: ConnectedBot) -> None:
    slack = place.slack
    root = slack.say(place.priya, place.channel, "it is broken")
    slack.fail("conversations.replies", Slow(5.0), times=3)
    slack.say(place.priya, place.channel, f"{slack.bot.mention} why?", thread_ts=root.ts)
    await slack.until(lambda: place.engine.received)
    await place.wait_for_responses()
    assert place.engine.received[0].context == (UNREAD,)
    assert all(each.attempts[-1].seconds < 2.5 for each in slack.sent_deliveries)


async def test_messages_of_a_thread_that_arrive_at_once_are_read_about_once(place: ConnectedBot) -> None:
    slack, sam = place.slack, place.slack.user("Sam")
    place.channel.members.append(sam.id)
    root = slack.say(place.priya, place.channel, "it is broken")
    slack.fail("users.info", Slow(0.3), times=2)
    for n in range(4):
        slack.say(sam, place.channel, f"{slack.bot.mention} why {n}?", thread_ts=root.ts)
        slack.say(place.priya, place.channel, f"line {n}", thread_ts=root.ts)
    await place.wait_for_responses()
    asked = [each for each in place.engine.received if each.author.id == sam.id]
    assert [each.text for each in asked] == [f"why {n}?" for n in range(4)]
    assert [each.context[-1] for each in asked] == ["priya: it is broken", *(f"priya: line {n}" for n in range(3))]
    assert len(slack.calls.of("conversations.replies")) <= 2


async def test_mentions_channels_links_and_entities_are_read_as_they_look(place: ConnectedBot) -> None:
    slack = place.slack
    text = f"is {place.priya.mention} in <#{place.channel.id}|> &amp; see <https://example.com|the page>? <!here>"
    slack.say(place.priya, slack.dm(place.priya), text)
    await place.wait_for_responses()
    assert place.engine.received[0].text == "is @priya in #incidents & see the page (https://example.com)? @here"


async def test_guests_and_strangers_are_not_answered_and_told_so_alone(place: ConnectedBot) -> None:
    slack = place.slack
    guest = slack.user("Gus", guest="single")
    stranger = slack.user("Stella", team=Team("T0OTHER001", "other"), stranger=True)
    place.channel.members += [guest.id, stranger.id]
    slack.say(guest, place.channel, f"{slack.bot.mention} hi")
    slack.say(stranger, place.channel, f"{slack.bot.mention} hi")
    await slack.until(lambda: place.whispers(guest) and place.whispers(stranger))
    await place.wait_for_responses()
    assert place.engine.received == []
    assert (place.whispers(guest), place.whispers(stranger)) == ([NOT_FOR_GUESTS], [NOT_FOR_STRANGERS])


async def test_guests_are_answered_where_the_operator_allows_it() -> None:
    async with connected_bot(audience=AudiencePolicy(guests=True)) as place:
        guest = place.slack.user("Gus", guest="single")
        place.channel.members.append(guest.id)
        place.slack.say(guest, place.channel, f"{place.slack.bot.mention} hi")
        await place.wait_for_responses()
        assert [each.author.name for each in place.engine.received] == ["gus"]


async def test_a_message_is_not_acknowledged_until_it_is_on_disk_and_comes_again_if_it_is_not(
    place: ConnectedBot,
) -> None:
    place.slack.post.retries = (0.05, 0.1, 0.2)
    place.engine.troubles = [DatabaseUnavailable("The database is away.")]
    place.slack.say(place.priya, place.slack.dm(place.priya), "hello")
    place.slack.post.within = 0.3
    await place.wait_for_responses()
    (delivery,) = [each for each in place.slack.sent_deliveries if each.kind == "events_api"]
    assert [attempt.outcome for attempt in delivery.attempts] == ["timeout", "acknowledged"]
    assert [each.text for each in place.engine.received] == ["hello"]


async def test_a_user_whose_lookup_fails_is_not_answered_and_slack_sends_the_message_again(place: ConnectedBot) -> None:
    place.slack.post.retries = (0.05, 0.1, 0.2)
    place.slack.post.within = 0.5
    place.slack.fail("users.info", Fails("fatal_error"), times=1)
    place.slack.say(place.priya, place.slack.dm(place.priya), "hello")
    await place.wait_for_responses()
    assert [each.text for each in place.engine.received] == ["hello"]


async def test_a_user_who_asks_in_many_threads_leaves_others_the_context_of_theirs(place: ConnectedBot) -> None:
    slack, sam = place.slack, place.slack.user("Sam")
    place.channel.members.append(sam.id)
    for n in range(60):
        root = slack.say(sam, place.channel, f"topic {n}")
        slack.say(place.priya, place.channel, f"{slack.bot.mention} why?", thread_ts=root.ts)
    await place.wait_for_responses()
    root = slack.say(place.priya, place.channel, "the shop is down")
    slack.say(sam, place.channel, f"{slack.bot.mention} since when?", thread_ts=root.ts)
    await place.wait_for_responses()
    *flood, asked = place.engine.received
    assert asked.context == ("priya: the shop is down",)
    assert len(flood) == 60
    assert sum(each.context == (UNREAD,) for each in flood) >= 50, "at most ten are read at once"


async def test_a_long_thread_is_read_back_from_its_latest_turns_on(place: ConnectedBot) -> None:
    slack = place.slack
    asked = slack.say(place.priya, place.channel, f"{slack.bot.mention} why 502?")
    await place.wait_for_responses()
    where = place.engine.received[0].conversation
    posted = {f"t{n}": {"answer-0": f"~{place.channel.id}:{2_000_000_000 + n * 100}.000100"} for n in range(60)}
    short = dict([*posted.items()][:50])
    for turns, oldest in ((short, None), (posted, f"{2_000_001_000 - 3_600}.000100")):
        read = await place.surface.read_thread(where, turns)
        assert [text.id for text in read] == [f"{place.channel.id}:{asked.ts}"]
        assert slack.calls.of("conversations.replies")[-1].args.get("oldest") == oldest
