"""Slack's errors, as DeliveryFailed with a cause and a fix.

The error codes are those of the method reference at docs.slack.dev. No error contains a token or the text that was
sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.errors import DeliveryFailed

REINSTALL = "install the app again and set the new SLACK_BOT_TOKEN"
INVITE = "invite the bot to the channel (/invite)"
ASK_AN_ADMIN = "ask an administrator of the workspace"

_FOR_GOOD: Mapping[str, tuple[str, str]] = {
    "invalid_auth": ("Slack does not know the token.", REINSTALL),
    "not_authed": ("Slack was asked without a token.", "set SLACK_BOT_TOKEN"),
    "account_inactive": ("The token belongs to an app or a workspace that was removed.", REINSTALL),
    "token_revoked": ("The token was revoked.", REINSTALL),
    "token_expired": ("The token has expired.", REINSTALL),
    "not_allowed_token_type": ("Slack takes another kind of token for this.", "check SLACK_BOT_TOKEN (xoxb-…)"),
    "channel_not_found": ("Slack has no such channel, or the bot cannot see it.", INVITE),
    "not_in_channel": ("The bot is not in the channel.", INVITE),
    "is_archived": ("The channel is archived.", "unarchive it, or ask somewhere else"),
    "is_inactive": ("The channel is archived, frozen or deleted.", "unarchive it, or ask somewhere else"),
    "thread_not_found": ("The thread is gone.", ""),
    "cannot_reply_to_message": ("That message takes no replies.", ""),
    "restricted_action": ("The workspace does not allow the bot to post there.", ASK_AN_ADMIN),
    "restricted_action_read_only_channel": ("The channel is read-only.", ASK_AN_ADMIN),
    "restricted_action_thread_only_channel": ("In that channel only threads can be written in.", ASK_AN_ADMIN),
    "restricted_action_non_threadable_channel": ("That channel has no threads.", ASK_AN_ADMIN),
    "ekm_access_denied": ("The workspace's administrators have suspended posting.", ASK_AN_ADMIN),
    "access_denied": ("The workspace denies the bot access.", ASK_AN_ADMIN),
    "team_access_not_granted": ("The app is not installed in that workspace.", ASK_AN_ADMIN),
    "org_login_required": ("The workspace is being moved.", ASK_AN_ADMIN),
    "no_permission": ("The bot may not do that there.", ASK_AN_ADMIN),
    "messages_tab_disabled": ("The app takes no direct messages.", "turn its Messages tab on"),
    "cannot_dm_bot": ("Bots cannot be written to.", ""),
    "user_not_found": ("Slack knows no such person.", ""),
    "user_not_visible": ("The bot cannot see that person.", ""),
    "user_not_in_channel": ("That person is not in the channel.", ""),
    "edit_window_closed": ("The workspace does not let messages be edited any more.", ""),
    "cant_update_message": ("Slack does not let that message be edited.", ""),
    "msg_too_long": ("Slack finds the message too long.", ""),
    "msg_blocks_too_long": ("Slack finds the message too long.", ""),
    "invalid_blocks": ("Slack does not take the message's layout.", ""),
    "no_text": ("Slack takes no empty message.", ""),
    "invalid_arguments": ("Slack does not take the request.", ""),
    "unknown_method": ("This Slack does not offer that.", ""),
    "message_not_found": ("The message is gone.", ""),
    "expired_trigger_id": ("It took too long to open the form.", "press the button again"),
    "trigger_expired": ("It took too long to open the form.", "press the button again"),
}

LOCKED_OUT = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "org_login_required"}
)
"""Codes for a token that Slack rejects whatever the request is."""


class SlackWebApiError(DeliveryFailed):
    """Slack answered, and it was no. `code` is Slack's own word for why."""

    def __init__(
        self, code: str, cause: str, fix: str = "", *, retry_after: float | None = None, permanent: bool = False
    ) -> None:
        super().__init__(cause, fix, retry_after=retry_after, permanent=permanent)
        self.code = code


class SlackConnectionError(DeliveryFailed):
    """Connection error: the request may or may not have been processed."""


def api_error(method: str, answer: Mapping[str, Any], retry_after: float | None = None) -> SlackWebApiError:
    """Return the error for Slack's answer to a call of `method`; `retry_after` is in seconds."""
    code = str(answer.get("error") or "unknown_error")[:80]
    if code == "missing_scope":
        needed = str(answer.get("needed") or "")[:200]
        fix = f"add the scope {needed} to the app and install it again" if needed else REINSTALL
        return SlackWebApiError(code, f"The app lacks a scope for {method}.", fix, permanent=True)
    if code in _FOR_GOOD:
        cause, fix = _FOR_GOOD[code]
        return SlackWebApiError(code, f"{cause} ({method}: {code})", fix, permanent=True)
    if code in ("ratelimited", "rate_limited"):
        return SlackWebApiError(
            "ratelimited", f"Slack asks for a pause before the next {method}.", retry_after=retry_after
        )
    return SlackWebApiError(code, f"Slack answered {method} with {code}.", retry_after=retry_after)
