"""Classification of the end of a session: server status, cause and fix."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.servers import ServerConfig, ServerStatus
from bot.mcp.errors import Problem, connect_failure, connection_lost, timeout_message
from bot.mcp.oauth.tokens import TokenProvider
from bot.mcp.redaction import Redaction
from bot.mcp.request_context import RequestContext

_REFUSED = frozenset((401, 403))


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a session: the problem, the new server status, and True if it had worked."""

    problem: Problem
    status: ServerStatus
    worked: bool


@dataclass(frozen=True, slots=True)
class DisconnectReason:
    """Facts about the end of a session.

    `error` ended it. `attempt` is its last request. `words` are the last lines of the process's stderr. `lost`: the
    other side closed the connection. `limit` is the connect timeout in seconds.
    """

    error: BaseException | None
    attempt: RequestContext
    words: tuple[str, ...]
    limit: float
    worked: bool
    lost: bool

    def classify(self, config: ServerConfig, bearer: TokenProvider | None, redact: Redaction) -> Ended:
        """Return the problem and the server's new status. A server that needs a sign-in has not failed; it is not
        retried before a sign-in.
        """
        refused = not self.worked and self.attempt.status in _REFUSED
        if wanted := _signed_out(bearer, worked=self.worked) or (self._refusal(config) if refused else None):
            return Ended(wanted, ServerStatus.AUTH_REQUIRED, worked=False)
        problem = self._refusal(config) or self._problem(config, redact)
        return Ended(problem, ServerStatus.AUTH_REQUIRED if refused else ServerStatus.FAILED, self.worked)

    def _refusal(self, config: ServerConfig) -> Problem | None:
        """Return the reason of a rejected sign-in, or None. It may quote the authorization server."""
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
    """Return the reason of a rejected sign-in, or None. A server may have rejected the token during negotiation and
    then failed to speak an older protocol.
    """
    if bearer is None or not (bearer.out or (bearer.rejected_bot and not worked)):
        return None
    return Problem(bearer.problem, bearer.own_problem) if bearer.problem else None
