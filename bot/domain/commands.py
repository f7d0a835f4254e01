"""Commands as data, the same for every platform: what can be said, what was said, and what comes back.

A platform turns its own way of typing, clicking and filling in into an Invocation or a Submission, and draws the Reply
or the Form. It may register, complete and explain commands by their Verbs; there is no second description of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bot.domain.conversations import ConversationKey, InboundMessage, Member

FIELDS_A_STEP = 5
"""The most fields of one form, which is Discord's limit for a modal; longer forms come in steps."""
LONGEST_FORM_ID = 100
"""A form's id fits where a platform carries it along (Discord's `custom_id`)."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """A typed command such as `/mcp tools weather`: `words` follow the command's name.

    `hidden_input` says that a secret can be asked for here without an echo, and nobody else would see it: true at the
    operator's own terminal alone.
    """

    command: str
    words: tuple[str, ...]
    member: Member
    conversation: ConversationKey
    hidden_input: bool = False


@dataclass(frozen=True, slots=True)
class FormSubmission:
    """A submitted form: its id, the carried fields, and the values by field name."""

    form: str
    fields: Mapping[str, str]
    member: Member
    conversation: ConversationKey
    hidden_input: bool = False


# What comes back


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under headings, every cell plain text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class ActionStyle(StrEnum):
    """Style of a button."""

    PLAIN = "plain"
    PRIMARY = "primary"
    DANGER = "danger"


@dataclass(frozen=True, slots=True)
class ReplyAction:
    """Something to do next: a button, or a line to type. `words` are the whole command with its name first.

    Where `confirm` is not empty, the person has to type that text first; what they typed goes along as the option
    `--confirm`, and whoever answers the command checks it.
    """

    label: str
    words: tuple[str, ...]
    tone: ActionStyle = ActionStyle.PLAIN
    confirm: str = ""


@dataclass(frozen=True, slots=True)
class PageInfo:
    """This is one page of several. `words` ask for it again; the option `--page N` behind them for another one."""

    number: int
    of: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplyFile:
    """A text to keep: a file to upload, or to be written out as it stands."""

    name: str
    text: str
    mime_type: str = "text/markdown"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer to a command; a later one replaces an earlier one. `text` is Markdown of our own making,
    whatever came from elsewhere is in the table's cells or in `details`, to be drawn as it stands.

    A `private` one is for the person who asked alone. A `message` is to be handed to the engine as theirs, and its
    turn followed like any other. `link` is an https address that the reply is about and has in its text as well, for
    platforms that have buttons for that. `data` is what it says as values of JSON, for programs.
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
    """One thing to fill in. `value` is what it holds already, `error` what was wrong with that. `longest` is in
    characters.
    """

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
    """A question with fields, answered by a Submission of the same id.

    The id says what is being filled in, so that any process can take the answer. `carried` are fields of earlier steps
    and go back with the answer. `intro` is plain text; `instead` is how to say the same on one line, for where nobody
    can fill in a form.
    """

    id: str
    title: str
    fields: tuple[Field, ...]
    submit: str = "Save"
    intro: str = ""
    carried: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""


# What can be said


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


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a verb. `metavar` stands for its value in a usage line; a `repeated` one may be given more than
    once, and takes what is left of the line where it stands in its place. The values of an `opaque` one may look like
    tokens: they are ids that a service has given out, and no secret.
    """

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
        """`NAME`, `[--url URL]`, `[KEY=VALUE…]`."""
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
class Verb:
    """One thing a command can do. `path` is `list` or `policy set`: two words at most, the first of two is a group.
    `aliases` are other paths people try.
    """

    path: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    who: RequiredRole = RequiredRole.ADMINS
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """The verb and its parameters on one line, without the command's name."""
        return " ".join((self.path, *(parameter.usage for parameter in self.parameters)))

    @property
    def places(self) -> tuple[Parameter, ...]:
        """The parameters that have a place, in order."""
        return tuple(each for each in self.parameters if each.shape is ParameterKind.PLACE)
