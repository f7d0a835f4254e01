"""Parser of a server's definition from options or form fields with the same names, and of the words of `/mcp add`
before them: an address or a command line, and a name, which follows from either.

A server that is started by a launch template has the fields `template` and `slot_NAME` in place of a command line. All
errors are reported at once, by field. Whether an address or a program is allowed is checked by
`Administration.rejection_reason`.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

from bot.admin.command import CommandRejected
from bot.admin.servers.fields import (
    HEADER_NAME,
    NAME_READERS,
    NO_ADDRESS,
    REFERENCE,
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
from bot.domain.conversations import ConversationKey, Member
from bot.domain.launch_templates import InvalidSlotValue, LaunchTemplate, Templates
from bot.domain.secrets import (
    VARIABLE_NAME,
    SecretReference,
    SecretSource,
    is_plain_header,
    is_plain_variable,
    weakness,
)
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
TEMPLATE = "template"
SLOT = "slot_"
LONGEST_SECRET = 4096
MISSING_SECRET = gettext_lazy("It is missing. {reference}", reference=REFERENCE)
_MISSING = gettext_lazy("Its secret is missing. {reference}", reference=REFERENCE)
_MISSING_USER = gettext_lazy(
    "The user name is missing. Write env:NAME or file:/absolute/path: it is kept like the password."
)
_NO_CLIENT = gettext_lazy("Which client? The id is missing that the bot was given when it was registered there.")
_NOT_ITS_OWN = gettext_lazy("The launch template says what is started: leave this empty.")
KEEP = "***"
"""Value that keeps the stored secret."""
SIGN_IN_SLOTS = {"secret": AUTH_SECRET, "username": USER_SLOT}
"""Slots of the secrets that a server signs in with, by field."""
_STORED = SecretReference(SecretSource.STORED)
_GENERIC = frozenset(("www", "mcp", "api", "app", "server"))
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SLOT_NAME = re.compile(r"[a-z0-9_]+")
_ADDRESS = re.compile(r"[^=?]*[/:.]|localhost$")
"""Beginning of a word that is meant as an address."""
_SECOND_LEVEL = frozenset(("co", "com", "org", "net", "gov", "ac"))


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A requested server. `name` is a slug, or a title to derive one from. `argv` is a command line split into words.
    `hidden` is the authentication secret and `values` are those of other slots, each with a line `NAME=***` in its
    field, if given in clear text. `missing` are slots of secrets that are entered after saving,
    `errors` those by field that were found before.
    """

    fields: Mapping[str, str]
    member: Member
    conversation: ConversationKey
    name: str = ""
    everywhere: bool = False
    argv: tuple[str, ...] = ()
    hidden: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    missing: Sequence[str] = ()
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass
class ParsedDefinition:
    """The record, the values of new stored secrets by slot, and errors by field."""

    record: ServerRecord
    secrets: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def await_secrets(self, slots: Iterable[str]) -> None:
        """Put placeholders for the secrets of these slots, which are entered after saving."""
        secrets = {**self.record.secrets, **dict.fromkeys(slots, _STORED)}
        self.record = dataclasses.replace(self.record, secrets=secrets)

    def defer_missing(self, slots: Mapping[str, str]) -> None:
        """Put placeholders in the place of errors for missing secrets. `slots` are by field."""
        later = [name for name in slots if self.errors.get(name) in (_MISSING, _MISSING_USER, MISSING_SECRET)]
        for name in later:
            del self.errors[name]
        self.await_secrets(map(slots.__getitem__, later))


def parse_definition(base: ServerRecord, request: ServerRequest, templates: Templates) -> ParsedDefinition:
    """Return `base` with the fields of a request. An absent field is unchanged, an empty one is cleared."""
    return _DefinitionParser(base, request, templates).parse(request.hidden)


def template_secrets(record: ServerRecord, templates: Templates) -> dict[str, str]:
    """Return the slots of the secrets of a server's launch template, by field."""
    launch = record.config.launch
    template = templates.get(launch.template) if launch is not None else None
    return {f"{SLOT}{slot}": f"env:{variable}" for slot, variable in template.secrets.items()} if template else {}


