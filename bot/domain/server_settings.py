"""Settings of MCP servers, one row each.

From a row come the option of `/mcp add` and `/mcp edit`, the field of their forms, the key of the operator's file and
of imported files, the field of requests and responses over HTTP, and the fact of `/mcp show`. A new setting is a row
here, a field of `ServerConfig` of the same name, and its use; CONTRIBUTING.md names the guide and the tests.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bot.domain.commands import Field, FieldKind, Parameter, ParameterKind
from bot.domain.flows import Sends, ServerFlows, Words
from bot.domain.servers import Protocol, ServerConfig, SessionScope, StdioTransport, ToolNaming
from bot.i18n import LazyFields, _, format_number, gettext_lazy, join_lazy

YES, NO = "yes", "no"
DEFAULT = "default"
"""Value of a field that follows a setting of the bot."""
BY_HINTS = "hints"
"""Value that leaves the decision to the server's hints."""
LONGEST_SECONDS = 3600.0
_LONGEST_INSTRUCTION = 4000
_GROUP = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_LONGEST_GROUP = 40
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


class WrongValue(ValueError):
    """A value of a file that is none of its key. `wanted` completes "make it …"; `place` is the key inside of it."""

    def __init__(self, wanted: str, place: str = "") -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.place = place


@dataclass(frozen=True, slots=True)
class ValueKind:
    """Kind of a setting's values.

    `parse` reads the text of an option or a field and raises ValueError with a sentence; `load` reads the value of a
    file and raises WrongValue. `json` is its type in JSON, and `none` the text of a missing value. `choices` are those
    of a form. One of `by_tool` takes a line for each tool. A `nullable` one is null over HTTP if there is no value.
    """

    parse: Callable[[str], Any]
    load: Callable[[Any], Any]
    json: Any
    metavar: str = ""
    choices: tuple[str, ...] = ()
    none: str = ""
    by_tool: bool = False
    nullable: bool = False
    field: FieldKind = FieldKind.TEXT
    longest: int = 10


@dataclass(frozen=True, slots=True)
class Setting(LazyFields):
    """One setting, by the name of its field in `ServerConfig` or `ServerFlows`.

    `purpose` is the hint of its option, and of its form's field unless `hint` says more. Settings with the same `form`
    share a step of the form, and a sixth one begins another step; without one the form leaves it out. `fact` is its
    name in `/mcp show`, which shows a value that is not the usual one, as `described`. `about` is the Markdown of the
    guide, and `usual` its default there, if it is no value. An `imported` one is taken from files of other programs.
    """

    TEXTS = ("purpose", "label", "hint", "fact")
    key: str
    kind: ValueKind
    purpose: str
    about: str
    label: str = ""
    hint: str = ""
    option: str = ""
    form: int = 0
    fact: str = ""
    described: Callable[[Any], str] | None = None
    usual: str = ""
    imported: bool = False

    @property
    def parameter(self) -> Parameter:
        """The option of the chat."""
        return Parameter(
            self.option or self.key.replace("_", "-"),
            self.purpose,
            ParameterKind.OPTION,
            repeated=self.kind.by_tool,
            choices=() if self.kind.metavar else self.kind.choices,
            metavar=self.kind.metavar,
        )

    @property
    def form_field(self) -> Field:
        """The field of the form."""
        kind = self.kind
        value = kind.choices[0] if kind.field is FieldKind.CHOICE else ""
        choices = kind.choices if kind.field is FieldKind.CHOICE else ()
        hint = self.hint or self.purpose
        return Field(self.key, self.label, kind.field, hint, choices=choices, value=value, longest=kind.longest)

    @property
    def plain_about(self) -> str:
        """Description without links."""
        return _LINK.sub(r"\1", self.about)

    def of(self, config: ServerConfig) -> Any:
        """Return the value of a server."""
        return getattr(config.flows if self.key in _FLOWS else config, self.key)

    def text(self, config: ServerConfig) -> str:
        """Return the value as the text of its field, which `parse` reads back."""
        value = self.of(config)
        return self.kind.none if value is None else field_text(value)

    def description(self, config: ServerConfig) -> str:
        """Return the value for `/mcp show`; empty for the usual one."""
        value = self.of(config)
        if value == self.of(_USUAL):
            return ""
        return self.described(value) if self.described else ", ".join(self.text(config).splitlines())


_FLOWS = frozenset(field.name for field in dataclasses.fields(ServerFlows))
_USUAL = ServerConfig("", StdioTransport(""))


