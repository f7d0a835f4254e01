"""End of a session: its reason for users, and the server's new status."""

from __future__ import annotations

from dataclasses import dataclass

from bot.domain.servers import ServerConfig, ServerStatus
from bot.i18n import gettext_lazy
from bot.mcp.errors import Problem, cause_and_fix
from bot.mcp.failures import connect_failure, connection_lost, timeout_message
from bot.mcp.oauth.tokens import TokenProvider
from bot.mcp.redaction import Redaction
from bot.mcp.request_context import RequestContext

_REFUSED = frozenset((401, 403))
_LONGEST_RETRY_AFTER = 900.0
"""Seconds for which a server is left alone at most because it asks for that when it is connected."""


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a session: the problem, the new server status, and True if it had worked. `retry_after`: seconds that the
    server asks to wait.
    """

    problem: Problem
    status: ServerStatus
    worked: bool
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class DisconnectReason:
    """Facts about the end of a session.

    `error` ended it. `attempt` is its last request. `words` are the last lines of the process's stderr. `lost`: the
    other side closed the connection. `limit` is the connect timeout in seconds.
    """

    error: BaseException | None
    attempt: RequestContext
    stderr_lines: tuple[str, ...]
    limit: float
    worked: bool
    lost: bool

    def classify(self, config: ServerConfig, token_provider: TokenProvider | None, redact: Redaction) -> Ended:
        """Return the problem and the server's new status. A server that needs a sign-in has not failed; it is not
        retried before a sign-in.
        """
        refused = not self.worked and self.attempt.status in _REFUSED
        if wanted := _sign_in_problem(token_provider, worked=self.worked) or (
            self._refusal(config) if refused else None
        ):
            return Ended(wanted, ServerStatus.AUTH_REQUIRED, worked=False)
        problem = self._refusal(config) or self._problem(config, redact)
        retry_after = 0.0 if self.worked else min(self.attempt.retry_after or 0.0, _LONGEST_RETRY_AFTER)
        status = ServerStatus.AUTH_REQUIRED if refused else ServerStatus.FAILED
        return Ended(problem, status, self.worked, retry_after)

    def _refusal(self, config: ServerConfig) -> Problem | None:
        """Return the reason of a rejected sign-in, or None. It may quote the authorization server."""
        if not self.attempt.refusal:
            return None
        own = gettext_lazy("Server {server} does not let the bot in.", server=config.name)
        fix = gettext_lazy("`/mcp show {server}` says why", server=config.name)
        return Problem(self.attempt.refusal, cause_and_fix(own, fix))

    def _problem(self, config: ServerConfig, redact: Redaction) -> Problem:
        if self.worked and (self.lost or self.error is None):
            return connection_lost(config, self.stderr_lines)
        if self.error is None:
            return timeout_message(config, self.stderr_lines, self.limit)
        return connect_failure(config, self.error, self.attempt, self.stderr_lines, redact=redact, limit=self.limit)


def _sign_in_problem(token_provider: TokenProvider | None, *, worked: bool) -> Problem | None:
    """Return the reason of a rejected sign-in, or None. A server may have rejected the token during negotiation and
    then failed to speak an older protocol.
    """
    if token_provider is None or not (token_provider.out or (token_provider.rejected_bot and not worked)):
        return None
    return Problem(token_provider.problem, token_provider.own_problem) if token_provider.problem else None
