"""Commands as data, the same for every platform: verbs, invocations, forms and replies.

A platform turns its input into an Invocation or a FormSubmission, and displays the Reply or the Form. Platforms
register, complete and explain commands by their Verbs only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bot.domain.conversations import ConversationKey, InboundMessage, Member
from bot.i18n import LazyFields, gettext_lazy

FIELDS_A_STEP = 5
"""The most fields of one form, which is Discord's limit for a modal; longer forms come in steps."""


WHOLE_TEXT = frozenset({"ask"})
"""Commands that take the text behind their name as one word, unsplit."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """A typed command such as `/mcp tools weather`. `words` follow the command's name.

    `hidden_input` is True if a secret can be typed here unseen, without an echo: at the operator's own terminal, and on
    the bot's own pages. `on_page` is True on these pages, which show a form of any length at once. They are no
    terminal of the bot's machine.
    """

    command: str
    words: tuple[str, ...]
    member: Member
    conversation: ConversationKey
    hidden_input: bool = False
    on_page: bool = False


@dataclass(frozen=True, slots=True)
class FormSubmission:
    """A submitted form: its id, the carried fields, and the values by field name."""

    form: str
    fields: Mapping[str, str]
    member: Member
    conversation: ConversationKey
    hidden_input: bool = False
    on_page: bool = False


# Replies


@dataclass(frozen=True, slots=True)
class RowChoice:
    """Setting of a row, for places that show a choice in a table. `choices` are the values, each with the command that
    sets it, its name first. `value` is the present one, shown in this column. `note` says what else decides.
    """

    label: str
    choices: tuple[tuple[str, tuple[str, ...]], ...]
    value: str
    column: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table(LazyFields):
    """Rows under headings. Every cell is plain text. Headings are lazy texts, which programs get in English. The others
    may be empty, or have one item for each row: `opens` the command that shows more of it, its name first; `settings`
    what can be set in it; `bars` the number that a picture of the table compares.
    """

    TEXTS = ("headings",)
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    opens: tuple[tuple[str, ...], ...] = ()
    settings: tuple[RowChoice, ...] = ()
    bars: tuple[float, ...] = ()


class ActionStyle(StrEnum):
    """Style of a button."""

    PLAIN = "plain"
    PRIMARY = "primary"
    DANGER = "danger"


@dataclass(frozen=True, slots=True)
class ReplyAction:
    """Suggested next command: a button, or a line to type. `words` are the whole command, its name first.

    If `confirm` is not empty, the user has to type that text first. The typed text is passed as the option `--confirm`,
    which the command checks. If `question` is not empty, the operator's own terminal asks it, and yes runs the words.
    """

    label: str
    words: tuple[str, ...]
    tone: ActionStyle = ActionStyle.PLAIN
    confirm: str = ""
    question: str = ""


@dataclass(frozen=True, slots=True)
class PageInfo:
    """Page number of a reply with several pages. `words` request the same page; with the option `--page N` added,
    another one.
    """

    number: int
    of: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplyFile:
    """Text file to upload, or to write out unchanged."""

    name: str
    text: str
    mime_type: str = "text/markdown"


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply to a command; a later one replaces an earlier one. `text` is the bot's own Markdown. External text is in
    the table's cells or in `details`, and is displayed literally.

    A `private` reply is for its user only. A `message` is passed to the engine as theirs, and its turn is
    displayed. `link` is an https address that `text` contains too, for platforms with link buttons. `data` is the
    content as JSON values, for programs. The names of `details` are lazy texts, which programs get in English.
    """

    text: str
    table: Table | None = None
    details: tuple[tuple[str, str], ...] = ()
    failed: bool = False
    actions: tuple[ReplyAction, ...] = ()
    page: PageInfo | None = None
    document: ReplyFile | None = None
    message: InboundMessage | None = None
    private: bool = True
    link: str = ""
    data: Mapping[str, Any] | None = None


class FieldKind(StrEnum):
    """Kind of a form field. A switch is `yes` or `no`. A secret is never shown, prefilled or stored."""

    TEXT = "text"
    LINES = "lines"
    CHOICE = "choice"
    SWITCH = "switch"
    SECRET = "secret"  # noqa: S105 - a kind of field


@dataclass(frozen=True, slots=True)
class Field:
    """Field of a form. `value` is the initial value, `error` the error of that value. `longest` is in characters."""

    name: str
    label: str
    kind: FieldKind = FieldKind.TEXT
    hint: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()
    value: str = ""
    error: str = ""
    longest: int = 2000


