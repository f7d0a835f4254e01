"""Text of replies: counts, ages, times, names, suggestions and pages of ten rows.

Names and values in Markdown have to go through these functions.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TypeVar

from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import PageInfo, Reply
from bot.domain.conversations import ConversationKey
from bot.domain.mentions import with_principals
from bot.domain.servers import STATUS_LABELS, SYNC_LABELS, ServerConfig
from bot.i18n import _, current_time_zone, format_date, gettext_lazy, weekdays

MOMENT = gettext_lazy("2026-08-31, 2026-08-31T14:30, 12h or 7d")
"""Accepted formats for usage lines. Times without an offset are in the user's time zone."""
_AGO = re.compile(r"(\d{1,5})\s*(m|min|h|d|w)", re.IGNORECASE)
_LASTING = re.compile(r"(?:for )?(\d{1,5}) ?(m|h|d|w|minutes?|hours?|days?|weeks?)")
_SECONDS = {"m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
T = TypeVar("T")
ROWS = 10
POLICY_WORDS = {
    ApprovalPolicy.ALWAYS_ALLOW: gettext_lazy("runs"),
    ApprovalPolicy.ASK_USER: gettext_lazy("asks"),
    ApprovalPolicy.ALWAYS_DENY: gettext_lazy("blocked"),
    ApprovalPolicy.AUTO: gettext_lazy("runs if it only reads"),
}
POLICY_CHOICES = ("ask", "allow", "deny", "auto")
_POLICIES = {
    "ask": ApprovalPolicy.ASK_USER,
    "asks": ApprovalPolicy.ASK_USER,
    "allow": ApprovalPolicy.ALWAYS_ALLOW,
    "run": ApprovalPolicy.ALWAYS_ALLOW,
    "deny": ApprovalPolicy.ALWAYS_DENY,
    "block": ApprovalPolicy.ALWAYS_DENY,
    "auto": ApprovalPolicy.AUTO,
}
POLICY_SAID = {
    ApprovalPolicy.ASK_USER: "ask",
    ApprovalPolicy.ALWAYS_ALLOW: "allow",
    ApprovalPolicy.ALWAYS_DENY: "deny",
    ApprovalPolicy.AUTO: "auto",
}
_STATUS_WORDS: Mapping[str, str] = {
    **STATUS_LABELS,
    **SYNC_LABELS,
    "awaiting": gettext_lazy("awaiting"),
    "ready": gettext_lazy("ready"),
    "started": gettext_lazy("started"),
    "asking": gettext_lazy("asking"),
    "done": gettext_lazy("done"),
    "denied": gettext_lazy("denied"),
    "expired": gettext_lazy("expired"),
    "unknown": gettext_lazy("unknown"),
    "cancelled": gettext_lazy("cancelled"),
    "queued": gettext_lazy("queued"),
    "running": gettext_lazy("running"),
    "waiting": gettext_lazy("waiting"),
    "CREATED": gettext_lazy("queued"),
    "STREAMING": gettext_lazy("running"),
    "COMPLETED": gettext_lazy("done"),
    "INCOMPLETE": gettext_lazy("cancelled"),
    "FAILED": gettext_lazy("failed"),
}
"""Statuses of servers, calls, turns and conversations."""
_THIS_ONE = gettext_lazy("this one")
_SAFE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")


def parse_time(text: str, now: float) -> float:
    """Parse a time into epoch seconds: `7d` counts back from `now`, and one without an offset is in the user's time
    zone. A time that clocks skipped counts as the one after the gap, a repeated one as the first. Raises ValueError.
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return now - int(ago[1]) * _SECONDS[ago[2].lower()]
    moment = datetime.fromisoformat(text.strip())
    try:
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=current_time_zone())
        # It is shown in both.
        return moment.astimezone(current_time_zone()).astimezone(UTC).timestamp()
    except OverflowError as error:
        raise ValueError("before or after all the years that can be written") from error


def parse_end(text: str, now: float) -> float:
    """Parse the end of a period into epoch seconds: `for 3 days`, `until Friday`, `tomorrow`, `2026-12-04`, or a time.
    A day is part of the period, in the user's time zone. Raises ValueError.
    """
    text = text.casefold().strip()
    if lasting := _LASTING.fullmatch(text):
        return now + int(lasting[1]) * _SECONDS[lasting[2][0]]
    text = text.removeprefix("until ").replace(_("until {day}", day="").strip(), "").strip()
    today = datetime.fromtimestamp(now, current_time_zone()).date()
    days = {"today": 0, "tomorrow": 1, _("today"): 0, _("tomorrow"): 1}
    days |= {name: (number - today.weekday()) % 7 for name, number in weekdays().items()}
    if text not in days and len(text) > len("2026-08-31"):
        return parse_time(text.upper(), now)
    day = today + timedelta(days[text]) if text in days else date.fromisoformat(text)
    return datetime.combine(day + timedelta(1), time(), current_time_zone()).timestamp()


def parse_user(text: str, conversation: ConversationKey) -> str:
    """Return the principal of a mentioned user; an id alone is of this platform."""
    person = with_principals(text).removeprefix("@")
    return person if not person or ":" in person else f"{conversation.platform}:{person}"


def pages(count: int) -> int:
    """Return the number of pages; at least 1."""
    return max((count + ROWS - 1) // ROWS, 1)


def offset(number: int) -> int:
    """Return the index of a page's first row, from 0."""
    return (number - 1) * ROWS


def page_of(number: int, count: int, words: tuple[str, ...]) -> PageInfo | None:
    """Return the position among the pages, None if there is only one."""
    return PageInfo(min(number, pages(count)), pages(count), words) if pages(count) > 1 else None


def page_rows(rows: Sequence[T], number: int) -> Sequence[T]:
    """Return the rows of one page, or of the last page if the number is too high."""
    begin = offset(min(number, pages(len(rows))))
    return rows[begin : begin + ROWS]


def error_reply(text: str) -> Reply:
    """Return a failed reply."""
    return Reply(text, failed=True)


def parse_policy(word: str) -> ApprovalPolicy | None:
    """Parse a policy name: `auto`, `ask_user`, `always_allow`, `always_deny` in any case, or `ask`, `allow`, `deny`."""
    if word.lower() in _POLICIES:
        return _POLICIES[word.lower()]
    return next((policy for policy in ApprovalPolicy if policy.value == word.upper()), None)


def code(name: str, otherwise: str = _THIS_ONE) -> str:
    """Format a name as inline code if it has only letters, digits, dots, dashes and underscores; else return
    `otherwise`.
    """
    return f"`{name}`" if _SAFE.fullmatch(name) else str(otherwise)


def server_label(config: ServerConfig) -> str:
    """Format a server's slug in Markdown."""
    return code(config.name, _("this server"))


def pluralize(count: int, word: str, many: str = "") -> str:
    """Format a count: `1 tool`, `2 tools`."""
    return f"{count} {word}" if count == 1 else f"{count} {many or word + 's'}"


def status_word(status: str) -> str:
    """Return the word for a status of a server, a call, a turn or a conversation."""
    return str(_STATUS_WORDS.get(status, status))


def format_ago(then: float | None, now: float) -> str:
    """Format the time since then: `just now`, `2 min ago`, `3 h ago`, `5 days ago`."""
    if not then:
        return _("never")
    seconds = max(now - then, 0)
    if seconds < 60:
        return _("just now")
    if seconds < 3600:
        return _("{minutes} min ago", minutes=int(seconds // 60))
    if seconds < 48 * 3600:
        return _("{hours} h ago", hours=int(seconds // 3600))
    if seconds < 30 * 86400:
        return _("{days} days ago", days=int(seconds // 86400))
    return _("on {date}", date=format_date(then))


def format_change(at: float, by: str, now: float) -> str:
    """Format the last change of a record: `2 min ago by slack:U1`."""
    return _("{when} by {who}", when=format_ago(at, now), who=by or _("somebody else"))


def format_expiry(then: float, now: float) -> str:
    """Format the time until then: `in 40 s`, `in 12 min`, `in 3 h`, `in 5 days`."""
    seconds = max(then - now, 0)
    if seconds >= 2 * 86400:
        return _("in {days} days", days=int(seconds // 86400))
    if seconds >= 2 * 3600:
        return _("in {hours} h", hours=int(seconds // 3600))
    if seconds >= 2 * 60:
        return _("in {minutes} min", minutes=int(seconds // 60))
    return _("in {seconds} s", seconds=int(seconds))


def format_moment(then: float) -> str:
    """Format a time for a table, in the user's time zone. `parse_time` reads it."""
    return f"{datetime.fromtimestamp(then, current_time_zone()):%Y-%m-%d %H:%M:%S}" if then else ""


def format_duration(seconds: float | None) -> str:
    """Format a duration: `82 ms`, `1.3 s`; empty for None."""
    if seconds is None:
        return ""
    if seconds < 1:
        return _("{milliseconds} ms", milliseconds=round(seconds * 1000))
    return _("{seconds} s", seconds=f"{seconds:.1f}")


def closest_match(text: str, known: Iterable[str]) -> str:
    """Return the closest known name, empty if none is close."""
    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(text.lower()[:100], by_lower, n=1)
    return by_lower[close[0]] if close else ""


def did_you_mean(text: str, known: Iterable[str], before: str = "") -> str:
    """Return `Did you mean `jira`?` or an empty text. The input is not repeated, because it may be a secret."""
    close = code(closest_match(text, known), "")
    return _("Did you mean {name}?", name=f"`{before}{close[1:]}") if close else ""


def known_facts(*facts: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the details of a reply that have a value."""
    return tuple((name, value) for name, value in facts if value)


def sentences(*parts: str) -> str:
    """Join whole sentences; empty ones are left out. A full-width stop needs no blank after it."""
    text = ""
    for part in filter(None, map(str, parts)):
        text += part if not text or text.endswith("。") else f" {part}"
    return text


def shorten_to_cells(text: str, cells: int) -> str:
    """Shorten text from outside to one line of this width in a terminal. East Asian characters are twice as wide."""
    line, width = shorten(text, cells), 0
    for at, character in enumerate(line):
        width += 2 if unicodedata.east_asian_width(character) in "FW" else 1
        if width > cells:
            return line[: at - 1].rstrip() + "…"
    return line


def shorten(text: str, limit: int = 200) -> str:
    """Shorten text from outside to one line, for a cell."""
    line = " ".join(str(text)[: limit * 4].split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