def with_settings(config: ServerConfig, values: Mapping[str, Any]) -> ServerConfig:
    """Return a server with other values of its settings, by key."""
    flows = dataclasses.replace(config.flows, **{key: values[key] for key in values.keys() & _FLOWS})
    return dataclasses.replace(config, flows=flows, **{key: values[key] for key in values.keys() - _FLOWS})


def field_text(value: object) -> str:
    """Return a value of a definition as the text of its field, which the field's parser reads back."""
    match value:
        case None:
            return ""
        case bool():
            return YES if value else NO
        case float():
            return f"{value:g}"
        case tuple() | list():
            return ",".join(value)
        case Mapping():
            return "\n".join(f"{tool}={field_text(item)}" for tool, item in value.items())
        case _:
            return str(value)


# -------------------- kinds of values


def misread(text: str, wanted: str) -> ValueError:
    """Return the error of a value, which may be repeated because it is no secret."""
    return ValueError(_("{value} is not valid. {wanted}", value=f"{text[:40]!r}", wanted=wanted) if text else wanted)


def choose(text: str, choices: Sequence[str]) -> str:
    """Return a text that is one of the choices. Raises ValueError with the nearest one."""
    if text in choices:
        return text
    wanted = _("One of: {choices}.", choices=", ".join(choices))
    for near in difflib.get_close_matches(text[:100], choices, n=1):
        wanted = join_lazy(wanted, gettext_lazy("Did you mean {name}?", name=near))
    raise misread(text, wanted)


def parse_text(longest: int, text: str) -> str:
    """Parse visible text of at most `longest` characters."""
    if len(text) > longest:
        raise ValueError(_("At most {limit} characters, and this has {count}.", limit=longest, count=len(text)))
    if not text.replace("\n", "").replace("\t", "").isprintable():
        raise ValueError(_("There are characters in it that cannot be seen."))
    return text


def load_text(value: Any) -> str:
    """Return a text of a file. Raises WrongValue."""
    if not isinstance(value, str):
        raise WrongValue(gettext_lazy("a text in double quotes"))
    if "\0" in value:
        raise WrongValue(gettext_lazy("a text without NUL characters"))
    return value


def text_of(longest: int, metavar: str = "TEXT", field: FieldKind = FieldKind.TEXT) -> ValueKind:
    """Return the kind of visible text of at most `longest` characters."""
    return ValueKind(lambda text: parse_text(longest, text), load_text, str, metavar, field=field, longest=longest)


def _parse_switch(text: str) -> bool:
    """Parse a yes or no."""
    match text.lower():
        case "yes" | "on" | "true" | "y":
            return True
        case "no" | "off" | "false" | "n" | "":
            return False
        case _:
            raise misread(text, _("yes or no."))


def load_switch(value: Any) -> bool:
    """Return a boolean of a file. Raises WrongValue."""
    if not isinstance(value, bool):
        raise WrongValue(gettext_lazy("true or false"))
    return value


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST_SECONDS:
        raise misread(text, _("A number of seconds, more than 0 and at most {limit}.", limit=f"{LONGEST_SECONDS:g}"))
    return seconds


def _load_seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WrongValue(gettext_lazy("a number of seconds"))
    if not 0 < value <= LONGEST_SECONDS:
        raise WrongValue(gettext_lazy("more than 0 and at most {most} seconds", most=f"{LONGEST_SECONDS:g}"))
    return float(value)


def _or_default(kind: ValueKind, none: str = "") -> ValueKind:
    """Return a kind with None for no value: empty or `default`."""
    return dataclasses.replace(
        kind, parse=lambda text: None if text.lower() in ("", DEFAULT) else kind.parse(text), none=none, nullable=True
    )


def number_of(least: int, most: int) -> ValueKind:
    """Return the kind of whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        if not (re.fullmatch(r"[0-9]{1,9}", text) and least <= int(text) <= most):
            raise misread(text, _("A whole number from {least} to {most}.", least=least, most=most))
        return int(text)

    def load(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise WrongValue(gettext_lazy("a whole number from {least} to {most}", least=least, most=most))
        return value

    return ValueKind(parse, load, int, "NUMBER")


def choice_of(choices: type[StrEnum], *, none: str = "") -> ValueKind:
    """Return the kind of an enum's values. Empty is the first one; with `none` that word, or nothing, is None."""
    words = tuple(choice.value for choice in choices)

    def parse(text: str) -> StrEnum | None:
        if none and text.lower() in ("", none):
            return None
        return choices(choose((text or words[0]).lower(), words))

    def load(value: Any) -> StrEnum:
        if value not in words:
            raise WrongValue(_alternatives(words))
        return choices(value)

    shown = (none, *words) if none else words
    return ValueKind(parse, load, str, choices=shown, none=none, nullable=bool(none), field=FieldKind.CHOICE)


