"""`/mcp audit`: tool calls, decisions, denials, and changes of servers and rules; one call's story, and a verification.

Admins see entries of their workspace and of its servers and profiles; those of all workspaces see all. The audit
contains no message text. Entries are exported as JSON Lines, which can be verified again, and as CSV for spreadsheets.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from bot.admin.command import A_SERVER, CommandContext, CommandRejected, option, verb
from bot.admin.servers.directory import ServerVerbs, VisibleServer
from bot.admin.text_format import (
    MOMENT,
    ROWS,
    format_moment,
    offset,
    page_of,
    parse_user,
    sentences,
    server_label,
    shorten,
)
from bot.domain.audit import KINDS, AuditEntry, AuditQuery, AuditScope
from bot.domain.commands import Parameter, ParameterKind, Reply, ReplyAction, ReplyFile, Table
from bot.domain.conversations import ConversationKey
from bot.domain.servers import EVERYWHERE
from bot.i18n import _, format_number, format_time_zone, gettext_lazy, ngettext

CSV_HEADINGS = (
    "number", "time", "kind", "actor", "conversation", "turn", "subject", "facts", "previous", "hash", "mac",
)  # fmt: skip
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - spreadsheets treat the full-width signs alike
LONGEST_DOCUMENT = 10_000
"""Most rows of one reply. Longer results need `countersign audit export`."""
_PERSON = option("person", "entries of this user: an id such as slack:U123", metavar="ID")
_SINCE = option("since", gettext_lazy("from then on: {formats}", formats=MOMENT), metavar="TIME")
_UNTIL = option("until", "before then", metavar="TIME")
_TOOL = option("tool", "the server's own name for the tool", metavar="TOOL")
_OUTCOME = option("outcome", "how a call ended", choices=("done", "failed", "denied", "unknown", "cancelled"))
_CALL = option("call", "all rows of one call", metavar="TURN:N", opaque=True)
_VERIFY = Parameter("verify", "compare its latest rows with the checkpoints", ParameterKind.FLAG)
_KIND = option("kind", "one kind of rows", choices=tuple(KINDS), metavar="KIND")
_DOWNLOAD = Parameter("download", "all of it as a file (CSV)", ParameterKind.FLAG)
_DIGEST = re.compile(r"[0-9a-f]{64}")


def json_line(entry: AuditEntry) -> str:
    """Format an entry as one JSON object with all fields of its hash: see `docs/audit.md`."""
    facts = {**entry.facts, "subject": entry.subject} if entry.subject else dict(entry.facts)
    return json.dumps(
        {
            "seq": entry.seq,
            "at": entry.at,
            "time": _time(entry),
            "kind": entry.kind,
            "conversation": entry.conversation,
            "turn_id": entry.turn_id,
            "actor": entry.actor,
            "facts": facts,
            "previous": entry.previous,
            "hash": entry.hash,
            "mac": entry.mac,
        }
    )


def csv_line(entry: AuditEntry) -> str:
    """Format an entry as one CSV line without its end. A formula is defused by a leading apostrophe."""
    cells = (
        _time(entry),
        entry.kind,
        entry.actor,
        entry.conversation,
        entry.turn_id,
        entry.subject,
        json.dumps(dict(entry.facts), sort_keys=True),
        entry.previous,
        entry.hash,
        entry.mac,
    )
    return _format_row((entry.seq, *(_escape_formula(str(cell)) for cell in cells)))


def csv_head() -> str:
    """Return the CSV header."""
    return _format_row(CSV_HEADINGS)


def _format_row(cells: tuple[object, ...]) -> str:
    line = io.StringIO(newline="")
    # The csv writer quotes only the line ends that it writes itself.
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n")


def _escape_formula(text: str) -> str:
    """Defuse a formula (OWASP, CSV injection), also after blanks."""
    return f"'{text}" if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text


def _time(entry: AuditEntry) -> str:
    try:
        return datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


class AuditSearch(ServerVerbs):
    """Search in the audit."""

    @verb(
        "audit",
        "requests, approvals, denials and changes, by user and time",
        (A_SERVER, _PERSON, _TOOL, _OUTCOME, _SINCE, _UNTIL, _KIND, _CALL, _VERIFY, _DOWNLOAD),
        aliases=("changes",),
        reads=True,
    )
    async def _audit(self, request: CommandContext) -> Reply:
        if request.arguments.has("verify"):
            return await self._verify(request)
        name, number = request.arguments.get("server"), request.arguments.page
        server = await self._directory.find(name, request.conversation) if name else None
        query = await self._query(request, server)
        download = request.arguments.has("download")
        first, rows = (0, LONGEST_DOCUMENT) if download else (offset(number), ROWS)
        entries, count = await self._dependencies.stores.archive.audit(query, rows, first)
        label = server_label(server.config) if server else ""
        if not count:
            nothing = (
                _("Nothing of that kind is in the audit of {server}.", server=label)
                if server
                else _("Nothing of that kind is in the audit.")
            )
            return Reply(nothing)
        if download:
            lines = [csv_head(), *(csv_line(entry) for entry in entries)]
            omitted = count - len(entries)
            cut = (
                ngettext(
                    "The {n} row before them: `countersign audit export`.",
                    "The {n} rows before them: `countersign audit export`.",
                    omitted,
                )
                if omitted
                else ""
            )
            rows_text = ngettext("{n} row", "{n} rows", len(entries))
            head = (
                _("Audit of {server}: the last {rows}, times in UTC.", server=label, rows=rows_text)
                if server
                else _("Audit: the last {rows}, times in UTC.", rows=rows_text)
            )
            return Reply(sentences(head, cut), document=ReplyFile("audit.csv", "\n".join((*lines, "")), "text/csv"))
        again = _command_words(request, server)
        values = {"count": format_number(count), "zone": format_time_zone()}
        return Reply(
            _("Audit of {server} · {count} · times in {zone}", server=label, **values)
            if server
            else _("Audit · {count} · times in {zone}", **values),
            Table(
                ("no.", "when", "what", "by", "where", "facts"),
                tuple(_row(entry) for entry in entries),
                _calls(entries),
            ),
            actions=(
                ReplyAction(_("Download"), (*again, "--download")),
                ReplyAction(_("Verify"), ("mcp", "audit", "--verify")),
            ),
            page=page_of(number, count, again),
        )

    async def _query(self, request: CommandContext, server: VisibleServer | None) -> AuditQuery:
        argument = request.arguments.get
        query = AuditQuery(
            subject=server.id if server else "",
            person=parse_user(argument("person"), request.conversation),
            kinds=KINDS[argument("kind")] if argument("kind") else (),
            tool=argument("tool"),
            outcome=argument("outcome"),
            turn_id=argument("call").rpartition(":")[0],
            step=_step(argument("call")),
            since=request.arguments.since(self._dependencies.clock()),
            until=request.arguments.moment("until", self._dependencies.clock()),
        )
        if self._dependencies.rights.administers_everywhere(request.member):
            return query
        return dataclasses.replace(query, scope=await self._scope(request.conversation))

    async def _verify(self, request: CommandContext) -> Reply:
        """Compare the latest rows with their keys and the checkpoints. Only for readers of the whole audit."""
        if not self._dependencies.rights.administers_everywhere(request.member):
            raise CommandRejected(_("Only those who administer every workspace verify the audit."))
        report = await self._dependencies.process.verify_audit()
        places = [place for place in report.places if place.last is not None]
        facts: list[tuple[str, str]] = [
            (gettext_lazy("rows"), format_number(report.rows)),
            (gettext_lazy("last row"), str(report.head)),
            *(
                (gettext_lazy("last checkpoint"), f"{place.last.seq}, {format_moment(place.last.at)}")
                for place in places
                if place.last is not None
            ),
            *((finding.fault.value, f"{finding.what} {finding.means}") for finding in report.findings),
        ]
        if not places:
            facts.append((gettext_lazy("last checkpoint"), _("none: rows that were cut off at the end are not found")))
        text = (
            _("Each of the latest rows follows the one before, and fits the checkpoints.")
            if report.fits
            else _("The audit does not fit. Compare it with a backup: docs/audit.md says how.")
        )
        return Reply(text, details=tuple(facts), failed=not report.fits)

    async def _scope(self, conversation: ConversationKey) -> AuditScope:
        servers = [server.id for server in await self._directory.all(conversation)]
        profiles = [
            profile.id
            for profile in await self._dependencies.stores.profiles.profiles()
            if profile.workspace in (EVERYWHERE, conversation.workspace_key)
        ]
        return AuditScope(conversation.workspace_key, frozenset((*servers, *profiles)))


def _command_words(request: CommandContext, server: VisibleServer | None) -> tuple[str, ...]:
    """Return the command line that repeats the search."""
    words = ["mcp", "audit", *((server.name,) if server else ())]
    for name in ("person", "tool", "outcome", "since", "until", "kind", "call"):
        if value := request.arguments.get(name):
            words += [f"--{name}", value]
    return tuple(words)


def _step(call: str) -> int | None:
    """Return the step of `TURN:N`; None without a call. Raises CommandRejected."""
    turn, _colon, step = call.rpartition(":")
    if not call:
        return None
    if not (turn and step.isascii() and step.isdigit() and len(step) < 7):
        raise CommandRejected(_("`--call` is `TURN:N`, as the rows of the audit name it."))
    return int(step)


def _calls(entries: Sequence[AuditEntry]) -> tuple[tuple[str, ...], ...]:
    """Return for each row the command that shows the whole story of its call; none for rows about no call."""
    return tuple(
        ("mcp", "audit", "--call", f"{entry.turn_id}:{entry.facts['step']}")
        if entry.turn_id and isinstance(entry.facts.get("step"), int)
        else ()
        for entry in entries
    )


def _row(entry: AuditEntry) -> tuple[str, ...]:
    where = ":".join(entry.conversation.split(":")[2:])
    texts = (f"{name}: {_value(value)}" for name, value in entry.facts.items() if value not in (None, "", {}, []))
    return str(entry.seq), format_moment(entry.at), entry.kind, entry.actor, where, shorten(", ".join(texts), 300)


def _value(value: object) -> str:
    match value:
        case Mapping():
            return ", ".join(f"{name} {_value(item)}" for name, item in value.items())
        case list() | tuple():
            return ", ".join(map(_value, value))
        case str() if _DIGEST.fullmatch(value):
            return f"{value[:12]}…"
        case _:
            return str(value)
