"""Attached files are fetched when a turn needs them: only from Discord, and within the size limit."""

from __future__ import annotations

import pytest

from bot.chat.http import LARGEST_FILE
from bot.domain.conversations import Attachment
from bot.errors import NotFound
from bot.platforms.discord.rest import attachment_id
from tests.fakes.discord import Message
from tests.platforms.discord.connected_bot import ConnectedBot

DATA = b"POOL_SIZE=200\n"


def upload_file(place: ConnectedBot, data: bytes = DATA) -> Message:
    return place.discord.say(place.priya, place.channel, "see", files=[("pool.env", data)])


def attachment_of(message: Message, size: int = len(DATA)) -> Attachment:
    (file,) = message.files
    return Attachment(attachment_id(message.channel.id, message.id, file.id), file.name, "text/plain", size)


async def test_the_bytes_of_a_file_are_fetched_without_the_bots_token(worker: ConnectedBot) -> None:
    assert await worker.surface.fetch(attachment_of(upload_file(worker))) == DATA


async def test_a_file_whose_message_was_deleted_is_gone(worker: ConnectedBot) -> None:
    message = upload_file(worker)
    worker.discord.delete(message)
    with pytest.raises(NotFound, match="is gone"):
        await worker.surface.fetch(attachment_of(message))


@pytest.mark.parametrize("ident", ["", "1", "1:2:3:4", "x:y:z", "1/2:3:4"])
async def test_something_that_is_no_file_is_gone(worker: ConnectedBot, ident: str) -> None:
    with pytest.raises(NotFound):
        await worker.surface.fetch(Attachment(ident, "a.txt", "text/plain", 1))
    assert not worker.discord.calls


async def test_a_file_that_is_too_large_is_not_fetched(worker: ConnectedBot) -> None:
    with pytest.raises(NotFound, match="larger than 10 MB"):
        await worker.surface.fetch(attachment_of(upload_file(worker), LARGEST_FILE + 1))
    assert not worker.discord.calls


async def test_a_file_that_is_larger_than_it_says_is_not_read_to_its_end(worker: ConnectedBot) -> None:
    with pytest.raises(NotFound, match="larger than 10 MB"):
        await worker.surface.fetch(attachment_of(upload_file(worker, b"x" * (LARGEST_FILE + 1)), 10))


async def test_nothing_is_fetched_from_anywhere_but_discord(worker: ConnectedBot) -> None:
    attachment = attachment_of(upload_file(worker))
    worker.rest.url = "https://discord.com/api/v10"  # the fake's files are foreign URLs now
    with pytest.raises(NotFound, match="not kept by Discord"):
        await worker.surface.fetch(attachment)