@dataclass(frozen=True, slots=True)
class Form:
    """Form, answered by a FormSubmission with the same id.

    The id names the purpose, so that any process can take the answer. `carried` are the fields of earlier steps; they
    are returned with the answer. `intro` is plain text. `instead` is the equivalent command line, for places without
    forms.
    """

    id: str
    title: str
    fields: tuple[Field, ...]
    submit: str = gettext_lazy("Save")
    intro: str = ""
    carried: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""


# Verbs


class RequiredRole(StrEnum):
    """Role that a command requires."""

    EVERYONE = "everyone"
    ADMINS = "admins"
    OPERATOR = "operator"


class ParameterKind(StrEnum):
    """Kind of a parameter: positional, `--name` with a value, or `--name` alone."""

    PLACE = "place"
    OPTION = "option"
    FLAG = "flag"


class CompletionSource(StrEnum):
    """Source of completions for a parameter, beside its choices."""

    NOTHING = "nothing"
    SERVERS = "servers"
    TOOLS = "tools"
    RESOURCES = "resources"
    PROMPTS = "prompts"
    PROFILES = "profiles"
    AGENTS = "agents"
    TIME_ZONES = "time-zones"


@dataclass(frozen=True, slots=True)
class Parameter(LazyFields):
    """Parameter of a verb. `metavar` is its placeholder in a usage line. A `repeated` parameter may occur several
    times; a positional one takes the rest of the line. The values of an `opaque` one may look like tokens, but are ids
    from a service and not secret.
    """

    TEXTS = ("hint",)
    name: str
    hint: str
    shape: ParameterKind = ParameterKind.PLACE
    required: bool = False
    repeated: bool = False
    choices: tuple[str, ...] = ()
    completes: CompletionSource = CompletionSource.NOTHING
    metavar: str = ""
    opaque: bool = False

    @property
    def usage(self) -> str:
        """Text of the parameter in a usage line: `NAME`, `[--url URL]`, `[KEY=VALUE…]`."""
        value = self.metavar or "|".join(self.choices) or self.name.upper()
        match self.shape:
            case ParameterKind.PLACE:
                text = value
            case ParameterKind.OPTION:
                text = f"--{self.name} {value}"
            case ParameterKind.FLAG:
                text = f"--{self.name}"
        text = f"{text}…" if self.repeated else text
        return text if self.required else f"[{text}]"


@dataclass(frozen=True, slots=True)
class Verb(LazyFields):
    """Subcommand. `path` is `list` or `policy set`: at most two words, of which the first is a group. It is empty for
    the only verb of a command, such as `/agents`. `aliases` are alternative paths. `command_line` names the options
    that take a command line after `--`: its program, and each of its arguments. A verb that `reads` changes nothing, so
    that a link may run it.
    """

    TEXTS = ("summary",)
    path: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    who: RequiredRole = RequiredRole.ADMINS
    aliases: tuple[str, ...] = ()
    command_line: tuple[str, str] | None = None
    reads: bool = False

    @property
    def usage(self) -> str:
        """The verb and its parameters on one line, without the command's name."""
        trailing = ("[-- PROGRAM ARGUMENT…]",) if self.command_line else ()
        return " ".join((*self.path.split(), *(parameter.usage for parameter in self.parameters), *trailing))

    @property
    def places(self) -> tuple[Parameter, ...]:
        """The positional parameters, in order."""
        return tuple(parameter for parameter in self.parameters if parameter.shape is ParameterKind.PLACE)


def _joined(details: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return details by name, with those of one name as lines."""
    joined: dict[str, str] = {}
    for name, text in details:
        joined[name] = f"{joined[name]}\n{text}" if name in joined else text
    return joined


def reply_json(reply: Reply | Form) -> dict[str, Any]:
    """Return a reply as JSON, for administrative programs. The shape is stable: fields are added, never renamed.

    A reply has `text`, `failed`, `rows` (one object a row, by the table's headings; null without a table), `details`
    (an object), `actions` (label and command line), `page` (number, of; null if it is the only one) and `data` (null,
    or the content as values for programs). A form has `form`, `fields` (name, label, error) and `instead`. Text is not
    sanitized, because JSON escapes it.
    """
    match reply:
        case Form():
            return {
                "form": reply.title,
                "failed": True,
                "fields": [{"name": field.name, "label": field.label, "error": field.error} for field in reply.fields],
                "instead": reply.instead,
            }
        case Reply():
            table = reply.table
            headings = [name or f"column{number}" for number, name in enumerate(table.headings, 1)] if table else []
            return {
                "text": reply.text,
                "failed": reply.failed,
                "rows": [dict(zip(headings, row, strict=True)) for row in table.rows] if table else None,
                "details": _joined(reply.details),
                "actions": [{"label": action.label, "command": " ".join(action.words)} for action in reply.actions],
                "page": None if reply.page is None else {"number": reply.page.number, "of": reply.page.of},
                "data": None if reply.data is None else dict(reply.data),
            }
