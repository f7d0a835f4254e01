"""All commands by name (`bot.ports.Commands`), with `/usage` and completion."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

from bot.commands.argument_parser import CommandRejected
from bot.commands.command import Command, CommandContext, VerbHandler
from bot.commands.conversations import conversations_command
from bot.commands.dependencies import CommandDependencies
from bot.commands.mcp import mcp_command
from bot.commands.profiles import profile_command
from bot.commands.server_directory import ServerDirectory
from bot.commands.text_format import (
    MOMENT,
    did_you_mean,
    error_reply,
    format_expiry,
    format_moment,
    parse_time,
    pluralize,
)
from bot.commands.usage_report import usage_report
from bot.domain.commands import (
    CompletionSource,
    Form,
    FormSubmission,
    Invocation,
    Parameter,
    ParameterKind,
    Reply,
    RequiredRole,
    Table,
    Verb,
)
from bot.domain.conversations import ConversationKey
from bot.domain.usage import (
    LimitPeriod,
    LimitScope,
    LimitStatus,
    UsageGrouping,
    UsageOwner,
    UsageQuery,
    UsageTotal,
    format_money,
    total,
)

# -------------------- usage
# Users see their own usage; admins that of their channel and workspace, the operator all.

ROWS = 25
"""Names in one reply, the most expensive first."""
_SINCE = Parameter("since", f"from then on, this month without it: {MOMENT}", ParameterKind.OPTION, metavar="TIME")
_BY = Parameter(
    "by", "what the sums are for", ParameterKind.OPTION, choices=tuple(UsageGrouping), metavar="|".join(UsageGrouping)
)
_WHOSE = {
    LimitScope.PERSON: "your limit",
    LimitScope.CHANNEL: "this channel's limit",
    LimitScope.WORKSPACE: "this workspace's limit",
}
_LENGTHS = {LimitPeriod.DAY: "a day", LimitPeriod.MONTH: "a month"}
_UNCOUNTED = "the provider did not report all of it, or the reply is incomplete"
_PRICES = "not counted as money. The operator sets prices in config/prices.toml"


class UsageSums:
    """Verbs of `/usage`: totals and limits."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts

    @property
    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the verbs."""
        return (
            VerbHandler(
                Verb(
                    "me",
                    "tokens and money that your questions took, by model",
                    (_SINCE,),
                    RequiredRole.EVERYONE,
                    ("mine",),
                ),
                self._me,
            ),
            VerbHandler(Verb("channel", "what this channel took, by person", (_SINCE, _BY)), self._channel),
            VerbHandler(Verb("workspace", "what this workspace took, by person", (_SINCE, _BY)), self._workspace),
            VerbHandler(Verb("all", "what every workspace took, for the operator", (_SINCE, _BY)), self._all),
        )

    async def _me(self, request: CommandContext) -> AsyncIterator[Reply]:
        query = UsageQuery(self._since(request), person=request.author.principal)
        spender = UsageOwner.of(request.author, request.conversation)
        yield await self._reply("Your questions", query, UsageGrouping.MODEL, await self._parts.balances(spender))

    async def _channel(self, request: CommandContext) -> AsyncIterator[Reply]:
        spender = UsageOwner.of(request.author, request.conversation)
        query = UsageQuery(self._since(request), channel=spender.channel, workspace=spender.workspace)
        limits = [
            balance for balance in await self._parts.balances(spender) if balance.limit.per is not LimitScope.PERSON
        ]
        yield await self._reply("This channel", query, _by(request, UsageGrouping.PERSON), limits)

    async def _workspace(self, request: CommandContext) -> AsyncIterator[Reply]:
        spender = UsageOwner.of(request.author, request.conversation)
        query = UsageQuery(self._since(request), workspace=spender.workspace)
        limits = [
            balance for balance in await self._parts.balances(spender) if balance.limit.per is LimitScope.WORKSPACE
        ]
        yield await self._reply("This workspace", query, _by(request, UsageGrouping.PERSON), limits)

    async def _all(self, request: CommandContext) -> AsyncIterator[Reply]:
        if not self._parts.rights.everywhere(request.member):
            raise CommandRejected("Only the operator sees every workspace. You can use `/usage workspace`.")
        query = UsageQuery(self._since(request))
        yield await self._reply("All workspaces", query, _by(request, UsageGrouping.WORKSPACE), ())

    async def _reply(self, whose: str, query: UsageQuery, by: UsageGrouping, limits: Sequence[LimitStatus]) -> Reply:
        sums = await self._parts.usage.totals_by(query, by)
        whole = total(spent for _, spent in sums)
        now = self._parts.clock()
        left = tuple((_name(limit), _left(limit, now)) for limit in limits)
        data = usage_report(query.since, by, sums, limits)
        if not whole.requests:
            return Reply(
                f"{whose}: no model was asked since {format_moment(query.since)} UTC.", details=left, data=data
            )
        rows = tuple((name or "not known", *_row(spent)) for name, spent in sums[:ROWS])
        return Reply(
            f"{whose} · {_about(whole)}{whole.tokens:,} tokens{_priced(whole)} · since {format_moment(query.since)} "
            "UTC",
            Table((by.value, "requests", "in", "cached", "out", "cost"), rows),
            (*left, *_facts(whole, len(sums) - ROWS)),
            data=data,
        )

    def _since(self, request: CommandContext) -> float:
        text, now = request.arguments.one("since"), self._parts.clock()
        if not text:
            return LimitPeriod.MONTH.begin(now)
        try:
            return parse_time(text, now)
        except (ValueError, OverflowError):
            raise CommandRejected(f"`--since` is a point in time: {MOMENT}.") from None


def usage_command(parts: CommandDependencies) -> Command:
    """Return the command with all its verbs."""
    return Command("usage", "Tokens and money", UsageSums(parts).handlers, parts.rights, default="me")


def _by(request: CommandContext, otherwise: UsageGrouping) -> UsageGrouping:
    word = request.arguments.one("by")
    return UsageGrouping(word) if word else otherwise


def _row(spent: UsageTotal) -> tuple[str, ...]:
    usage, about = spent.usage, _about(spent)
    tokens = (f"{about}{usage.input_tokens:,}", f"{usage.cached_tokens:,}", f"{about}{usage.output_tokens:,}")
    return (str(spent.requests), *tokens, _money(spent) or "no price")


def _money(spent: UsageTotal) -> str:
    about = _about(spent)
    return ", ".join(f"{about}{format_money(cost)} {currency}" for currency, cost in sorted(spent.costs.items()))


def _about(spent: UsageTotal) -> str:
    """Return the mark before a number that is partly estimated."""
    return "~" if spent.estimated else ""


def _priced(spent: UsageTotal) -> str:
    return f" · {_money(spent)}" if spent.costs else ""


def _name(balance: LimitStatus) -> str:
    return f"{_WHOSE[balance.limit.per]} {_LENGTHS[balance.limit.every]}"


def _left(balance: LimitStatus, now: float) -> str:
    end = ", nothing is left" if balance.reached else ""
    return f"{balance.said}{end}; resets at 00:00 UTC, {format_expiry(balance.resets_at, now)}"


def _facts(whole: UsageTotal, left_out: int) -> tuple[tuple[str, str], ...]:
    facts: list[tuple[str, str]] = []
    if whole.usage.cache_writes:
        facts.append(("written to the cache", f"{whole.usage.cache_writes:,} tokens of those that went in"))
    if whole.usage.reasoning_tokens:
        facts.append(("reasoning", f"{whole.usage.reasoning_tokens:,} tokens of those that came out"))
    if whole.estimated:
        facts.append(("estimated", f"{pluralize(whole.estimated, 'request')}; {_UNCOUNTED}"))
    if whole.unpriced:
        facts.append(("without a price", f"{pluralize(whole.unpriced, 'request')}; {_PRICES}"))
    if left_out > 0:
        facts.append(("left out", pluralize(left_out, "name")))
    return tuple(facts)


# -------------------- completion


class Completion:
    """Completion of the last word of a line by the description of its verb."""

    def __init__(
        self,
        commands: Mapping[str, Command],
        directory: ServerDirectory,
        profiles: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._commands = commands
        self._directory = directory
        self._profiles = {} if profiles is None else profiles

    def complete(self, text: str, conversation: ConversationKey) -> list[str]:
        """Return whole lines that begin with `text`."""
        head, _, word = text.rpartition(" ")
        if not head:
            return [name for name in self._commands if name.startswith(word)]
        name, *words = head.split()
        command = self._commands.get(name)
        if command is None:
            return []
        offers = dict.fromkeys(self._offers(command, words, word, conversation))
        return [f"{head} {offer}" for offer in offers if offer.startswith(word)]

    def _offers(self, command: Command, words: list[str], word: str, conversation: ConversationKey) -> Iterator[str]:
        """Yield candidates for the last word."""
        if not words:
            yield from dict.fromkeys(verb.path.split()[0] for verb in command.verbs)
            return
        resolved = command.resolve_verb(words)
        yield from self._second_words(command, words)
        if resolved is None:
            return
        verb, rest = resolved
        places, option, given = _where(verb, rest)
        if option is not None:
            yield from self._values(option, given, conversation)
            return
        if word.startswith("-") or not places:
            yield from (
                f"--{parameter.name}" for parameter in verb.parameters if parameter.shape is not ParameterKind.PLACE
            )
        for place in places:
            yield from self._values(place, given, conversation)

    def _second_words(self, command: Command, words: list[str]) -> Iterator[str]:
        """Yield second words of two-word verbs, such as `set` after `policy`."""
        if len(words) == 1:
            for verb in command.verbs:
                group, _, name = verb.path.partition(" ")
                if name and group == words[0].lower():
                    yield name

    def _values(self, parameter: Parameter, given: str, conversation: ConversationKey) -> Iterable[str]:
        """Return a parameter's values; those of a server's tools, resources and prompts depend on the server given
        before.
        """
        match parameter.completes:
            case CompletionSource.SERVERS:
                names: Iterable[str] = self._directory.names(conversation)
            case CompletionSource.TOOLS:
                names = (tool.original_name for tool in self._directory.known(given, conversation).tools)
            case CompletionSource.RESOURCES:
                names = (resource.uri for resource in self._directory.known(given, conversation).resources)
            case CompletionSource.PROMPTS:
                names = (prompt.name for prompt in self._directory.known(given, conversation).prompts)
            case CompletionSource.PROFILES:
                names = self._profiles.get(conversation.workspace_key, ())
            case CompletionSource.NOTHING:
                names = ()
        return (*parameter.choices, *(shlex.quote(name) for name in names))


def _where(verb: Verb, words: Sequence[str]) -> tuple[list[Parameter], Parameter | None, str]:
    """Return the next positional parameters, the option that expects its value, and the server named before."""
    options = {
        f"--{parameter.name}": parameter for parameter in verb.parameters if parameter.shape is ParameterKind.OPTION
    }
    places, given, waiting = list(verb.places), "", None
    for word in words:
        if waiting is not None:
            waiting = None
        elif word in options:
            waiting = options[word]
        elif not word.startswith("--") and places:
            given = word if places[0].completes is CompletionSource.SERVERS else given
            if not places[0].repeated:
                places.pop(0)
    needed = next((index for index, place in enumerate(places) if place.required), len(places) - 1)
    return places[: needed + 1], waiting, given


class CommandRegistry:
    """Looks up commands and runs them."""

    def __init__(self, parts: CommandDependencies) -> None:
        directory = ServerDirectory(parts)
        profile, names = profile_command(parts, directory)
        commands = (mcp_command(parts, directory), profile, conversations_command(parts), usage_command(parts))
        self._commands: Mapping[str, Command] = {command.name: command for command in commands}
        self._completion = Completion(self._commands, directory, names)

    @property
    def verbs(self) -> Mapping[str, Sequence[Verb]]:
        """Verbs by command, for platforms that register them."""
        return {name: command.verbs for name, command in self._commands.items()}

    async def handle(self, request: Invocation | FormSubmission) -> AsyncIterator[Reply | Form]:
        """Run a command. An unknown one is answered with the closest match."""
        match request:
            case Invocation(command=name):
                command = self._commands.get(name.lower())
                answers = command.invoked(request) if command is not None else _unknown(name, self._commands)
            case FormSubmission(form=form):
                command = self._commands.get(form.partition(" ")[0])
                answers = command.submitted(request) if command is not None else _closed()
        async for answer in answers:
            yield answer

    def complete(self, text: str, conversation: ConversationKey) -> Sequence[str]:
        """Return whole command lines, without the slash, that begin with `text`."""
        return self._completion.complete(text, conversation)


async def _unknown(name: str, commands: Mapping[str, Command]) -> AsyncIterator[Reply | Form]:
    known = ", ".join(f"`/{command}`" for command in commands)
    yield error_reply(f"There is no such command.{did_you_mean(name, commands, '/')} What there is: {known}.")


async def _closed() -> AsyncIterator[Reply | Form]:
    yield error_reply("This form is no longer open. Start again with the command.")
