"""What is told of one server's definition, for admins: how it signs in, where its secrets are, who has set it so.

Called by `server_listing`. Values are plain text, and none of them is a secret.
"""

from __future__ import annotations

from bot.commands.server_definition import plain_headers_of
from bot.commands.sign_in import oauth_words
from bot.commands.text_format import format_ago
from bot.domain.servers import EVERYWHERE, AuthenticationKind, OAuthTerms, ServerConfig, ServerRecord


def server_details(record: ServerRecord, now: float) -> list[tuple[str, str]]:
    """How a server is defined that admins keep. `now` is in epoch seconds."""
    authentication, signs_in = record.authentication, ""
    match authentication.kind:
        case AuthenticationKind.BASIC:
            signs_in = "basic"
        case AuthenticationKind.HEADER | AuthenticationKind.API_KEY:
            signs_in = f"{authentication.kind.value}, in {authentication.header}"
        case AuthenticationKind.OAUTH | AuthenticationKind.CLIENT_CREDENTIALS as kind:
            signs_in = oauth_words(OAuthTerms(kind, authentication.client_id, scope=authentication.scope))
        case AuthenticationKind.NONE:
            signs_in = "none"
    kept = [
        (f"secret {slot}", "missing: it is still to be entered" if slot in record.missing else _where(str(reference)))
        for slot, reference in sorted(record.secrets.items())
    ]
    return [
        ("sign-in", signs_in),
        *((f"header {name}", value) for name, value in plain_headers_of(record.config.transport)),
        *kept,
        ("connects", "at the start" if record.config.auto_connect else "when needed"),
        ("for", "every workspace" if record.config.workspace == EVERYWHERE else "this workspace"),
        ("added", f"{format_ago(record.created_at, now)} by {record.created_by or 'somebody'}"),
        ("changed", f"{format_ago(record.updated_at, now)} by {record.updated_by}" if record.version > 1 else ""),
        ("version", str(record.version)),
    ]


def time_limits(config: ServerConfig) -> str:
    """How long it may take, in a line."""
    single = "".join(f", {seconds:g} s for {tool}" for tool, seconds in config.tool_timeouts.items())
    longest = f"{config.tool_timeout_max:g} s with progress"
    connecting, first = (config.connect_seconds(known=known) for known in (True, False))
    at_first = "" if first == connecting else f" ({first:g} s the first time)"
    return f"{connecting:g} s to connect{at_first}, {config.tool_timeout:g} s a call{single}, {longest}"


def _where(reference: str) -> str:
    return "set" if reference == "stored" else reference