def _alternatives(words: tuple[str, ...]) -> str:
    *others, last = words
    return gettext_lazy("{choices} or {last_choice}", choices=", ".join(others), last_choice=last)


def _lines_by_tool(text: str, error: str) -> Iterator[tuple[str, str]]:
    """Yield pairs of tool and value, one per line; `none` has none."""
    for line in filter(None, map(str.strip, "" if text.lower() == "none" else text.splitlines())):
        tool, _equals, value = line.rpartition("=")
        if not tool.strip():
            raise ValueError(error)
        yield tool.strip(), value.strip()


def load_object(value: Any, wanted: str) -> dict[str, Any]:
    """Return an object of a file, empty if it is missing. Raises WrongValue, which says what is wanted."""
    if not isinstance(value or {}, dict):
        raise WrongValue(wanted)
    return value or {}


def by_tool(kind: ValueKind, wanted: str, metavar: str, error: str) -> ValueKind:
    """Return the kind of an object of values by tool. `error` is the sentence for a line without a tool."""

    def parse(text: str) -> dict[str, Any]:
        return {tool: kind.parse(value) for tool, value in _lines_by_tool(text, error)}

    def load(value: Any) -> dict[str, Any]:
        loaded = {}
        for tool, item in load_object(value, wanted).items():
            try:
                loaded[tool] = kind.load(item)
            except WrongValue as wrong:
                raise WrongValue(wrong.wanted, f".{tool}") from None
        return loaded

    item: Any = kind.json
    return ValueKind(parse, load, dict[str, item], metavar, by_tool=True, field=FieldKind.LINES, longest=2000)


def _choice_by_tool(choices: type[StrEnum], metavar: str, example: str) -> ValueKind:
    words = tuple(choice.value for choice in choices)
    wanted = gettext_lazy("an object of tools and {choices}", choices=_alternatives(words))
    return by_tool(choice_of(choices), wanted, metavar, _named_tool(example))


def _named_tool(example: str) -> str:
    return gettext_lazy("Such as {example}, with the name that the server gives the tool. Or: none.", example=example)


def _parse_previews(text: str) -> dict[str, str]:
    lines = (line.rpartition("=") for line in ("" if text.lower() == "none" else text).splitlines())
    return {tool.strip() or "*": preview.strip() for tool, _equals, preview in lines if preview.strip()}


def _load_previews(value: Any) -> dict[str, str]:
    tools = {"*": value} if isinstance(value, str) and value else value or {}
    if not (isinstance(tools, dict) and all(isinstance(tool, str) and tool for tool in tools.values())):
        raise WrongValue(gettext_lazy("the name of a tool, or an object of tools and such names"))
    return tools


def _parse_recipients(text: str) -> dict[str, tuple[str, ...]]:
    recipients = {}
    for tool, value in _lines_by_tool(text, _named_tool("send=to,cc")):
        recipients[tool] = tuple(filter(None, map(str.strip, value.split(","))))
        if not recipients[tool]:
            raise ValueError(_("Which arguments of {tool}? Such as send=to,cc.", tool=tool))
    return recipients


def _load_recipients(value: Any) -> dict[str, tuple[str, ...]]:
    tools = load_object(value, gettext_lazy("an object of tools and lists of their arguments"))
    for tool, item in tools.items():
        if not (isinstance(item, list) and item and all(isinstance(text, str) and text for text in item)):
            raise WrongValue(gettext_lazy('a list of arguments, such as ["to", "cc"]'), f".{tool}")
    return {tool: tuple(item) for tool, item in tools.items()}


def _parse_group(text: str) -> str:
    if text.lower() in ("", "none"):
        return ""
    if not _GROUP.fullmatch(text):
        raise ValueError(_("Lower-case letters, digits and dashes, at most {limit}. Or: none.", limit=_LONGEST_GROUP))
    return text


def _load_group(value: Any) -> str:
    if (name := load_text(value)) and not _GROUP.fullmatch(name):
        raise WrongValue(gettext_lazy("1 to 40 lower-case letters, digits and dashes"))
    return name


