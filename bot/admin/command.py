"""One command and its verbs: rejections, parsing, lookup, permission check and error replies.

Each verb is described once (`bot.domain.commands.Verb`); parsing, help, usage, completion and forms use that
description. Arguments are positional ones, `--name value`, `--name=value` and flags.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from bot.admin.dependencies import CommandDependencies, Rights
from bot.admin.servers.token_detection import WARNING, known_token, looks_like_token, plain_warning
from bot.admin.text_format import (
    MOMENT,
    POLICY_CHOICES,
    code,
    did_you_mean,
    error_reply,
    known_facts,
    parse_time,
    sentences,
)
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import (
    CompletionSource,
    Field,
    FieldKind,
    Form,
    FormSubmission,
    Invocation,
    Parameter,
    ParameterKind,
    Reply,
    RequiredRole,
    Verb,
)
from bot.domain.conversations import Author, ConversationKey, Member
from bot.errors import CountersignError
from bot.i18n import _, gettext_lazy, make_lazy


def option(
    name: str,
    hint: str,
    *,
    metavar: str = "",
    repeated: bool = False,
    choices: tuple[str, ...] = (),
    completes: CompletionSource = CompletionSource.NOTHING,
    opaque: bool = False,
) -> Parameter:
    """Return the parameter of an option with a value."""
    shape = ParameterKind.OPTION
    return Parameter(name, hint, shape, False, repeated, choices, completes, metavar, opaque)


def text_field(name: str, label: str, hint: str = "", longest: int = 2000) -> Field:
    """Return an optional field of one line."""
    return Field(name, make_lazy(label), hint=make_lazy(hint), longest=longest)


def lines_field(name: str, label: str, hint: str, longest: int = 2000) -> Field:
    """Return an optional field of several lines."""
    return Field(name, make_lazy(label), FieldKind.LINES, make_lazy(hint), longest=longest)


def choice_field(name: str, label: str, hint: str, choices: tuple[str, ...]) -> Field:
    """Return a field with the first choice as its initial value."""
    label, hint = make_lazy((label, hint))
    return Field(name, label, FieldKind.CHOICE, hint, choices=choices, value=choices[0])


def filled_field(field: Field, value: str, error: str) -> Field:
    """Return a field with its value and error, in the reader's language."""
    return dataclasses.replace(field, label=str(field.label), hint=str(field.hint), value=value, error=str(error))


SERVER = Parameter("server", "its name, id or title", required=True, completes=CompletionSource.SERVERS, metavar="NAME")
A_SERVER = Parameter("server", "one server alone", completes=CompletionSource.SERVERS, metavar="NAME")
TOOL = Parameter("tool", "the server's own name for the tool", required=True, completes=CompletionSource.TOOLS)
A_TOOL = Parameter(
    "tool", "one tool alone; without it, all that have no word of their own", completes=CompletionSource.TOOLS
)
CONFIRM = option("confirm", "the name once more, so that nothing goes by accident", metavar="NAME")
VERSION = option("version", "only if it is unchanged since this version", metavar="N")
POLICY = Parameter(
    "policy",
    "policy when the model requests it",
    required=True,
    choices=(*POLICY_CHOICES, *(policy.value for policy in ApprovalPolicy)),
    metavar="|".join(POLICY_CHOICES),
)
PAGE = option("page", "which page", metavar="N")
_EVERY_VERB = "all"
_SWITCH_WORDS = {"true": "yes", "on": "yes", "false": "no", "off": "no"}
_LONGEST_USAGE = 120
"""Characters of a usage that fit on a line or two; a longer one is shortened."""
HELP = Verb(
    "help",
    "this list",
    (Parameter("verb", "which verb, or all of them: all", repeated=True),),
    RequiredRole.EVERYONE,
    ("?",),
    reads=True,
)
SECRET_FIELD = "hidden"  # noqa: S105 - the name of a field
"""Name of the only field that takes a secret in clear text."""


class CommandRejected(Exception):
    """A rejected command. The text is Markdown of this project with cause and fix, and repeats no input."""


class NotFoundRejection(CommandRejected):
    """The named record is missing, or not visible to the user."""


