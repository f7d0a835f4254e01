"""One command and its verbs: which verb is meant, who may say it, what it is given, and what becomes of errors.

Every verb is described once (`bot.domain.commands.Verb`); parsing, help, usage, completion and forms follow from that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bot.commands.parts import Rights
from bot.commands.phrases import did_you_mean, failed
from bot.commands.refusals import Refusal
from bot.commands.tokens import WARNING, known_token, looks_like_token
from bot.commands.words import Arguments, read_words
from bot.domain.commands import Form, Invocation, Parameter, Reply, Shape, Submission, Verb, Who
from bot.domain.conversations import Author, ConversationKey, Member
from bot.errors import CountersignError

Answers = AsyncIterator[Reply | Form]
HELP = Verb("help", "this list", (Parameter("verb", "which verb", repeated=True),), Who.EVERYONE, ("?",))


@dataclass(frozen=True, slots=True)
class Request:
    """A verb that somebody who may has said, with its arguments read."""

    member: Member
    conversation: ConversationKey
    arguments: Arguments
    hidden_input: bool = False

    @property
    def author(self) -> Author:
        """Who said it."""
        return self.member.author


@dataclass(frozen=True, slots=True)
class Filled:
    """A form that has come back: the state in its id, the fields, and errors of fields that were emptied because what
    stood there must not be kept.
    """

    member: Member
    conversation: ConversationKey
    state: tuple[str, ...]
    fields: Mapping[str, str]
    errors: Mapping[str, str] = field(default_factory=dict)
    hidden_input: bool = False

    @property
    def author(self) -> Author:
        """Who sent it."""
        return self.member.author


@dataclass(frozen=True, slots=True)
class Deed:
    """A verb and what it does. `fill` takes its forms back. Words of a verb that is `free` may look random: they go to
    a server and are not kept.
    """

    verb: Verb
    do: Callable[[Request], Answers]
    fill: Callable[[Filled], Answers] | None = None
    free: bool = False


class Command:
    """`/name VERB …`. `objection` says why nothing but help can be had now; `default` is the verb of no
    words, and of its options alone.
    """

    def __init__(
        self,
        name: str,
        about: str,
        deeds: Sequence[Deed],
        rights: Rights,
        *,
        default: str = "help",
        objection: Callable[[], str] = lambda: "",
    ) -> None:
        self.name = name
        self.about = about
        self._rights = rights
        self._objection = objection
        self._default = default
        self._deeds = {deed.verb.path: deed for deed in (*deeds, Deed(HELP, self._help))}
        self._paths = {path: deed for deed in self._deeds.values() for path in (deed.verb.path, *deed.verb.aliases)}

    @property
    def verbs(self) -> tuple[Verb, ...]:
        """All of them, in the order of the help."""
        return tuple(deed.verb for deed in self._deeds.values())

    def meant(self, words: Sequence[str]) -> tuple[Verb, Sequence[str]] | None:
        """The verb that the words begin with, and the words behind it; None if there is none."""
        found = self._found(words)
        return None if found is None else (found[0].verb, found[1])

    async def invoked(self, invocation: Invocation) -> Answers:
        """Answer words."""
        try:
            deed, words = self._deed(invocation.words)
            self._allow(deed, invocation.member)
            arguments = self._read(deed, words)
            request = Request(invocation.member, invocation.conversation, arguments, invocation.hidden_input)
            async for answer in deed.do(request):
                yield answer
        except Refusal as refusal:
            yield failed(str(refusal))
        except CountersignError as error:
            yield trouble(error)

    async def submitted(self, submission: Submission) -> Answers:
        """Take a form back. What looks like a token is taken out of every field but a secret's, which only a hidden
        prompt can have asked for.
        """
        path, *state = submission.form.removeprefix(f"{self.name} ").split(":")
        try:
            fill = self._form(path, submission.member)
            filled = Filled(
                submission.member,
                submission.conversation,
                tuple(state),
                submission.fields,
                hidden_input=submission.hidden_input,
            )
            async for answer in fill(_without_tokens(filled, _opaque(self._deeds[path].verb))):
                yield answer
        except Refusal as refusal:
            yield failed(str(refusal))
        except CountersignError as error:
            yield trouble(error)

    def _read(self, deed: Deed, words: Sequence[str]) -> Arguments:
        opaque = {f"--{name.replace('_', '-')}" for name in _opaque(deed.verb)}
        for before, word in zip(("", *words), words, strict=False):
            free = deed.free or before in opaque or word.partition("=")[0] in opaque
            if known_token(word) if free else looks_like_token(word):
                raise Refusal(WARNING)
        return read_words(deed.verb, words, self.name)

    def _form(self, path: str, member: Member) -> Callable[[Filled], Answers]:
        deed = self._deeds.get(path)
        if deed is None or deed.fill is None:
            raise Refusal("This form is no longer open. Start again with the command.")
        self._allow(deed, member)
        return deed.fill

    def _deed(self, words: Sequence[str]) -> tuple[Deed, Sequence[str]]:
        found = self._found(words)
        if found is None:
            hint = did_you_mean(" ".join(words[:2]), self._paths, f"/{self.name} ")
            hint = hint or did_you_mean(words[0], self._paths, f"/{self.name} ")
            raise Refusal(f"`/{self.name}` knows no such verb.{hint} `/{self.name} help` lists them.")
        return found

    def _found(self, words: Sequence[str]) -> tuple[Deed, Sequence[str]] | None:
        default = self._deeds[self._default]
        has_options = any(each.shape is Shape.OPTION for each in default.verb.parameters)
        if not words or (has_options and words[0].startswith("--")):
            return default, words
        for length in (2, 1):
            deed = self._paths.get(" ".join(words[:length]).lower())
            if deed is not None and len(words) >= length:
                return deed, words[length:]
        return None

    def _allow(self, deed: Deed, member: Member) -> None:
        """The one place where rights are checked."""
        verb = deed.verb
        objection = self._objection()
        if objection and verb is not HELP:
            raise Refusal(objection)
        if not allowed(verb, member, self._rights):
            everyone = ", ".join(f"`/{self.name} {each.path}`" for each in self.verbs if each.who is Who.EVERYONE)
            who = "the operator" if verb.who is Who.OPERATOR else self._rights.who
            raise Refusal(f"Only {who} can do this. You can use {everyone}.")

    async def _help(self, request: Request) -> Answers:
        wanted = request.arguments.many("verb")
        if wanted:
            verb = self._deed(wanted)[0].verb
            facts = [("usage", f"/{self.name} {verb.usage}")]
            facts += [(parameter.usage.strip("[]"), parameter.hint) for parameter in verb.parameters]
            facts += [("also", ", ".join(verb.aliases))] if verb.aliases else []
            yield Reply(f"`/{self.name} {verb.path}`: {verb.summary}.", details=tuple(facts))
            return
        mine = [verb for verb in self.verbs if allowed(verb, request.member, self._rights)]
        others = len(self.verbs) - len(mine)
        more = f" {others} more verbs are for {self._rights.who}." if others else ""
        yield Reply(
            f"{self.about}. `/{self.name} help VERB` says more of one.{more}",
            details=tuple((f"/{self.name} {_short(verb)}", verb.summary) for verb in mine),
        )


def allowed(verb: Verb, member: Member, rights: Rights) -> bool:
    """Whether this person may say this."""
    match verb.who:
        case Who.EVERYONE:
            return True
        case Who.ADMINS:
            return rights.administers(member)
        case Who.OPERATOR:
            return rights.operates(member)


def trouble(error: CountersignError) -> Reply:
    """What a store or a server could not do: its words stand beside ours, since there may be anything in them."""
    facts = [("cause", error.cause), ("fix", error.fix)]
    return Reply("That did not work.", details=tuple((name, said) for name, said in facts if said), failed=True)


SECRET_FIELD = "hidden"  # noqa: S105 - the name of a field
"""The one field that takes a secret itself."""


def _opaque(verb: Verb) -> frozenset[str]:
    """The fields whose values may look like tokens."""
    return frozenset(each.name.replace("-", "_") for each in verb.parameters if each.opaque)


def _without_tokens(filled: Filled, opaque: Collection[str]) -> Filled:
    fields, errors = dict(filled.fields), {}
    for name, value in filled.fields.items():
        secret = name == SECRET_FIELD
        is_token = known_token if name in opaque else looks_like_token
        if (secret and not filled.hidden_input and value) or (not secret and is_token(value)):
            fields[name] = ""
            errors[name] = WARNING.replace("`", "")
    return dataclasses.replace(filled, fields=fields, errors=errors)


def _short(verb: Verb) -> str:
    """A verb with what it must be given, for a list."""
    return " ".join((verb.path, *(each.usage for each in verb.parameters if each.required or each in verb.places)))
