"""Parser of a server's definition from options or form fields with the same names, and of the words of `/mcp add`
before them: an address or a command line, and a name, which follows from either.

All errors are reported at once, by field. Whether an address or a program is allowed is checked by
`Administration.rejection_reason`.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

from bot.admin.command import CommandRejected
from bot.admin.servers.fields import (
    HEADER_NAME,
    NAME_READERS,
    REFERENCE,
    VARIABLE_NAME,
    check_header,
    read_address,
    read_client_id,
    read_command_line,
    read_folder,
    read_header,
    read_reference,
    read_scope,
    read_sign_in,
    read_transport,
    slug_of,
)
from bot.admin.text_format import sentences
from bot.domain.catalog import server_name
from bot.domain.secrets import SecretReference, SecretSource, is_plain_header, is_plain_variable, weakness
from bot.domain.server_settings import SETTINGS, with_settings
from bot.domain.servers import (
    AUTH_SECRET,
    OAUTH_KINDS,
    STDIO,
    USER_SLOT,
    Authentication,
    AuthenticationKind,
    HttpKind,
    HttpTransport,
    Protocol,
    ServerConfig,
    ServerRecord,
    StdioTransport,
    TemplateLaunch,
    Transport,
    kind_of,
)
from bot.i18n import _, gettext_lazy

T = TypeVar("T")
HEADER_PREFIX = "header:"
LONGEST_SECRET = 4096
_MISSING = gettext_lazy("Its secret is missing. {reference}", reference=REFERENCE)
_MISSING_USER = gettext_lazy(
    "The user name is missing. Write env:NAME or file:/absolute/path: it is kept like the password."
)
_NO_CLIENT = gettext_lazy("Which client? The id is missing that the bot was given when it was registered there.")
KEEP = "***"
"""Value that keeps the stored secret."""
_GENERIC = frozenset(("www", "mcp", "api", "app", "server"))
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SECOND_LEVEL = frozenset(("co", "com", "org", "net", "gov", "ac"))


@dataclass
class ParsedDefinition:
    """The record, the values of new stored secrets by slot, and errors by field."""

    record: ServerRecord
    secrets: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def parse_definition(
    base: ServerRecord,
    fields: Mapping[str, str],
    *,
    hidden: str = "",
    values: Mapping[str, str] | None = None,
    argv: Sequence[str] = (),
) -> ParsedDefinition:
    """Return `base` with the given fields. An absent field is unchanged, an empty one is cleared. `hidden` is the
    secret from a hidden prompt; `values` are those of other slots with a line `NAME=***`; `argv` is a command line
    split into words.
    """
    return _DefinitionParser(base, fields, argv, values or {}).parse(hidden)


def deferred_secrets(draft: ParsedDefinition) -> ParsedDefinition:
    """Return the draft with placeholders instead of errors for a missing authentication secret and user name, which are
    entered after saving.
    """
    slots = {"secret": AUTH_SECRET, "username": USER_SLOT}
    later = {name for name in slots if draft.errors.get(name) in (_MISSING, _MISSING_USER)}
    if not later:
        return draft
    errors = {name: error for name, error in draft.errors.items() if name not in later}
    stored = {slots[name]: SecretReference(SecretSource.STORED) for name in later}
    secrets = {**draft.record.secrets, **stored}
    return ParsedDefinition(dataclasses.replace(draft.record, secrets=secrets), draft.secrets, errors)


def with_missing_secrets(draft: ParsedDefinition, slots: Sequence[str]) -> ParsedDefinition:
    """Return the draft with placeholders for the secrets of these slots, which are entered after saving."""
    if not slots:
        return draft
    later = dict.fromkeys((slot for slot in slots if slot != AUTH_SECRET), SecretReference(SecretSource.STORED))
    draft = deferred_secrets(draft) if AUTH_SECRET in slots else draft
    record = dataclasses.replace(draft.record, secrets={**draft.record.secrets, **later})
    return ParsedDefinition(record, draft.secrets, draft.errors)


class _DefinitionParser:
    def __init__(
        self, base: ServerRecord, fields: Mapping[str, str], argv: Sequence[str], values: Mapping[str, str]
    ) -> None:
        self._base = base
        self._fields = fields
        self._argv = argv
        self._values = values
        self._errors: dict[str, str] = {}

    def parse(self, hidden: str) -> ParsedDefinition:
        transport = self._transport()
        base = self._base.config
        names = {name: self._parse(name, getattr(base, name), read) for name, read in NAME_READERS.items()}
        settings = {setting.key: self._parse(setting.key, setting.of(base), setting.kind.parse) for setting in SETTINGS}
        config = with_settings(dataclasses.replace(base, transport=transport, **names), settings)
        if config.protocol is not Protocol.AUTO and kind_of(transport) == HttpKind.JSONRPC:
            self._errors["protocol"] = _("A server of jsonrpc_http does not speak MCP: set it to auto.")
        authentication = self._authentication(config.transport)
        references, stored = self._secrets(config.transport, authentication, hidden)
        stored |= {slot: value for slot, value in self._values.items() if slot in references}
        record = dataclasses.replace(self._base, config=config, authentication=authentication, secrets=references)
        return ParsedDefinition(record, stored, self._errors)

    def _parse(self, name: str, present: T, read: Callable[[str], T]) -> T:
        if name not in self._fields:
            return present
        try:
            return read(self._fields[name].strip())
        except ValueError as error:
            self._errors[name] = str(error)
            return present

    def _transport(self) -> Transport:
        present = self._base.config.transport
        now = kind_of(present)
        blank = not (present.command if isinstance(present, StdioTransport) else present.url)
        if "transport" not in self._fields and blank and (self._argv or self._fields.get("command")):
            now = STDIO
        kind = self._parse("transport", now, read_transport)
        return self._stdio(present) if kind == STDIO else self._http(present, HttpKind(kind))

    def _stdio(self, present: Transport) -> Transport:
        before = present if isinstance(present, StdioTransport) else StdioTransport("")
        if before.launch is not None:
            return before
        if self._fields.get("url"):
            self._errors["url"] = _("A local program has no address: leave this empty.")
        words = tuple(self._argv) or self._parse("command", (before.command, *before.args), read_command_line)
        if not words or not words[0]:
            self._errors.setdefault("command", _("Which program? Its command line, such as: python -m my_server"))
            return before
        cwd = self._parse("cwd", before.cwd or "", read_folder)
        env = _plain_values(self._fields["env"], is_plain_variable) if "env" in self._fields else before.env
        return StdioTransport(words[0], tuple(words[1:]), env, cwd or None)

    def _http(self, present: Transport, kind: HttpKind) -> Transport:
        before = present if isinstance(present, HttpTransport) else HttpTransport("")
        for name in ("command", "cwd"):
            if self._fields.get(name) or (name == "command" and self._argv):
                self._errors[name] = _("A remote server has no program: leave this empty.")
        url = self._parse("url", before.url, read_address)
        if not url:
            self._errors.setdefault("url", _("The address is missing. Example: https://example.com/mcp"))
        headers = (
            _plain_values(self._fields["headers"], is_plain_header) if "headers" in self._fields else before.headers
        )
        return HttpTransport(url, headers, kind)

    def _authentication(self, transport: Transport) -> Authentication:
        if isinstance(transport, StdioTransport):
            return Authentication()
        before = self._base.authentication
        kind = self._parse("auth", before.kind, read_sign_in)
        if kind is AuthenticationKind.NONE and "auth" not in self._fields:
            if any(map(self._fields.get, ("client_id", "scope", "issuer"))):
                kind = AuthenticationKind.OAUTH
            elif self._fields.get("secret"):
                kind = AuthenticationKind.API_KEY
        client_id = self._parse("client_id", before.client_id, read_client_id)
        scope = self._parse("scope", before.scope, read_scope)
        issuer = self._parse("issuer", before.issuer, read_address)
        if kind in OAUTH_KINDS:
            if kind is AuthenticationKind.CLIENT_CREDENTIALS and not client_id:
                self._errors.setdefault("client_id", _NO_CLIENT)
            return Authentication(kind, client_id=client_id, scope=scope, issuer=issuer)
        header = self._parse("auth_header", before.header, read_header) or "Authorization"
        return Authentication(kind, header)

    def _secrets(
        self, transport: Transport, authentication: Authentication, hidden: str
    ) -> tuple[dict[str, SecretReference], dict[str, str]]:
        local = isinstance(transport, StdioTransport)
        prefix = "env:" if local else HEADER_PREFIX
        references = {slot: reference for slot, reference in self._base.secrets.items() if slot.startswith(prefix)}
        references = self._references(
            "env" if local else "headers", prefix, references, VARIABLE_NAME if local else HEADER_NAME
        )
        other = "headers" if local else "env"
        if self._fields.get(other, "").strip():
            self._errors[other] = _("This kind of server takes none: leave this empty.")
        if authentication.kind is AuthenticationKind.NONE:
            if self._fields.get("secret") or hidden:
                self._errors.setdefault(
                    "secret", _("Say how it signs in: header, basic, api_key, oauth or client_credentials.")
                )
            return references, {}
        if authentication.kind is AuthenticationKind.BASIC and (user := self._user()) is not None:
            references[USER_SLOT] = user
        if hidden and (objection := secret_error(hidden)):
            self._errors["hidden"] = objection
        # A secret for the server is never sent to the authorization server, or the reverse.
        alike = (self._base.authentication.kind in OAUTH_KINDS) == (authentication.kind in OAUTH_KINDS)
        before = self._base.secrets.get(AUTH_SECRET) if alike else None
        reference = self._parse("secret", before, lambda text: read_reference(text) if text else before)
        if hidden:
            reference = SecretReference(SecretSource.STORED)
        if reference is None:
            if authentication.kind is not AuthenticationKind.OAUTH:
                self._errors.setdefault("secret", _MISSING)
            return references, {}
        if authentication.kind is AuthenticationKind.OAUTH and not authentication.client_id:
            self._errors.setdefault("client_id", _NO_CLIENT)
        return {**references, AUTH_SECRET: reference}, {AUTH_SECRET: hidden} if hidden else {}

    def _user(self) -> SecretReference | None:
        """Return the reference to the user name, which is stored like the password."""
        text = self._fields.get("username", "").strip()
        if USER_SLOT in self._values:
            if objection := user_error(self._values[USER_SLOT]):
                self._errors["username"] = objection
            return SecretReference(SecretSource.STORED)
        before = self._base.secrets.get(USER_SLOT)
        if text and text != KEEP:
            return self._parse("username", before, read_reference)
        if before is None:
            self._errors.setdefault("username", _MISSING_USER)
        return before

    def _references(
        self, name: str, prefix: str, present: dict[str, SecretReference], key: re.Pattern[str]
    ) -> dict[str, SecretReference]:
        """Parse references, one `NAME=env:OTHER` per line. `NAME=***` keeps the current one. Plain headers are
        excluded.
        """
        if name not in self._fields:
            return present
        references: dict[str, SecretReference] = {}
        for line in filter(None, map(str.strip, self._fields[name].splitlines())):
            slot, assigned, text = line.partition("=")
            slot = f"{prefix}{slot.strip()}"
            name_in_slot = slot.removeprefix(prefix)
            try:
                if not assigned or not key.fullmatch(name_in_slot):
                    # The part before the padding of a pasted secret is no name.
                    about = _("{name} cannot be used as a name.", name=f"{name_in_slot!r}") if text.strip("=") else ""
                    raise ValueError(sentences(about, _("Each is NAME=REFERENCE."), REFERENCE))  # noqa: TRY301 - like the others
                if prefix == HEADER_PREFIX:
                    check_header(name_in_slot)
                    if is_plain_header(name_in_slot, text.strip()):
                        continue
                elif self._takes_plain_variables and is_plain_variable(name_in_slot, text.strip()):
                    continue
                references[slot] = self._parse_reference(slot, text.strip(), present)
            except ValueError as error:
                self._errors[name] = str(error)
        return references

    @property
    def _takes_plain_variables(self) -> bool:
        transport = self._base.config.transport
        return not (isinstance(transport, StdioTransport) and transport.launch is not None)

    def _parse_reference(self, slot: str, text: str, present: Mapping[str, SecretReference]) -> SecretReference:
        if text == KEEP and slot in self._values:
            if objection := secret_error(self._values[slot]):
                raise ValueError(objection)
            return SecretReference(SecretSource.STORED)
        return present[slot] if text == KEEP and slot in present else read_reference(text)


def _plain_values(lines: str, is_plain: Callable[[str, str], bool]) -> dict[str, str]:
    pairs = (line.partition("=") for line in lines.splitlines())
    named = ((name.strip(), value.strip()) for name, _equals, value in pairs)
    return {name: value for name, value in named if is_plain(name, value)}


def user_error(value: str) -> str:
    """Return the error of a user name for basic authentication; empty if it is valid."""
    return _("A user name is without a colon.") if ":" in value else secret_error(value)


def entered_values(record: ServerRecord, slot: str, value: str) -> tuple[dict[str, str], str]:
    """Return the entered values by slot, and their error, empty if they are valid. User name and password of basic
    authentication are entered together unless the user name is a reference.
    """
    if slot == AUTH_SECRET and enters_pair(record):
        user, colon, password = value.partition(":")
        if not (user and colon and password):
            return {}, _("Enter both, as USER:PASSWORD.")
        return {USER_SLOT: user, AUTH_SECRET: password}, user_error(user) or secret_error(password)
    return {slot: value}, user_error(value) if slot == USER_SLOT else secret_error(value)


def enters_pair(record: ServerRecord) -> bool:
    """Return True if a server's secret is entered as USER:PASSWORD."""
    user = record.secrets.get(USER_SLOT)
    return record.authentication.kind is AuthenticationKind.BASIC and (
        user is None or user.source is SecretSource.STORED
    )


