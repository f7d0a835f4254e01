"""Discord's REST API: one sign-in, rate limits, errors with a cause and a fix, and redacted secrets."""

from __future__ import annotations

import asyncio
import logging

import pytest

from bot.domain.metrics import MetricEvent, PlatformLimited
from bot.errors import DeliveryFailed
from bot.platforms.discord.rest import DiscordApiError, DiscordConnectionError, Rest
from tests.fakes.discord import Answers, Cut, Fails, Hangs, TooMany
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot

ME = "GET /users/@me"
CHANNEL = "GET /channels/{channel}"


async def look(rest: Rest, channel: str, **more: float) -> object:
    async with rest.request("look at a channel", **more) as client:
        return await client.fetch_channel(int(channel))


async def test_it_asks_for_nothing_before_it_is_used_and_signs_in_once(worker: ConnectedBot) -> None:
    assert not worker.discord.calls
    await asyncio.gather(*(worker.rest.identity() for _ in range(5)))
    identity = await worker.rest.identity()
    assert len(worker.discord.calls.of(ME)) == 1
    assert (identity.user, identity.app) == (worker.discord.bot.id, worker.discord.app.id)
    assert identity.reads_all


async def test_it_knows_if_it_may_read_messages_without_a_mention() -> None:
    async with connected_bot(listening=False, message_content=False) as place:
        assert not (await place.rest.identity()).reads_all


async def test_an_unknown_token_is_reported_with_a_fix() -> None:
    async with connected_bot(listening=False) as place, Rest("not.the.token", url=place.discord.url) as rest:
        with pytest.raises(DeliveryFailed) as failure:
            await rest.identity()
        assert failure.value.permanent
        assert "DISCORD_TOKEN" in failure.value.fix
        assert "not.the.token" not in str(failure.value)


async def test_where_signing_in_fails_the_next_call_tries_again(worker: ConnectedBot) -> None:
    worker.discord.fail(ME, Cut(), 2)
    with pytest.raises(DiscordConnectionError):
        await worker.rest.identity()
    assert (await worker.rest.identity()).user == worker.discord.bot.id


@pytest.mark.parametrize(
    ("fault", "permanent"),
    [(Fails(50001), True), (Fails(10003), True), (Answers(400), True), (Answers(503), False), (Cut(), False)],
)
async def test_errors_are_permanent_or_temporary(worker: ConnectedBot, fault: object, permanent: bool) -> None:
    await worker.rest.identity()
    worker.discord.fail(CHANNEL, fault, 10)  # type: ignore[arg-type]
    with pytest.raises(DeliveryFailed) as failure:
        await look(worker.rest, worker.channel.id)
    assert failure.value.permanent is permanent
    assert "look at a channel" in failure.value.detailed_cause


async def test_an_answer_that_never_comes_is_not_waited_for_for_ever(worker: ConnectedBot) -> None:
    await worker.rest.identity()
    worker.discord.fail(CHANNEL, Hangs())
    with pytest.raises(DiscordConnectionError):
        await look(worker.rest, worker.channel.id, patience=0.1)
    assert await look(worker.rest, worker.channel.id)


async def test_a_pause_that_is_too_long_is_handed_on_with_its_length(worker: ConnectedBot) -> None:
    await worker.rest.identity()
    worker.discord.fail(CHANNEL, TooMany(120))
    with pytest.raises(DiscordApiError) as failure:
        await look(worker.rest, worker.channel.id)
    assert failure.value.retry_after == pytest.approx(120)
    assert not failure.value.permanent


async def test_a_pause_that_is_handed_on_is_measured() -> None:
    found: list[MetricEvent] = []
    async with (
        connected_bot(listening=False) as place,
        Rest(place.discord.token, url=place.discord.url, observe=found.append) as rest,
    ):
        await rest.identity()
        place.discord.fail(CHANNEL, TooMany(120))
        with pytest.raises(DiscordApiError):
            await look(rest, place.channel.id)
        (limited,) = found
        assert isinstance(limited, PlatformLimited)
        assert limited.platform == "discord"
        assert limited.seconds == pytest.approx(120)


async def test_log_lines_of_the_library_have_no_tokens(worker: ConnectedBot, caplog: pytest.LogCaptureFixture) -> None:
    await worker.rest.identity()
    for level in (logging.INFO, logging.WARNING):
        logging.getLogger("discord.http").log(
            level, "%s is rate limited", "https://discord.com/api/v10/webhooks/1/aW50ZXJhY3Rpb246MTIzNDU2Nzg5MDEyMw"
        )
    logging.getLogger("discord.http").warning("x" * 1000)
    said = [record.getMessage() for record in caplog.records if record.name == "discord.http"]
    assert said == ["https://discord.com/api/v10/webhooks/1/… is rate limited", "x" * 300]
