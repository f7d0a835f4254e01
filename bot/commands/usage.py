"""`/usage`: tokens and money that models took. Everybody sees their own; admins what their channel and workspace took,
the operator everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from bot.commands.command import Command, Deed, Request
from bot.commands.moments import MOMENT, read_moment
from bot.commands.parts import CommandParts
from bot.commands.phrases import counted, lasts_until, moment
from bot.commands.refusals import Refusal
from bot.commands.usage_figures import figures
from bot.domain.commands import Parameter, Reply, Shape, Table, Verb, Who
from bot.domain.usage import Balance, Every, Per, Spender, Spent, SpentBy, UsageQuery, amount, total

ROWS = 25
"""Names in one answer, the most expensive first."""
_SINCE = Parameter("since", f"from then on, this month without it: {MOMENT}", Shape.OPTION, metavar="TIME")
_BY = Parameter("by", "what the sums are for", Shape.OPTION, choices=tuple(SpentBy), metavar="|".join(SpentBy))
_WHOSE = {Per.PERSON: "your limit", Per.CHANNEL: "this channel's limit", Per.WORKSPACE: "this workspace's limit"}
_LENGTHS = {Every.DAY: "a day", Every.MONTH: "a month"}
_UNCOUNTED = "the service has not counted all of it, or the reply broke off or is under way"
_PRICES = "not counted as money. The operator sets prices in config/prices.toml"


class UsageSums:
    """Sums, and how much is left of limits."""

    def __init__(self, parts: CommandParts) -> None:
        self._parts = parts

    @property
    def deeds(self) -> tuple[Deed, ...]:
        """The verbs."""
        return (
            Deed(
                Verb("me", "tokens and money that your questions took, by model", (_SINCE,), Who.EVERYONE, ("mine",)),
                self._me,
            ),
            Deed(Verb("channel", "what this channel took, by person", (_SINCE, _BY)), self._channel),
            Deed(Verb("workspace", "what this workspace took, by person", (_SINCE, _BY)), self._workspace),
            Deed(Verb("all", "what every workspace took, for the operator", (_SINCE, _BY)), self._all),
        )

    async def _me(self, request: Request) -> AsyncIterator[Reply]:
        query = UsageQuery(self._since(request), person=request.author.principal)
        spender = Spender.of(request.author, request.conversation)
        yield await self._reply("Your questions", query, SpentBy.MODEL, await self._parts.balances(spender))

    async def _channel(self, request: Request) -> AsyncIterator[Reply]:
        spender = Spender.of(request.author, request.conversation)
        query = UsageQuery(self._since(request), channel=spender.channel, workspace=spender.workspace)
        limits = [each for each in await self._parts.balances(spender) if each.limit.per is not Per.PERSON]
        yield await self._reply("This channel", query, _by(request, SpentBy.PERSON), limits)

    async def _workspace(self, request: Request) -> AsyncIterator[Reply]:
        spender = Spender.of(request.author, request.conversation)
        query = UsageQuery(self._since(request), workspace=spender.workspace)
        limits = [each for each in await self._parts.balances(spender) if each.limit.per is Per.WORKSPACE]
        yield await self._reply("This workspace", query, _by(request, SpentBy.PERSON), limits)

    async def _all(self, request: Request) -> AsyncIterator[Reply]:
        if not self._parts.rights.everywhere(request.member):
            raise Refusal("Only the operator sees every workspace. You can use `/usage workspace`.")
        query = UsageQuery(self._since(request))
        yield await self._reply("All workspaces", query, _by(request, SpentBy.WORKSPACE), ())

    async def _reply(self, whose: str, query: UsageQuery, by: SpentBy, limits: Sequence[Balance]) -> Reply:
        sums = await self._parts.usage.by(query, by)
        whole = total(spent for _, spent in sums)
        now = self._parts.clock()
        left = tuple((_name(each), _left(each, now)) for each in limits)
        data = figures(query.since, by, sums, limits)
        if not whole.requests:
            return Reply(f"{whose}: no model was asked since {moment(query.since)} UTC.", details=left, data=data)
        rows = tuple((name or "not known", *_row(spent)) for name, spent in sums[:ROWS])
        return Reply(
            f"{whose} · {_about(whole)}{whole.tokens:,} tokens{_priced(whole)} · since {moment(query.since)} UTC",
            Table((by.value, "asked", "in", "of it cached", "out", "cost"), rows),
            (*left, *_facts(whole, len(sums) - ROWS)),
            data=data,
        )

    def _since(self, request: Request) -> float:
        text, now = request.arguments.one("since"), self._parts.clock()
        if not text:
            return Every.MONTH.begin(now)
        try:
            return read_moment(text, now)
        except (ValueError, OverflowError):
            raise Refusal(f"`--since` is a point in time: {MOMENT}.") from None


def usage_command(parts: CommandParts) -> Command:
    """The command with all its verbs."""
    return Command("usage", "Tokens and money", UsageSums(parts).deeds, parts.rights, default="me")


def _by(request: Request, otherwise: SpentBy) -> SpentBy:
    word = request.arguments.one("by")
    return SpentBy(word) if word else otherwise


def _row(spent: Spent) -> tuple[str, ...]:
    usage, about = spent.usage, _about(spent)
    tokens = (f"{about}{usage.input_tokens:,}", f"{usage.cached_tokens:,}", f"{about}{usage.output_tokens:,}")
    return (str(spent.requests), *tokens, _money(spent) or "no price")


def _money(spent: Spent) -> str:
    about = _about(spent)
    return ", ".join(f"{about}{amount(cost)} {currency}" for currency, cost in sorted(spent.costs.items()))


def _about(spent: Spent) -> str:
    """Stands before a number that is estimated in part."""
    return "~" if spent.estimated else ""


def _priced(spent: Spent) -> str:
    return f" · {_money(spent)}" if spent.costs else ""


def _name(balance: Balance) -> str:
    return f"{_WHOSE[balance.limit.per]} {_LENGTHS[balance.limit.every]}"


def _left(balance: Balance, now: float) -> str:
    end = ", nothing is left" if balance.reached else ""
    return f"{balance.said}{end}; begins anew at 00:00 UTC, {lasts_until(balance.resets_at, now)}"


def _facts(whole: Spent, left_out: int) -> tuple[tuple[str, str], ...]:
    facts: list[tuple[str, str]] = []
    if whole.usage.cache_writes:
        facts.append(("written to the cache", f"{whole.usage.cache_writes:,} tokens of those that went in"))
    if whole.usage.reasoning_tokens:
        facts.append(("reasoning", f"{whole.usage.reasoning_tokens:,} tokens of those that came out"))
    if whole.estimated:
        facts.append(("estimated", f"{counted(whole.estimated, 'request')}; {_UNCOUNTED}"))
    if whole.unpriced:
        facts.append(("without a price", f"{counted(whole.unpriced, 'request')}; {_PRICES}"))
    if left_out > 0:
        facts.append(("left out", counted(left_out, "name")))
    return tuple(facts)