def weak_secret_warning(values: Mapping[str, str]) -> str:
    """Return the warning about secrets that could be guessed, by their slots; empty without any. Other services choose
    their secrets, so a weak one is not rejected.
    """
    weak = next(filter(None, (weakness(value) for slot, value in values.items() if slot != USER_SLOT)), "")
    return (
        _("It is {weakness}: it could be guessed, and is hidden in results of this server alone.", weakness=weak)
        if weak
        else ""
    )


def secret_error(value: str) -> str:
    """Return the error of a secret, which a header can carry; empty if it is valid."""
    if not value:
        return _("It is empty.")
    if len(value) > LONGEST_SECRET:
        return _("At most {limit} characters.", limit=LONGEST_SECRET)
    if not (value.isascii() and value.isprintable()):
        return _("Only characters that can be sent in a header: plain ASCII on one line.")
    return ""


def differences(before: ServerRecord, after: ServerRecord) -> dict[str, str]:
    """Return the changed fields as audit text: old and new value, no secret. The audit log gets them in English."""
    old, new = _audit_fields(before), _audit_fields(after)
    return {
        name: gettext_lazy(
            "{before} → {after}",
            before=old.get(name, "") or gettext_lazy("nothing"),
            after=new.get(name, "") or gettext_lazy("nothing"),
        )
        for name in dict.fromkeys((*old, *new))
        if old.get(name, "") != new.get(name, "")
    }


