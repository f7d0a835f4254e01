"""Attached files: only Slack gets the bot's token, and downloads end at the size limit."""

from __future__ import annotations

from typing import Any

import pytest

from bot.chat import http
from bot.domain.conversations import Attachment
from bot.errors import DeliveryFailed, NotFound
from bot.platforms.slack.messages import _attachments
from bot.platforms.slack.web_api import WebApi, fetch_file
from tests.fakes.slack import Fails
from tests.platforms.slack.connected_bot import ConnectedBot


class Elsewhere(WebApi):
    """An API that returns a foreign file URL."""

    def __init__(self, url: str) -> None:
        super().__init__("xoxb-secret")
        self._file = url

    async def read(self, method: str, **arguments: Any) -> dict[str, Any]:
        return {"file": {"id": arguments["file"], "url_private": self._file}}


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example/file",
        "http://files.slack.com/file",
        "https://files.slack.com:8443/file",
        "https://files.slack.com.evil.example/f",
        "https://user@evil.example/files.slack.com",
        "",
    ],
)
async def test_the_token_goes_to_no_other_host(url: str) -> None:
    async with Elsewhere(url) as api:
        with pytest.raises(NotFound):
            await fetch_file(api, Attachment("F1", "a.txt", "text/plain", 1))


async def test_a_file_beyond_the_limit_is_not_fetched(place: ConnectedBot, monkeypatch: pytest.MonkeyPatch) -> None:
    place.slack.say(place.priya, place.slack.dm(place.priya), "", files=[("big.bin", b"x" * 2000)])
    await place.wait_for_responses()
    (attachment,) = place.engine.received[0].attachments
    monkeypatch.setattr(http, "LARGEST_FILE", 1000)
    with pytest.raises(NotFound, match="larger"):
        await place.surface.fetch(attachment)
    lying = Attachment(attachment.id, attachment.name, attachment.mime_type, 10)
    with pytest.raises(NotFound, match="larger"):
        await place.surface.fetch(lying)


async def test_a_missing_scope_is_named(place: ConnectedBot) -> None:
    place.slack.say(place.priya, place.slack.dm(place.priya), "", files=[("a.txt", b"x")])
    await place.wait_for_responses()
    (attachment,) = place.engine.received[0].attachments
    place.slack.installation.scopes.discard("files:read")
    with pytest.raises(DeliveryFailed, match="files:read"):
        await place.surface.fetch(attachment)


async def test_a_file_that_was_deleted_is_gone(worker: ConnectedBot) -> None:
    worker.slack.fail("files.info", Fails("file_deleted"))
    with pytest.raises(NotFound):
        await worker.surface.fetch(Attachment("F1", "a.txt", "text/plain", 1))


def test_a_message_brings_ten_files_at_most_and_none_that_is_only_a_trace() -> None:
    found = _attachments([{"id": f"F{n}", "name": "a\nb"} for n in range(12)], "T1")
    assert len(found) == 10
    assert (found[0].id, found[0].name) == ("T1/F0", "a b")
    assert _attachments([{"id": "F1", "mode": "tombstone"}], "T1") == ()