_INSTRUCTION = text_of(_LONGEST_INSTRUCTION, field=FieldKind.LINES)
_SECONDS = ValueKind(_parse_seconds, _load_seconds, float, "SECONDS")
_SECONDS_OR_DEFAULT = _or_default(_SECONDS)
_SWITCH = ValueKind(_parse_switch, load_switch, bool, choices=(YES, NO), field=FieldKind.SWITCH)
_SWITCH_OR_DEFAULT = dataclasses.replace(
    _or_default(_SWITCH, DEFAULT), choices=(DEFAULT, YES, NO), field=FieldKind.CHOICE
)
_TOOL_SECONDS = by_tool(
    _SECONDS,
    gettext_lazy("an object of seconds"),
    "TOOL=SECONDS",
    gettext_lazy("Such as export=120: a tool by the name its server gives it, and seconds. Or: none."),
)
_PREVIEWS = ValueKind(
    _parse_previews, _load_previews, dict[str, str], "[TOOL=]TOOL", by_tool=True, field=FieldKind.LINES, longest=2000
)
_RECIPIENTS = ValueKind(
    _parse_recipients,
    _load_recipients,
    dict[str, list[str]],
    "TOOL=ARGUMENT,...",
    by_tool=True,
    field=FieldKind.LINES,
    longest=2000,
)
_GROUP_NAME = ValueKind(_parse_group, _load_group, str, "GROUP", nullable=True, longest=_LONGEST_GROUP)
_VERSION = dataclasses.replace(choice_of(Protocol), metavar="VERSION")


# -------------------- the settings, in the order of the options: on platforms with a limit, the last ones are left out