def plain_values_of(transport: Transport) -> list[tuple[str, str]]:
    """Return the headers or variables of a definition that may be shown, by name."""
    match transport:
        case HttpTransport(headers=headers):
            return sorted((name, value) for name, value in headers.items() if is_plain_header(name, value))
        case StdioTransport(env=env):
            return sorted((name, value) for name, value in env.items() if is_plain_variable(name, value))


def fields_of(record: ServerRecord) -> dict[str, str]:
    """Return a record as fields, without any secret."""
    config = record.config
    local = isinstance(config.transport, StdioTransport)
    references = [
        f"{slot.partition(':')[2]}={KEEP if reference.source is SecretSource.STORED else reference}"
        for slot, reference in sorted(record.secrets.items())
        if slot not in (AUTH_SECRET, USER_SLOT)
    ]
    lines = "\n".join((*(f"{name}={value}" for name, value in plain_values_of(config.transport)), *references))
    secret, user = record.secrets.get(AUTH_SECRET), record.secrets.get(USER_SLOT)
    return {
        "name": config.name,
        "title": config.title,
        "description": config.description,
        **_transport_fields(config.transport),
        "auth": record.authentication.kind.value,
        "auth_header": record.authentication.header,
        "username": "" if user is None else KEEP if user.source is SecretSource.STORED else str(user),
        "client_id": record.authentication.client_id,
        "scope": record.authentication.scope,
        "issuer": record.authentication.issuer,
        "secret": str(secret) if secret is not None and secret.source is not SecretSource.STORED else "",
        "env" if local else "headers": lines,
        **{setting.key: setting.text(config) for setting in SETTINGS},
    }