class ForbiddenRejection(CommandRejected):
    """The record is visible, but only others may change it."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Parsed arguments by parameter."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values)

    def has(self, name: str) -> bool:
        """Return True if the argument was given, even if it is empty."""
        return name in self.values

    def get(self, name: str, default: str = "") -> str:
        """Return the last given value."""
        return self.values[name][-1] if self.values.get(name) else default

    def get_all(self, name: str) -> tuple[str, ...]:
        """Return all values, in order."""
        return self.values.get(name, ())

    @property
    def page(self) -> int:
        """Page number, from 1. Raises CommandRejected."""
        text = self.get("page", "1")
        if not (text.isascii() and text.isdigit() and len(text) < 7):
            raise CommandRejected(_("`--page` is a whole number."))
        return max(int(text), 1)

    def since(self, now: float) -> float | None:
        """Return the time of the option `--since`, both in epoch seconds; None without it. Raises CommandRejected."""
        return self.moment("since", now)

    def moment(self, option: str, now: float) -> float | None:
        """Return the time of an option, both in epoch seconds; None without it. Raises CommandRejected."""
        if not self.get(option):
            return None
        try:
            return parse_time(self.get(option), now)
        except (ValueError, OverflowError):
            raise CommandRejected(
                _("`--{option}` is a point in time: {formats}.", option=option, formats=MOMENT)
            ) from None


def parse_arguments(verb: Verb, words: Sequence[str], command: str) -> Arguments:
    """Parse the arguments of a verb. Raises CommandRejected."""
    return _Parser(verb, command).parse(words)


class _Parser:
    def __init__(self, verb: Verb, command: str) -> None:
        self._verb = verb
        self._command = command
        self._options = {parameter.name: parameter for parameter in verb.parameters}
        self._options.setdefault(PAGE.name, PAGE)
        self._values: dict[str, list[str]] = {}
        self._positional: list[str] = []

    def parse(self, words: Sequence[str]) -> Arguments:
        remaining = list(words)
        while remaining:
            word = remaining.pop(0)
            if word == "--" and self._verb.command_line is not None:
                self._command_line(*self._verb.command_line, remaining)
                break
            if word.startswith("--") and len(word) > 2 and not (self._takes_rest() and not self._is_own(word)):
                self._option(word[2:], remaining)
            else:
                self._positional.append(word)
        self._assign_positional()
        self._check_required()
        return Arguments({name: tuple(values) for name, values in self._values.items()})

    def _takes_rest(self) -> bool:
        """Return True if a trailing `KEY=VALUE…` has begun: it also takes options that are not the verb's, unless the
        verb has those of a program behind `--`.
        """
        places = self._verb.places
        trailing = bool(places) and places[-1].repeated and self._verb.command_line is None
        return trailing and len(self._positional) >= len(places)

    def _is_own(self, word: str) -> bool:
        name = word[2:].partition("=")[0].lower().replace("_", "-")
        return any(parameter.name == name for parameter in self._verb.parameters)

    def _command_line(self, program: str, argument: str, words: Sequence[str]) -> None:
        if program in self._values or argument in self._values:
            raise self._misuse(_("`--` and `--{option}` are the same: give one of them.", option=program))
        if not words:
            raise self._misuse(_("After `--` follow a program and its arguments."))
        self._values[program], self._values[argument] = [words[0]], [*words[1:]]

    def _assign_positional(self) -> None:
        """Assign positional arguments: first to required parameters, then to optional ones in order. A parameter that
        was given by its name takes none.
        """
        places = [place for place in self._verb.places if place.name not in self._values]
        spare = len(self._positional) - sum(place.required for place in places)
        for place in places:
            if place.repeated:
                for word in self._positional:
                    self._add_value(place, word)
                self._positional.clear()
            elif self._positional and (place.required or spare > 0):
                spare -= not place.required
                self._add_value(place, self._positional.pop(0))
        if self._positional:
            raise self._misuse(_("That is more than this takes."))

    def _option(self, text: str, remaining: list[str]) -> None:
        name, assigned, value = text.partition("=")
        parameter = self._options.get(name.lower().replace("_", "-"))
        if parameter is None:
            bad = code(name, "").replace("`", "`--", 1)
            missing = _("There is no option {option}.", option=bad) if bad else _("There is no such option.")
            raise self._misuse(missing, did_you_mean(name, self._options, "--"))
        if parameter.shape is ParameterKind.FLAG:
            if assigned:
                raise self._misuse(_("`--{option}` takes no value.", option=parameter.name))
            self._values[parameter.name] = ["yes"]
            return
        is_switch = set(parameter.choices) == {"yes", "no"}
        following = remaining[0].lower() if remaining else ""
        # A plain word is a value once all places for one argument are filled.
        filled = len(self._positional) >= sum(not place.repeated for place in self._verb.places)
        if not assigned and is_switch and not re.fullmatch(r"\w+" if filled else "yes|no", following):
            value = "yes"
        elif not assigned:
            if not remaining:
                raise self._misuse(_("`--{option}` needs a value: {hint}.", option=parameter.name, hint=parameter.hint))
            value = remaining.pop(0)
        if parameter.name in self._values and not parameter.repeated:
            raise self._misuse(_("`--{option}` is given twice.", option=parameter.name))
        self._add_value(parameter, value)

    def _add_value(self, parameter: Parameter, value: str) -> None:
        if parameter.choices and value:
            word = _SWITCH_WORDS.get(value.lower(), value) if "yes" in parameter.choices else value
            matches = [choice for choice in parameter.choices if choice.lower() == word.lower().replace("-", "_")]
            matches += [choice for choice in parameter.choices if choice.lower() == word.lower()]
            if not matches:
                shown = parameter.metavar.split("|") if "|" in parameter.metavar else parameter.choices
                choices = ", ".join(f"`{choice}`" for choice in shown)
                bad = "" if looks_like_token(value) else code(value, "")
                texts = {"parameter": _display_name(parameter), "choices": choices, "word": bad}
                raise self._misuse(
                    _("{word} is unknown: {parameter} is one of {choices}.", **texts)
                    if bad
                    else _("{parameter} is one of {choices}.", **texts),
                    did_you_mean(value, parameter.choices),
                )
            value = matches[0]
        self._values.setdefault(parameter.name, []).append(value)

    def _check_required(self) -> None:
        for parameter in self._verb.parameters:
            if parameter.required and not any(self._values.get(parameter.name, ())):
                raise self._misuse(
                    _("{parameter} is missing: {hint}.", parameter=_display_name(parameter), hint=parameter.hint)
                )

    def _misuse(self, *parts: str) -> CommandRejected:
        usage = f"/{self._command} {self._verb.usage}".rstrip()
        if len(usage) > _LONGEST_USAGE:
            places = (place.usage for place in self._verb.places)
            usage = " ".join((f"/{self._command} {self._verb.path}", *places, "[--OPTION VALUE…]"))
            parts = (*parts, _("`{command}` lists the options.", command=f"/{self._command} help {self._verb.path}"))
        return CommandRejected(sentences(*parts, _("Usage: `{line}`", line=usage)))


def _display_name(parameter: Parameter) -> str:
    if parameter.shape is ParameterKind.PLACE:
        return f"`{(not parameter.choices and parameter.metavar) or parameter.name.upper()}`"
    return f"`--{parameter.name}`"


Answers = AsyncIterator[Reply | Form]
Answer = Reply | Form | Answers
"""Result of a handler: its only reply, or an iterator over several."""


@dataclass(frozen=True, slots=True)
class VerbContext:
    """Input of a permitted verb. `hidden_input` and `on_page` are those of the `Invocation`."""

    member: Member
    conversation: ConversationKey
    hidden_input: bool = field(default=False, kw_only=True)
    on_page: bool = field(default=False, kw_only=True)

    @property
    def at_terminal(self) -> bool:
        """True at the operator's own terminal, where files are read and programs are allowed."""
        return self.hidden_input and not self.on_page

    @property
    def author(self) -> Author:
        """Author of the command or the form."""
        return self.member.author


