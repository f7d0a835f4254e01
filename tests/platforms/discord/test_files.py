"""Attached files are fetched when a turn needs them: only from Discord, and within the size limit."""

from __future__ import annotations

import pytest

from bot.chat.http import LARGEST_FILE
from bot.domain.conversations import Attachment
from bot.errors import NotFound
from bot.platforms.discord.rest import attachment_id
from tests.fakes.discord import Message
from tests.platforms.discord.connected_bot import ConnectedBot, connected_bot

DATA = b"POOL_SIZE=200\n"


def uploaded(place: ConnectedBot, data: bytes = DATA) -> Message:
    return place.discord.say(place.priya, place.channel, "see", files=[("pool.env", data)])


def known(message: Message, size: int = len(DATA)) -> Attachment:
    (file,) = message.files
    return Attachment(attachment_id(message.channel.id, message.id, file.id), file.name, "text/plain", size)


async def test_the_bytes_of_a_file_are_fetched_without_the_bots_token() -> None:
    async with connected_bot(listening=False) as place:
        assert await place.surface.fetch(known(uploaded(place))) == DATA


async def test_a_file_whose_message_was_deleted_is_gone() -> None:
    async with connected_bot(listening=False) as place:
        message = uploaded(place)
        place.discord.delete(message)
        with pytest.raises(NotFound, match="is gone"):
            await place.surface.fetch(known(message))


@pytest.mark.parametrize("ident", ["", "1", "1:2:3:4", "x:y:z", "1/2:3:4"])
async def test_something_that_is_no_file_is_gone(ident: str) -> None:
    async with connected_bot(listening=False) as place:
        with pytest.raises(NotFound):
            await place.surface.fetch(Attachment(ident, "a.txt", "text/plain", 1))
        assert not place.discord.calls


async def test_a_file_that_is_too_large_is_not_fetched() -> None:
    async with connected_bot(listening=False) as place:
        with pytest.raises(NotFound, match="larger than 10 MB"):
            await place.surface.fetch(known(uploaded(place), LARGEST_FILE + 1))
        assert not place.discord.calls


async def test_a_file_that_is_larger_than_it_says_is_not_read_to_its_end() -> None:
    async with connected_bot(listening=False) as place:
        with pytest.raises(NotFound, match="larger than 10 MB"):
            await place.surface.fetch(known(uploaded(place, b"x" * (LARGEST_FILE + 1)), 10))


async def test_nothing_is_fetched_from_anywhere_but_discord() -> None:
    async with connected_bot(listening=False) as place:
        attachment = known(uploaded(place))
        place.rest.url = "https://discord.com/api/v10"  # the fake's files are foreign URLs now
        with pytest.raises(NotFound, match="not kept by Discord"):
            await place.surface.fetch(attachment)