def command_line(config: ServerConfig) -> str:
    """Return a local server's command line, quoted for a shell; the launch template if it is invalid."""
    match config.transport:
        case StdioTransport("", launch=TemplateLaunch(template, values)):
            return shlex.join((f"template={template}", *(f"{slot}={value}" for slot, value in values.items())))
        case StdioTransport(command, args):
            return shlex.join((command, *args))
        case HttpTransport():
            return ""


def _transport_fields(transport: Transport) -> dict[str, str]:
    match transport:
        case StdioTransport(launch=TemplateLaunch(template, values)):
            slots = {f"slot_{name}": value for name, value in values.items()}
            return {"transport": "stdio", "template": template, **slots}
        case StdioTransport(command, args, _, cwd):
            return {"transport": "stdio", "command": shlex.join((command, *args)), "cwd": cwd or ""}
        case HttpTransport(url, _, kind):
            return {"transport": kind.value, "url": url}


def _audit_fields(record: ServerRecord) -> dict[str, str]:
    return {**fields_of(record), "secret": str(record.secrets.get(AUTH_SECRET, ""))}


def place_words(name: str, words: Sequence[str]) -> tuple[str, str, Sequence[str]]:
    """Return the name, the address and the other words of `add NAME URL`, or `add URL`; name and address may be empty.
    Raises CommandRejected.
    """
    if _URL.match(name):
        return "", name, words
    url = next(filter(_URL.match, words), "")
    if url and len(words) > 1:
        raise CommandRejected(
            _("One address at a time, and options with `--`, such as `--title TEXT`.")
            if words[0] == url or "=" in words[0]
            else _("A name of several words stands in quotes.")
        )
    return name, url, () if url else words


def derived_name(url: str, argv: Sequence[str]) -> str:
    """Return a slug for a server without a name; empty if nothing suggests one."""
    return slug_of(server_name(argv[0], argv[1:]) if argv else _host_name(url))


def _host_name(url: str) -> str:
    """Return the telling part of a host: `linear` for `mcp.linear.app`."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ""
    labels = host.split(".")[:-1]
    if not labels or all(label.isdigit() for label in labels):
        return ""
    if len(labels) > 1 and labels[-1] in _SECOND_LEVEL:
        labels.pop()
    return next((label for label in reversed(labels) if label not in _GENERIC), labels[-1])