@dataclass(frozen=True, slots=True)
class CommandContext(VerbContext):
    """A command line with parsed arguments. `words` are those behind the verb, as they were typed."""

    arguments: Arguments
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubmissionContext(VerbContext):
    """A submitted form: the state in its id, the fields, and errors of fields that were emptied because their values
    look like tokens.
    """

    state: tuple[str, ...]
    fields: Mapping[str, str]
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VerbHandler:
    """A verb with its handler. `fill` handles its forms. Arguments of a `free` verb may look random: they go to a
    server and are not stored. The words of a `raw` one are not parsed.
    """

    verb: Verb
    do: Callable[..., Any]
    fill: Callable[..., Any] | None = None
    free: bool = False
    raw: bool = False


_Method = TypeVar("_Method", bound=Callable[..., Answers | Awaitable[Answer]])
_VERB, _FORM = "countersign_verb", "countersign_form"
"""Names of what a declaration adds to a method."""


def verb(
    path: str,
    summary: str,
    parameters: tuple[Parameter, ...] = (),
    *,
    who: RequiredRole = RequiredRole.ADMINS,
    aliases: tuple[str, ...] = (),
    command_line: tuple[str, str] | None = None,
    reads: bool = False,
    free: bool = False,
    raw: bool = False,
) -> Callable[[_Method], _Method]:
    """Declare a method of `Verbs` as the handler of a verb: one that returns its reply, or yields several."""
    described = Verb(path, summary, parameters, who, aliases, command_line, reads)

    def declare(method: _Method) -> _Method:
        setattr(method, _VERB, VerbHandler(described, method, free=free, raw=raw))
        return method

    return declare


