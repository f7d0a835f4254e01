"""Delivery by HTTP: signed requests to one URL of the app, with Slack's retry headers."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from urllib.parse import urlencode

from aiohttp import ClientError, ClientSession

from tests.fakes.slack.deliveries import Attempt, Delivery
from tests.fakes.slack.messages import Json

CHALLENGE = "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"


@dataclass
class SignedPosts:
    """The way to the app by HTTP. `skew`: seconds added to the timestamp that is signed; `secret` signs."""

    url: str
    secret: str
    skew: float = 0.0
    _session: ClientSession | None = field(default=None)

    async def carry(self, delivery: Delivery, attempt: Attempt, reason: str, within: float) -> None:
        """Post once and wait for the answer: 200 acknowledges, its body is the answer."""
        attempt.by, began = self.url, time.monotonic()
        body, content_type = _encode_delivery(delivery)
        headers = self.signature_headers(body) | {"Content-Type": content_type}
        if attempt.number:
            known = "http_timeout" if reason == "timeout" else reason
            headers |= {"X-Slack-Retry-Num": str(attempt.number), "X-Slack-Retry-Reason": known}
        try:
            async with asyncio.timeout(within):
                attempt.status, attempt.answer, attempt.no_retry = await self._post(body, headers)
            attempt.outcome = "acknowledged" if attempt.status == 200 else "http_error"
        except TimeoutError:
            attempt.outcome = "timeout"
        except (ClientError, OSError):
            attempt.outcome = "connection_failed"
        attempt.seconds = time.monotonic() - began

    async def verify(self, token: str, challenge: str = CHALLENGE) -> Json:
        """Send Slack's challenge for a new URL, and return the response."""
        body = json.dumps({"token": token, "challenge": challenge, "type": "url_verification"})
        status, answer, _ = await self._post(body, self.signature_headers(body) | {"Content-Type": "application/json"})
        return {"status": status, "answer": answer, "challenge": challenge}

    def signature_headers(self, body: str) -> dict[str, str]:
        """Return the headers that prove a request came from Slack."""
        stamp = str(int(time.time() + self.skew))
        digest = hmac.new(self.secret.encode(), f"v0:{stamp}:{body}".encode(), hashlib.sha256).hexdigest()
        return {
            "X-Slack-Request-Timestamp": stamp,
            "X-Slack-Signature": f"v0={digest}",
            "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
        }

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _post(self, body: str, headers: dict[str, str]) -> tuple[int, Json | str | None, bool]:
        if self._session is None:
            self._session = ClientSession()
        async with self._session.post(self.url, data=body.encode(), headers=headers) as response:
            text = await response.text()
            is_json = response.content_type == "application/json" and text
            no_retry = response.headers.get("X-Slack-No-Retry") == "1"
            return response.status, json.loads(text) if is_json else text or None, no_retry


def _encode_delivery(delivery: Delivery) -> tuple[str, str]:
    form = "application/x-www-form-urlencoded"
    match delivery.kind:
        case "events_api":
            return json.dumps(delivery.payload), "application/json"
        case "slash_commands":
            return urlencode(delivery.payload), form
        case "interactive":
            return urlencode({"payload": json.dumps(delivery.payload)}), form
