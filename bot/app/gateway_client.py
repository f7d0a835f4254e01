"""Client of a gateway, for the programs on an agent's side: `countersign ask`, `hook` and `receipt verify`.

The address and the token are from the environment alone, because an `.env` in an agent's working folder may be of
somebody else. Only the standard library is used: agents start these programs for each of their calls.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from bot.errors import CountersignError, InvalidOption, SettingsError
from bot.machine import check_certificates, find_proxy

URL_VARIABLE, TOKEN_VARIABLE = "COUNTERSIGN_URL", "COUNTERSIGN_TOKEN"
_PATIENCE = 30.0
"""Seconds for which a request without an answer is repeated."""
_WAIT = 50
"""Seconds that one request waits for a decision. Proxies often end one at 60."""
_MARGIN = 20.0
"""Seconds for an answer, besides those it waits for a decision."""
_MOST_BYTES = 4 << 20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_KEYS_PATH = "/.well-known/jwks.json"
_NOT_NOW = (429, 502, 503, 504)
_PENDING = "pending"


@dataclass(frozen=True, slots=True)
class GatewayClient:
    """The address of a gateway and a token for it."""

    url: str
    token: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> GatewayClient:
        """Return the client of the variables. Raises SettingsError if one is missing or cannot be used."""
        url, token = (environment.get(name, "").strip() for name in (URL_VARIABLE, TOKEN_VARIABLE))
        if not token or not (token.isascii() and token.isprintable()):
            cause = f"{TOKEN_VARIABLE} is not set." if not token else f"{TOKEN_VARIABLE} is not the text of a token."
            raise SettingsError(cause, "create one with `countersign tokens create NAME --role member`")
        return cls(check_url(url), token)

    def send(
        self, method: str, path: str, body: bytes | None = None, key: str = "", **query: Any
    ) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON object of a response. A request without an answer is repeated, so it has to
        be one that can be. Raises CountersignError for every other outcome.
        """
        address = f"{self.url}{path}{'?' if query else ''}{urlencode(query)}"
        head = {"Content-Type": "application/json", "Accept": "application/json"}
        head |= {"Idempotency-Key": key} if key else {}
        head |= {"Authorization": f"Bearer {self.token}"} if self.token else {}
        request = Request(address, body, head, method=method)  # noqa: S310 - check_url knows the scheme
        until, pause = math.inf, _FIRST_PAUSE
        while True:
            after = 0.0
            try:
                status, content, after = self._send_once(request, query.get("wait", 0) + _MARGIN)
                if status not in _NOT_NOW:
                    return status, _parse(status, content)
                failure = _error(status, content)
            except (OSError, HTTPException) as error:
                reason = getattr(error, "reason", error) or type(error).__name__
                cause = f"{urlsplit(self.url).netloc} cannot be reached: {reason}."
                failure = CountersignError(cause, f"check {URL_VARIABLE} and that the gateway runs")
            until = min(until, time.monotonic() + _PATIENCE)
            pause = max(pause, after)
            if time.monotonic() + pause > until:
                raise failure
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _send_once(self, request: Request, seconds: float) -> tuple[int, bytes, float]:
        """Return the status and the content of a response, and the seconds after which it can be asked again."""
        check_certificates()
        opener = OpenerDirector()  # without the handlers for redirects, which would take the token elsewhere
        proxy = find_proxy(request.full_url)
        for handler in (ProxyHandler({request.type: proxy.url} if proxy else {}), HTTPHandler(), HTTPSHandler()):
            opener.add_handler(handler)
        with opener.open(request, timeout=seconds) as response:
            after = response.headers.get("Retry-After", "")
            return response.status, response.read(_MOST_BYTES), float(after) if after.isdecimal() else 0.0