def form_of(path: str) -> Callable[[_Method], _Method]:
    """Declare a method of `Verbs` as the handler of the forms of a verb."""

    def declare(method: _Method) -> _Method:
        setattr(method, _FORM, path)
        return method

    return declare


class Verbs:
    """Verbs of one subject: methods declared by `verb` in the order of the help, and by `form_of`."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._dependencies = dependencies

    @classmethod
    def declared(cls) -> tuple[VerbHandler, ...]:
        """Return the verbs, with handlers that are not bound to an instance."""
        methods = vars(cls).values()
        forms = {getattr(method, _FORM): method for method in methods if hasattr(method, _FORM)}
        verbs: list[VerbHandler] = [getattr(method, _VERB) for method in methods if hasattr(method, _VERB)]
        return tuple(dataclasses.replace(each, fill=forms.get(each.verb.path)) for each in verbs)

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        return tuple(
            dataclasses.replace(each, do=partial(each.do, self), fill=each.fill and partial(each.fill, self))
            for each in self.declared()
        )


class Command:
    """`/name VERB …`, or `/name …` with one verb of an empty path. `objection` returns the reason why only help is
    available; `default` is the verb without words. With `topics`, the help has one line for each, not one for each
    verb: its name, and the first words of its verbs.
    """

    def __init__(
        self,
        name: str,
        about: str,
        handlers: Sequence[VerbHandler],
        rights: Rights,
        *,
        default: str = "help",
        objection: Callable[[], str] = lambda: "",
        topics: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.name = name
        self.about = make_lazy(about)
        self._rights = rights
        self._objection = objection
        self._default = default
        self._topics = topics or {}
        is_single = all(not handler.verb.path for handler in handlers)
        listed = handlers if is_single else (*handlers, VerbHandler(HELP, self._help))
        self._handlers = {handler.verb.path: handler for handler in listed}
        self._paths = {
            path: handler for handler in self._handlers.values() for path in (handler.verb.path, *handler.verb.aliases)
        }

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """All verbs in the order of the help."""
        return tuple(handler.verb for handler in self._handlers.values())

    def resolve_verb(self, words: Sequence[str]) -> tuple[Verb, Sequence[str]] | None:
        """Return the verb at the start of the words, and the remaining words; None if there is none."""
        match = self._find_handler(words)
        return None if match is None else (match[0].verb, match[1])

    async def invoke(self, invocation: Invocation) -> Answers:
        """Run a command line."""
        try:
            handler, words = self._get_handler(invocation.words)
            self._check_access(handler, invocation.member)
            arguments = self._parse(handler, words)
            context = CommandContext(
                invocation.member,
                invocation.conversation,
                arguments,
                tuple(words),
                hidden_input=invocation.hidden_input,
                on_page=invocation.on_page,
            )
            async for answer in _answers(handler.do(context)):
                yield answer
        except CommandRejected as rejection:
            yield error_reply(sentences(str(rejection), self._nearest_of_group(invocation.words)))
        except CountersignError as error:
            yield failure_reply(error)

    async def submit(self, submission: FormSubmission) -> Answers:
        """Handle a submitted form. Values that look like tokens are removed, except from the secret field, which only a
        hidden prompt has.
        """
        path, *state = submission.form.removeprefix(f"{self.name} ").split(":")
        try:
            fill = self._form_handler(path, submission.member)
            context = SubmissionContext(
                submission.member,
                submission.conversation,
                tuple(state),
                submission.fields,
                hidden_input=submission.hidden_input,
                on_page=submission.on_page,
            )
            handler = self._handlers[path]
            fields = submission.fields if handler.free else _opaque_fields(handler.verb)
            async for answer in _answers(fill(_without_tokens(context, fields))):
                yield answer
        except CommandRejected as rejection:
            yield error_reply(str(rejection))
        except CountersignError as error:
            yield failure_reply(error)

    def _parse(self, handler: VerbHandler, words: Sequence[str]) -> Arguments:
        opaque = {f"--{name.replace('_', '-')}" for name in _opaque_fields(handler.verb)}
        for before, word in zip(("", *words), words, strict=False):
            free = handler.free or before in opaque or word.partition("=")[0] in opaque
            if known_token(word) if free else looks_like_token(word):
                raise CommandRejected(WARNING)
        return Arguments() if handler.raw else parse_arguments(handler.verb, words, self.name)

    def _form_handler(self, path: str, member: Member) -> Callable[..., Any]:
        handler = self._handlers.get(path)
        if handler is None or handler.fill is None:
            raise CommandRejected(_("This form is no longer open. Start again with the command."))
        self._check_access(handler, member)
        return handler.fill

    def _get_handler(self, words: Sequence[str]) -> tuple[VerbHandler, Sequence[str]]:
        match = self._find_handler(words)
        if match is None:
            hint = did_you_mean(" ".join(words[:2]), self._paths, f"/{self.name} ")
            hint = hint or did_you_mean(words[0], self._paths, f"/{self.name} ")
            raise CommandRejected(
                sentences(
                    _("`/{command}` knows no such verb.", command=self.name),
                    hint,
                    _("`/{command} help` lists them.", command=self.name),
                )
            )
        return match

    def _nearest_of_group(self, words: Sequence[str]) -> str:
        """Return a suggestion for a misspelt second word of a verb, which counts as an argument of the group."""
        group, second = (word.lower() for word in (*words, "", "")[:2])
        seconds = {path.partition(" ")[2] for path in self._paths if path.startswith(f"{group} ")}
        return "" if second in seconds else did_you_mean(second, seconds, f"/{self.name} {group} ")

    def _find_handler(self, words: Sequence[str]) -> tuple[VerbHandler, Sequence[str]] | None:
        default = self._handlers[self._default]
        has_options = any(parameter.shape is ParameterKind.OPTION for parameter in default.verb.parameters)
        if not words or not default.verb.path or (has_options and words[0].startswith("--")):
            return default, words
        for length in (2, 1):
            handler = self._paths.get(" ".join(words[:length]).lower())
            if handler is not None and len(words) >= length:
                return handler, words[length:]
        return None

    def _check_access(self, handler: VerbHandler, member: Member) -> None:
        """Check the rights of a member. All permission checks are here."""
        verb = handler.verb
        objection = self._objection()
        if objection and verb is not HELP:
            raise CommandRejected(objection)
        if not is_allowed(verb, member, self._rights):
            everyone = ", ".join(
                f"`/{self.name} {other.path}`" for other in self.verbs if other.who is RequiredRole.EVERYONE
            )
            required = _("the operator") if verb.who is RequiredRole.OPERATOR else self._rights.who
            raise CommandRejected(_("Only {who} can do this. You can use {commands}.", who=required, commands=everyone))

    async def _help(self, request: CommandContext) -> Answers:
        wanted = request.arguments.get_all("verb")
        permitted = [verb for verb in self.verbs if is_allowed(verb, request.member, self._rights)]
        # A single word may begin verbs of two.
        if group := [verb for verb in permitted if len(wanted) == 1 and verb.path.startswith(f"{wanted[0].lower()} ")]:
            yield Reply(_("`/{command}`:", command=f"{self.name} {wanted[0].lower()}"), details=self._lines(group))
            return
        if wanted and wanted != (_EVERY_VERB,):
            verb = self._get_handler(wanted)[0].verb
            facts: list[tuple[str, str]] = [(gettext_lazy("usage"), f"/{self.name} {verb.usage}")]
            facts += [(parameter.usage.strip("[]"), parameter.hint) for parameter in verb.parameters]
            facts += [(gettext_lazy("also"), ", ".join(verb.aliases))] if verb.aliases else []
            command = f"/{self.name} {verb.path}"
            yield Reply(_("`{command}`: {summary}.", command=command, summary=verb.summary), details=tuple(facts))
            return
        others = len(self.verbs) - len(permitted)
        more = _("{count} more verbs are for {who}.", count=others, who=self._rights.who) if others else ""
        if wanted or not self._topics:
            about = _("{about}. `/{command} help VERB` says more of one.", about=self.about, command=self.name)
            yield Reply(sentences(about, more), details=self._lines(permitted))
            return
        about = _(
            "{about}: `/{command} VERB`. `/{command} help VERB` says more of one, `/{command} help all` of each.",
            about=self.about,
            command=self.name,
        )
        lines = ((topic, _verbs_of_topic(words, permitted)) for topic, words in self._topics.items())
        yield Reply(sentences(about, more), details=tuple((topic, verbs) for topic, verbs in lines if verbs))

    def _lines(self, verbs: Iterable[Verb]) -> tuple[tuple[str, str], ...]:
        return tuple((f"/{self.name} {_short_usage(verb)}", verb.summary) for verb in verbs)


async def _answers(answering: Answers | Awaitable[Answer]) -> Answers:
    """Yield the only answer of a handler, or each of one that shows its progress."""
    outcome = answering if isinstance(answering, AsyncIterator) else await answering
    if isinstance(outcome, AsyncIterator):
        async for answer in outcome:
            yield answer
    else:
        yield outcome


def _verbs_of_topic(words: Sequence[str], verbs: Sequence[Verb]) -> str:
    """Return the verbs with these first words: `list, show, policy set|clear`."""
    seconds: dict[str, list[str]] = {word: [] for word in words if any(verb.path.split()[0] == word for verb in verbs)}
    for verb in verbs:
        first, _space, second = verb.path.partition(" ")
        if first in seconds and second:
            seconds[first].append(second)
    return ", ".join(f"{word} {'|'.join(others)}".rstrip() for word, others in seconds.items())


def is_allowed(verb: Verb, member: Member, rights: Rights) -> bool:
    """Return True if the member may use this verb."""
    match verb.who:
        case RequiredRole.EVERYONE:
            return True
        case RequiredRole.ADMINS:
            return rights.administers(member)
        case RequiredRole.OPERATOR:
            return rights.operates(member)


def failure_reply(error: CountersignError) -> Reply:
    """Return the reply to an error of a store or a server. Its text may hold anything, so it goes into the details."""
    facts = known_facts((gettext_lazy("cause"), error.cause), (gettext_lazy("fix"), error.fix))
    return Reply(_("That did not work."), details=facts, failed=True)


def _opaque_fields(verb: Verb) -> frozenset[str]:
    return frozenset(parameter.name.replace("-", "_") for parameter in verb.parameters if parameter.opaque)


def _without_tokens(context: SubmissionContext, opaque: Collection[str]) -> SubmissionContext:
    fields, errors = dict(context.fields), {}
    for name, value in context.fields.items():
        secret = name == SECRET_FIELD
        is_token = known_token if name in opaque else looks_like_token
        if (secret and not context.hidden_input and value) or (not secret and is_token(value)):
            fields[name] = ""
            errors[name] = plain_warning()
    return dataclasses.replace(context, fields=fields, errors=errors)


def _short_usage(verb: Verb) -> str:
    """Return a verb with its required parameters, for a list."""
    return " ".join(
        (
            verb.path,
            *(parameter.usage for parameter in verb.parameters if parameter.required or parameter in verb.places),
        )
    )