def without_template(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the fields without those of a template."""
    return {name: value for name, value in fields.items() if name != TEMPLATE and not name.startswith(SLOT)}


class _DefinitionParser:
    def __init__(self, base: ServerRecord, request: ServerRequest, templates: Templates) -> None:
        self._base = base
        self._fields = without_template(request.fields)
        self._slots = {name: value.strip() for name, value in request.fields.items() if name.startswith(SLOT)}
        self._template = request.fields.get(TEMPLATE)
        self._argv = request.argv
        self._values = request.values
        self._templates = templates
        self._errors: dict[str, str] = {}

    def parse(self, hidden: str) -> ParsedDefinition:
        misfilled = self._fill_template()
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
        return ParsedDefinition(record, stored, {**self._errors, **misfilled})

    def _fill_template(self) -> dict[str, str]:
        """Put the program of the launch template into the base, and its secrets into the field `env`. Return errors."""
        launch, transport = self._base.config.launch, self._fields.get("transport", "").lower()
        by_name = self._template is not None and transport in ("", STDIO)
        if launch is None and transport != TEMPLATE and not by_name:
            unclear = _("Say which launch template this is for: template=NAME. An option is written --NAME VALUE.")
            return dict.fromkeys(self._slots, unclear)
        errors: dict[str, str] = {}
        for name in ("command", "url", "cwd"):
            if self._fields.pop(name, "") or (name == "command" and self._argv):
                errors[name] = _NOT_ITS_OWN
        self._fields.pop("transport", None)
        self._argv = ()
        chosen = (self._template or "").strip()
        if launch is not None and chosen not in ("", launch.template):
            errors[TEMPLATE] = _("Another launch template is another server: add one, and remove this one.")
        launch = launch or TemplateLaunch(chosen)
        process = StdioTransport("", launch=launch)
        if template := self._templates.get(launch.template):
            named = ((name.removeprefix(SLOT), value) for name, value in self._slots.items())
            given = {slot: value for slot, value in named if slot not in template.secrets}
            launch = TemplateLaunch(template.name, {**launch.values, **given})
            try:
                process = template.fill_slots(launch.values)
            except InvalidSlotValue as invalid:
                errors |= {f"{SLOT}{slot}" if slot else TEMPLATE: why for slot, why in invalid.errors.items()}
                process = StdioTransport("", launch=launch)
            self._fields["env"] = "\n".join(self._template_secrets(template, errors))
        else:
            errors[TEMPLATE] = _unknown_template(launch.template, self._templates)
        self._base = dataclasses.replace(self._base, config=dataclasses.replace(self._base.config, transport=process))
        return errors

    def _template_secrets(self, template: LaunchTemplate, errors: dict[str, str]) -> Iterator[str]:
        """Yield the references to secrets as lines of the field `env`."""
        lines = (line.partition("=") for line in self._fields.get("env", "").splitlines() if line.strip())
        lines_by_variable = {variable.strip(): text.strip() for variable, _equals, text in lines}
        for slot, variable in template.secrets.items():
            line = lines_by_variable.pop(variable, "")
            stored = KEEP if f"env:{variable}" in self._base.secrets else ""
            text = self._slots.get(f"{SLOT}{slot}") or line or stored
            try:
                if text != KEEP:
                    read_reference(text)
            except ValueError as error:
                errors[f"{SLOT}{slot}"] = str(error) if text else MISSING_SECRET
            else:
                yield f"{variable}={text}"
        if lines_by_variable:
            errors["env"] = _(
                "The launch template {template} has no place for such a variable.", template=template.name
            )

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
        words = self._argv or self._parse("command", (before.command, *before.args), read_command_line)
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
                elif self._base.config.launch is None and is_plain_variable(name_in_slot, text.strip()):
                    continue
                references[slot] = self._parse_reference(slot, text.strip(), present)
            except ValueError as error:
                self._errors[name] = str(error)
        return references

    def _parse_reference(self, slot: str, text: str, present: Mapping[str, SecretReference]) -> SecretReference:
        if text == KEEP and slot in self._values:
            if objection := secret_error(self._values[slot]):
                raise ValueError(objection)
            return SecretReference(SecretSource.STORED)
        return present[slot] if text == KEEP and slot in present else read_reference(text)


def _unknown_template(name: str, templates: Templates) -> str:
    available = (
        _("There are: {templates}.", templates=", ".join(sorted(templates)))
        if templates
        else _("The operator has written none.")
    )
    problem = _("There is no launch template of this name.") if name else _("Which launch template?")
    return sentences(problem, available)


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
            slots = {f"{SLOT}{name}": value for name, value in values.items()}
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


def parse_assignments(words: Sequence[str]) -> dict[str, str]:
    """Parse `template=git repo=docs` into fields. Raises CommandRejected."""
    fields: dict[str, str] = {}
    for word in words:
        name, assigned, value = word.partition("=")
        name = name.strip().lower()
        if not assigned or not _SLOT_NAME.fullmatch(name):
            raise CommandRejected(
                NO_ADDRESS
                if _ADDRESS.match(word)
                else _(
                    "Behind the name goes an address such as https://host/path, a program behind `--`, or a launch "
                    "template and its slots, such as `template=git repo=docs`."
                )
            )
        field = TEMPLATE if name == TEMPLATE else f"{SLOT}{name}"
        if field in fields:
            raise CommandRejected(_("Something is given twice there."))
        fields[field] = value
    return fields


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