# fmt: off
TRUSTED = Setting(
    "trusted", _SWITCH, "whether its word counts on which tools only read",
    "believe the server's hints about its tools ([effects](servers.md#options)); otherwise no hint lowers "
    "anything: each call is decided like a destructive one, and its card says that it may read or write",
    label="Trusted",
)
AUTO_CONNECT = Setting(
    "auto_connect", _SWITCH, "connect at the start",
    "connect at the start, see `MCP_CONNECT_POLICY`",
    label="Connect at the start", hint="no: on first use", imported=True,
)
SETTINGS = (
    TRUSTED,
    Setting(
        "system_instruction", _INSTRUCTION, "description for the model",
        "an instruction for the model, in the system prompt",
        label="System instruction", form=1, fact="system instruction", described=str,
    ),
    Setting(
        "response_instruction", _INSTRUCTION, "text for the model after a tool call",
        "an instruction for the model, once in a turn, after this server's tools have run",
        label="Response instruction", form=1, fact="response instruction",
        described=str,
    ),
    Setting(
        "connect_timeout", _SECONDS_OR_DEFAULT, "seconds to connect",
        "seconds to connect and list the tools, at most 3600; default 10 over HTTP, 30 for a program, 60 for its "
        "first start",
        label="Seconds to connect", hint="empty: the usual time", form=2,
        usual="`10`, `30`, `60`", imported=True,
    ),
    Setting(
        "tool_timeout", _SECONDS, "seconds a call may take",
        "seconds of silence during one call, at most 3600; progress restarts them",
        label="Seconds a call may take", form=2, fact="time limits", imported=True,
    ),
    Setting(
        "tool_timeouts", _TOOL_SECONDS, "the same for one tool, or none",
        '`tool_timeout` of single tools, by the names the server gives them: `{"export": 120}`',
        option="tool-limit",
    ),
    AUTO_CONNECT,
    Setting(
        "use_instructions", _SWITCH, "give the model the server's own instructions",
        "give the model the server's own instructions, [once they are reviewed](server-repair.md#review)",
        label="Instructions of the server",
        hint="yes: the model gets them, once they are reviewed", form=1,
        fact="instructions of the server",
    ),
    Setting(
        "auto_context_tool", text_of(255, "TOOL"), "a tool that is asked every question first",
        "a tool with one text argument that is called with every message before the model; no rule may deny it or "
        "ask",
        label="Context tool", form=1, fact="auto context tool",
    ),
    Setting(
        "words", choice_of(Words, none=BY_HINTS), "authors of the text that its tools return",
        "the origin of the text its tools return: `own`, `shared` or `strangers` ([words of "
        "others](policies.md#words-of-others))",
        label="Words", form=3, usual="by the hints",
    ),
    Setting(
        "sends", choice_of(Sends, none=BY_HINTS), "readers of the data that its calls send",
        "the readers of the arguments of its calls: `closed`, `team` or `world`",
        label="Sends", form=3, usual="by the hints",
    ),
    Setting(
        "tool_words", _choice_by_tool(Words, "TOOL=WORDS", "inbox=strangers"),
        "the first for one tool, or none",
        '`words` of single tools, by the names the server gives them: `{"send": "own"}`',
        label="Words of single tools", hint="TOOL=strangers, one a line", form=3,
    ),
    Setting(
        "tool_sends", _choice_by_tool(Sends, "TOOL=SENDS", "send=world"),
        "the second for one tool, or none",
        '`sends` of single tools: `{"send": "world"}`',
        label="Sends of single tools", hint="TOOL=world, one a line", form=3,
    ),
    Setting(
        "tool_recipients", _RECIPIENTS, "the arguments of a tool that name the recipients, or none",
        'the arguments that name the recipients, by tool: `{"send": ["to", "cc"]}`',
        label="Recipients",
        hint="TOOL=ARGUMENT,ARGUMENT: the arguments that name who gets it, one tool a line", form=3,
    ),
    Setting(
        "preview", _PREVIEWS, "a tool that shows on the card what a call is about, or none",
        'tools that [show on a card](approvals.md#previews) what a call is about: `{"delete_note": "get_note"}`, '
        'or one name for all tools',
        label="Previews",
        hint="TOOL=TOOL, one a line: the second shows on the card what a call of the first is about",
        form=2, fact="previews",
    ),
    Setting(
        "list_timeout", _SECONDS, "seconds to list its tools again",
        "seconds to list the tools of a connected server again, at most 3600",
        imported=True,
    ),
    Setting(
        "tool_timeout_max", _SECONDS, "seconds of a call that reports progress",
        "seconds for one call in total; if `tool_timeout` is longer, that one",
        imported=True,
    ),
    Setting(
        "reconnect", _SWITCH_OR_DEFAULT, "connect again by itself after a loss",
        "connect again by itself after a failure or a loss",
        label="Reconnect", form=4, fact="reconnects",
        described=lambda value: _("yes") if value else _("no"), usual="`MCP_RECONNECTION_ENABLED`", imported=True,
    ),
    Setting(
        "connect_retries", number_of(0, 10), "further attempts within the time to connect",
        "further attempts within one connect, at most 10, within `connect_timeout`; the first after a tenth of a "
        "second",
        label="Further attempts", hint="within the time to connect", form=4,
        fact="further attempts",
        described=lambda count: _("{count} within the time to connect", count=count), imported=True,
    ),
    Setting(
        "output_limit", number_of(1_000, 200_000), "characters of a result that the model gets",
        "characters of a result that the model gets, 1000 to 200000; people get the rest as a file",
        label="Output limit", form=5, fact="output limit",
        described=lambda count: _("{count} characters", count=format_number(count)), imported=True,
    ),
    Setting(
        "fallback_group", _GROUP_NAME, "servers that stand in for each other, or none",
        "servers of one group [stand in for each other](server-repair.md#fallback-groups-and-names-of-tools)",
        label="Fallback group", hint="servers that stand in for each other", form=5,
        fact="fallback group", imported=True,
    ),
    Setting(
        "fallback_order", number_of(1, 99), "its place in the group, 1 is asked first",
        "its place in the group, 1 to 99; servers with the same place go by name",
        label="Place in the group", hint="1 is asked first", form=5, imported=True,
    ),
    Setting(
        "tool_names", choice_of(ToolNaming), "names of its tools for the model",
        "the model's [names for its tools](server-repair.md#fallback-groups-and-names-of-tools): `prefixed` "
        "(`server__tool`) or `plain`",
        label="Names of tools", form=5, fact="tool names", imported=True,
    ),
    Setting(
        "sessions", choice_of(SessionScope), "users who share the server's session",
        "the conversations that share the server's [state between calls](server-repair.md#sessions): `shared` (all), "
        "`conversation` or `person`",
        label="Sessions", hint="who shares what the server keeps, such as open pages",
        form=4, imported=True,
    ),
    Setting(
        "max_sessions", number_of(1, 100), "how many sessions may be open, if not all share one",
        "open sessions of one process, at most 100, if not all share one",
        label="Open sessions", hint="at most, if not all share one", form=4,
        imported=True,
    ),
    Setting(
        "session_idle_timeout", _SECONDS_OR_DEFAULT, "seconds until an unused one ends, or default",
        "seconds until an unused session of a conversation or user ends, at most 3600",
        label="Seconds until an unused session ends", hint="empty: the usual time",
        form=4, usual="`MCP_SESSION_IDLE_TIMEOUT`", imported=True,
    ),
    Setting(
        "protocol", _VERSION, "the version of MCP to speak, or auto",
        "the [version of MCP](servers.md#version-of-mcp) to speak, such as `2025-11-25`; `auto` for the newest "
        "that both sides know. Not for `jsonrpc_http`",
        label="Version of MCP",
        hint="another than auto for a server that works in an older one only", form=5,
        fact="protocol, as set", imported=True,
    ),
)
# fmt: on
