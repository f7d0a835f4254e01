"""What it means for a server that a session with it has ended, or never came about. Called by `connection`."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.servers import ServerConfig, ServerStatus
from bot.mcp.errors import Problem, connect_failure, connection_lost, timeout_message
from bot.mcp.oauth.token_provider import TokenProvider
from bot.mcp.redaction import Redaction
from bot.mcp.request_context import RequestContext

_REFUSED = frozenset((401, 403))


@dataclass(frozen=True, slots=True)
class Ended:
    """Why a session ended, what that means for the server, and whether it had ever worked."""

    problem: Problem
    status: ServerStatus
    worked: bool


@dataclass(frozen=True, slots=True)
class DisconnectReason:
    """How a session ended: `error` ended it, `attempt` was its last request, `words` its process's last ones; `lost`:
    the other side has hung up; `limit` is how many seconds connecting was given.
    """

    error: BaseException | None
    attempt: RequestContext
    words: tuple[str, ...]
    limit: float
    worked: bool
    lost: bool

    def classify(self, config: ServerConfig, bearer: TokenProvider | None, redact: Redaction) -> Ended:
        """What that means. A server that wants a sign-in has not failed, and is not tried again before there is one."""
        refused = not self.worked and self.attempt.status in _REFUSED
        if wanted := _signed_out(bearer, worked=self.worked) or (self._refusal(config) if refused else None):
            return Ended(wanted, ServerStatus.AUTH_REQUIRED, worked=False)
        problem = self._refusal(config) or self._problem(config, redact)
        return Ended(problem, ServerStatus.AUTH_REQUIRED if refused else ServerStatus.FAILED, self.worked)

    def _refusal(self, config: ServerConfig) -> Problem | None:
        """Why the server does not let the bot in. An authorization server's own words may stand in that."""
        if not self.attempt.refusal:
            return None
        own = f"Server {config.name} does not let the bot in. Fix: `/mcp show {config.name}` says why."
        return Problem(self.attempt.refusal, own)

    def _problem(self, config: ServerConfig, redact: Redaction) -> Problem:
        if self.worked and (self.lost or self.error is None):
            return connection_lost(config, self.words)
        if self.error is None:
            return timeout_message(config, self.words, self.limit)
        return connect_failure(config, self.error, self.attempt, self.words, redact=redact, limit=self.limit)


def _signed_out(bearer: TokenProvider | None, *, worked: bool) -> Problem | None:
    """Why the server does not let the bot in. One that nobody expected to may have said so when it was asked for its
    protocol, and have refused to speak an older one after that.
    """
    if bearer is None or not (bearer.out or (bearer.turned_away and not worked)):
        return None
    return Problem(bearer.problem, bearer.own_problem) if bearer.problem else None
