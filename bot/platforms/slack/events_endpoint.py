"""HTTP mode: Slack's events as signed requests, for whoever serves HTTP to hand in.

Knows no web framework. What is not signed by Slack within the last five minutes, or is larger than anything Slack
sends, is refused before anybody reads it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from slack_bolt.async_app import AsyncApp
from slack_bolt.request.async_request import AsyncBoltRequest
from slack_sdk.signature import SignatureVerifier

log = logging.getLogger(__name__)

PATH = "/slack/events"
LARGEST_BODY = 1024 * 1024
"""In bytes. Slack's own are below a quarter of that, a modal of 250 kB included."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What to send back."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""


class EventsEndpoint:
    """Takes the requests that arrive at `PATH`; `largest_body` is for the server to stop reading at."""

    path = PATH
    largest_body = LARGEST_BODY

    def __init__(self, signing_secret: str) -> None:
        self._verifier = SignatureVerifier(signing_secret)
        self._app: AsyncApp | None = None

    @property
    def ready(self) -> bool:
        """Whether there is somebody to take events."""
        return self._app is not None

    def attach(self, app: AsyncApp) -> None:
        """From now on there is somebody to take events."""
        self._app = app

    def detach(self) -> None:
        """There is nobody any more: Slack sends again what comes from now on."""
        self._app = None

    async def answer(self, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """Take one POST request. Never raises."""
        if len(body) > LARGEST_BODY:
            return HttpAnswer(413)
        try:
            text = body.decode()
        except UnicodeDecodeError:
            return HttpAnswer(400)
        given = {name.lower(): value for name, value in headers.items()}
        if not self._signed(given, text):
            return HttpAnswer(401)
        if self._app is None:
            return HttpAnswer(503, {"Retry-After": "5"})
        try:
            request = AsyncBoltRequest(body=text, headers={name: [value] for name, value in given.items()})
            response = await self._app.async_dispatch(request)
        except Exception:
            log.exception("an event could not be taken")
            return HttpAnswer(500)
        return HttpAnswer(response.status, {name: value[0] for name, value in response.headers.items()}, response.body)

    def _signed(self, headers: Mapping[str, str], body: str) -> bool:
        timestamp, signature = headers.get("x-slack-request-timestamp", ""), headers.get("x-slack-signature", "")
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) < 13 and signature.isascii()):
            return False
        return self._verifier.is_valid(body, timestamp, signature)
