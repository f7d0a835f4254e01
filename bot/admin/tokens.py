"""`/console tokens`, `token create`, `token revoke`: tokens of programs that use the HTTP API."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bot.admin.command import CONFIRM, CommandContext, CommandRejected, Verbs, option, verb
from bot.admin.text_format import code, format_ago, format_moment, page_of, page_rows
from bot.domain.api_clients import OPERATOR_NAME, ApiRole, ApiToken
from bot.domain.commands import ActionStyle, Parameter, Reply, ReplyAction, Table
from bot.domain.conversations import ConversationKey, Member
from bot.domain.servers import EVERYWHERE
from bot.errors import SettingsError
from bot.i18n import _, gettext_lazy

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_WORKSPACE = re.compile(r"[a-z][a-z-]*:[^\s:]+")
_SPAN = re.compile(r"(\d{1,5})([hdw])")
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_TOKEN = Parameter("name", "the program's name: rules and the audit call it api:NAME", required=True, metavar="NAME")
_ROLE = Parameter(
    "role",
    "member: talk to the bot; approver: approve calls too; admin: administer too",
    required=True,
    choices=tuple(role.value for role in ApiRole),
)


def check_token(name: str, workspace: str) -> None:
    """Check the name and the workspace of a new token. Raises SettingsError."""
    if not _NAME.fullmatch(name):
        raise SettingsError(
            _("{name} cannot be the name of a token.", name=f"{name!r:.100}"),
            _("use 1 to 64 lower-case letters, digits, dots, dashes and underscores, such as ci or night-run"),
        )
    if name == OPERATOR_NAME:
        raise SettingsError(
            _("{name} is reserved for ADMIN_API_TOKEN.", name=repr(OPERATOR_NAME)), _("take another name")
        )
    if workspace and not _WORKSPACE.fullmatch(workspace):
        raise SettingsError(
            _("{name} is no workspace.", name=f"{workspace!r:.100}"), _("write platform:id, such as slack:T123")
        )


def parse_lifetime(text: str) -> float | None:
    """Parse a lifetime into seconds; None for no expiry. Raises SettingsError."""
    if not text:
        return None
    span = _SPAN.fullmatch(text.strip().lower())
    if span is None or int(span[1]) == 0:
        raise SettingsError(
            _("--expires is {text}, which is no time.", text=f"{text!r:.40}"), _("write 12h, 90d or 52w")
        )
    return int(span[1]) * _SECONDS[span[2]]


class TokenVerbs(Verbs):
    """Verbs about tokens. Only the operator makes them: a token outlives the rights of whoever made it."""

    @verb("tokens", "programs that may use the HTTP API", reads=True)
    async def _list(self, request: CommandContext) -> Reply:
        tokens = await self._visible(request.member, request.conversation)
        if not tokens:
            return Reply(_("There are no tokens. The operator makes one: `/console token create NAME ROLE`."))
        now, page = self._dependencies.clock(), page_rows(tokens, request.arguments.page)
        may_revoke = self._dependencies.rights.administers_everywhere(request.member)
        rows = tuple(
            (
                token.name,
                token.role.value,
                token.workspace or _("all"),
                _("{when} by {who}", when=format_ago(token.created_at, now), who=token.created_by or _("somebody")),
                _state(token, now),
            )
            for token in page
        )
        return Reply(
            _("Tokens · {count}", count=len(tokens)),
            Table(("token", "role", "workspace", "made", "state"), rows),
            actions=tuple(
                ReplyAction(
                    _("Revoke {token}", token=token.name),
                    ("console", "token", "revoke", token.name),
                    ActionStyle.DANGER,
                    confirm=token.name,
                )
                for token in page
                if may_revoke and token.is_valid(now)
            ),
            page=page_of(request.arguments.page, len(tokens), ("console", "tokens")),
        )

    @verb(
        "token create",
        "a token for a program, shown once",
        (
            _TOKEN,
            _ROLE,
            option("workspace", "the only workspace it is good for, such as slack:T123", metavar="PLATFORM:ID"),
            option("expires", "how long it is good: 12h, 90d, 52w", metavar="TIME"),
        ),
    )
    async def _create(self, request: CommandContext) -> Reply:
        if not (self._dependencies.rights.vouches(request.member) and request.hidden_input):
            raise CommandRejected(
                _(
                    "Only the operator makes tokens, in the console in a browser or in a shell: "
                    "`countersign tokens create`."
                )
            )
        arguments = request.arguments
        name, workspace = arguments.get("name"), arguments.get("workspace")
        check_token(name, workspace)
        lifetime = parse_lifetime(arguments.get("expires"))
        role = ApiRole(arguments.get("role"))
        record, token = await self._dependencies.stores.tokens.create(name, role, workspace, lifetime, request.author)
        return Reply(
            _("The token {name} is made, as {role}. It is shown this once:", name=code(name, ""), role=role.value),
            details=(
                (gettext_lazy("token"), token),
                (gettext_lazy("workspace"), workspace or _("all")),
                (gettext_lazy("state"), _state(record, self._dependencies.clock())),
            ),
        )

    @verb("token revoke", "take a token back, at once and in every process", (_TOKEN, CONFIRM))
    async def _revoke(self, request: CommandContext) -> Reply:
        if not self._dependencies.rights.administers_everywhere(request.member):
            raise CommandRejected(_("Only those who administer every workspace take tokens back."))
        name = request.arguments.get("name")
        if request.arguments.get("confirm") != name:
            action = ReplyAction(
                _("Revoke {token}", token=name),
                ("console", "token", "revoke", name),
                ActionStyle.DANGER,
                confirm=name,
            )
            return Reply(_("Whatever uses this token is shut out at once."), actions=(action,))
        if not await self._dependencies.stores.tokens.revoke(name, request.author):
            raise CommandRejected(_("There is no such token. `/console tokens` lists them."))
        return Reply(_("The token {name} is good for nothing any more.", name=code(name, "")))

    async def _visible(self, member: Member, conversation: ConversationKey) -> Sequence[ApiToken]:
        tokens = await self._dependencies.stores.tokens.tokens()
        if self._dependencies.rights.administers_everywhere(member):
            return tokens
        return [token for token in tokens if token.workspace == conversation.workspace_key != EVERYWHERE]


def _state(token: ApiToken, now: float) -> str:
    if token.revoked_at is not None:
        return _("revoked {when}", when=format_ago(token.revoked_at, now))
    if token.expires_at is None:
        return _("good")
    text = {"time": format_moment(token.expires_at)}
    return _("good until {time}", **text) if token.is_valid(now) else _("expired {time}", **text)