def check_url(url: str) -> str:
    """Return the address of a gateway without a slash at its end. Raises SettingsError if it cannot be used."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        usable = usable and not (parts.query or parts.fragment or "@" in parts.netloc)
    except ValueError:
        usable = False
    if not usable or not (url.isascii() and url.isprintable()) or " " in url:
        cause = f"{URL_VARIABLE} is {'not the address of a gateway' if url else 'not set'}."
        raise SettingsError(cause, f"set {URL_VARIABLE} to the address of Countersign, such as https://bot.example.com")
    return url.rstrip("/")


def ask(
    client: GatewayClient, question: Mapping[str, Any], key: str, wait: float, report: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Request an approval, and return its state at the decision or after `wait` seconds. `report` gets the state once
    it waits.
    """
    until = time.monotonic() + wait
    body = json.dumps(question, ensure_ascii=False, allow_nan=False).encode()
    _status, answer = client.send("POST", "/api/approvals", body, key)
    if answer.get("status") == _PENDING:
        report(answer)
    while answer.get("status") == _PENDING and (left := until - time.monotonic()) > 0:
        _status, answer = client.send("GET", f"/api/approvals/{answer['approvalId']}", wait=_slice(left))
    return answer


def decide_hook(client: GatewayClient, event: bytes, wait: float, *, defer: bool) -> dict[str, Any]:
    """Return the decision about the call of a PreToolUse hook, which denies a call that still waits after `wait`
    seconds, or defers it. Raises CountersignError if there is no decision.
    """
    try:
        given = json.loads(event)
        question = {"tool": given["tool_name"], "arguments": given["tool_input"]}
        origin = {"session": given.get("session_id"), "cwd": given.get("cwd")}
        # Two equal calls of one session are two: each has its own approval.
        key = " ".join(("hook", str(given.get("session_id")), given["tool_use_id"]))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        cause = "Standard input is not the JSON of a PreToolUse hook."
        raise CountersignError(cause, "run it as a hook of the agent: see `countersign connect`") from error
    question |= {name: text for name, text in origin.items() if text}
    answer = ask(client, question, key, wait, lambda _answer: None)
    status, decision = answer.get("status"), {"permissionDecision": "deny"}
    people = ", ".join(answer.get("deciders") or ())
    reason = answer.get("reason") or f"The call is {status}."
    if status == "approved":
        reason = f"Approved by {people or 'a rule'}."
        decision = {"permissionDecision": "allow", "updatedInput": answer["arguments"]}
    elif status == _PENDING:
        reason = (
            f"The call still waits for {answer.get('waitingFor') or 'approvers'}. {answer.get('url') or ''}".strip()
        )
        decision = {"permissionDecision": "defer" if defer else "deny"}
    output = {"hookEventName": "PreToolUse", "permissionDecisionReason": reason, **decision}
    return {"hookSpecificOutput": output}


def read_keys(place: str) -> dict[str, Any]:
    """Return the public keys of receipts: a file, or those at an address; by default those of the gateway of the
    variable. Raises CountersignError.
    """
    if place and "://" not in place:
        return _parse(200, read_file(place))
    address = check_url(place or os.environ.get(URL_VARIABLE, "")).removesuffix(_KEYS_PATH)
    return GatewayClient(address).send("GET", _KEYS_PATH)[1]


def read_file(name: str) -> bytes:
    """Return the content of a file. Raises CountersignError."""
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - pathlib loads slowly
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise CountersignError(f"{name} cannot be read: {error.strerror}.", "name another file") from error


def _slice(left: float) -> int:
    return min(_WAIT, math.ceil(left))


def _parse(status: int, content: bytes) -> dict[str, Any]:
    """Return the object of a response. Raises CountersignError for an error of the gateway, and for other texts."""
    if status not in (200, 201, 202):
        raise _error(status, content)
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        raise _strange(status) from None
    if not isinstance(answer, dict):
        raise _strange(status)
    return answer


def _error(status: int, content: bytes) -> CountersignError:
    """Return the error of a response, in the gateway's words if it has some."""
    try:
        problem = json.loads(content)["error"]
        cause, fix = str(problem["message"]), str(problem["fix"])
        fields = "".join(f" {name}: {text}" for name, text in (problem.get("fields") or {}).items())
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return _strange(status)
    return (InvalidOption if status in (400, 422) else CountersignError)(f"{cause}{fields}", fix)


def _strange(status: int) -> CountersignError:
    return CountersignError(
        f"The answer (HTTP {status}) is not one of Countersign's gateway.",
        f"check {URL_VARIABLE} and proxies before it",
    )
