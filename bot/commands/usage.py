"""`/usage`: tokens and money that models took. Everybody sees their own; admins what their channel and workspace took,
the operator everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from bot.commands.command import Command, CommandContext, VerbHandler
from bot.commands.dependencies import CommandDependencies
from bot.commands.rejections import CommandRejected
from bot.commands.text_format import format_expiry, format_moment, pluralize
from bot.commands.timestamps import MOMENT, parse_time
from bot.commands.usage_report import usage_report
from bot.domain.commands import Parameter, ParameterKind, Reply, RequiredRole, Table, Verb
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

ROWS = 25
"""Names in one answer, the most expensive first."""
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
_UNCOUNTED = "the service has not counted all of it, or the reply broke off or is under way"
_PRICES = "not counted as money. The operator sets prices in config/prices.toml"


class UsageSums:
    """Sums, and how much is left of limits."""

    def __init__(self, parts: CommandDependencies) -> None:
        self._parts = parts

    @property
    def deeds(self) -> tuple[VerbHandler, ...]:
        """The verbs."""
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
        limits = [each for each in await self._parts.balances(spender) if each.limit.per is not LimitScope.PERSON]
        yield await self._reply("This channel", query, _by(request, UsageGrouping.PERSON), limits)

    async def _workspace(self, request: CommandContext) -> AsyncIterator[Reply]:
        spender = UsageOwner.of(request.author, request.conversation)
        query = UsageQuery(self._since(request), workspace=spender.workspace)
        limits = [each for each in await self._parts.balances(spender) if each.limit.per is LimitScope.WORKSPACE]
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
        left = tuple((_name(each), _left(each, now)) for each in limits)
        data = usage_report(query.since, by, sums, limits)
        if not whole.requests:
            return Reply(
                f"{whose}: no model was asked since {format_moment(query.since)} UTC.", details=left, data=data
            )
        rows = tuple((name or "not known", *_row(spent)) for name, spent in sums[:ROWS])
        return Reply(
            f"{whose} · {_about(whole)}{whole.tokens:,} tokens{_priced(whole)} · since {format_moment(query.since)} "
            "UTC",
            Table((by.value, "asked", "in", "of it cached", "out", "cost"), rows),
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
    """The command with all its verbs."""
    return Command("usage", "Tokens and money", UsageSums(parts).deeds, parts.rights, default="me")


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
    """Stands before a number that is estimated in part."""
    return "~" if spent.estimated else ""


def _priced(spent: UsageTotal) -> str:
    return f" · {_money(spent)}" if spent.costs else ""


def _name(balance: LimitStatus) -> str:
    return f"{_WHOSE[balance.limit.per]} {_LENGTHS[balance.limit.every]}"


def _left(balance: LimitStatus, now: float) -> str:
    end = ", nothing is left" if balance.reached else ""
    return f"{balance.said}{end}; begins anew at 00:00 UTC, {format_expiry(balance.resets_at, now)}"


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
