"""Usage of language models: tokens and money by user and place, and the limits on them.

Money is counted in micro-units of one currency: a price of 3 a million tokens is 3 of them a token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from enum import StrEnum
from fnmatch import fnmatchcase

from bot.domain.completions import Usage
from bot.domain.conversations import Author, ConversationKey

MICRO = 1_000_000
_CENT = MICRO // 100
_PLACES = 2
_PLACES_OF_LITTLE = 4


class UsageKind(StrEnum):
    """Purpose of a model request."""

    REPLY = "reply"
    """A reply in a turn."""
    SUMMARY = "summary"
    """A summary of earlier turns, so that a long conversation fits in."""


# What it costs


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a million tokens of the models that match `model`, a pattern such as `anthropic:claude-*`."""

    model: str
    input: Decimal
    cached_input: Decimal
    cache_write: Decimal
    output: Decimal

    def of(self, usage: Usage) -> int:
        """Return the price of these tokens in micro-units. Reasoning tokens are output tokens."""
        plain = max(0, usage.input_tokens - usage.cached_tokens - usage.cache_writes)
        cost = (
            plain * self.input
            + usage.cached_tokens * self.cached_input
            + usage.cache_writes * self.cache_write
            + usage.output_tokens * self.output
        )
        return int(cost.to_integral_value(ROUND_HALF_UP))


@dataclass(frozen=True, slots=True)
class PriceList:
    """The operator's prices, all in one currency: of several that fit a model, the first is its price."""

    currency: str = ""
    prices: tuple[Price, ...] = ()

    def cost(self, model: str, usage: Usage) -> int | None:
        """Return the price of a model's tokens in micro-units; None if the model has no price."""
        found = next((price for price in self.prices if matches_pattern(model, price.model)), None)
        return None if found is None else found.of(usage)


NO_PRICES = PriceList()


def matches_pattern(name: str, pattern: str) -> bool:
    """Return True if a name matches the pattern of a price or limit: `*` is the only wildcard."""
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """One request to a model. `id` is its own, so that it is counted once however often it is told; `n` is the step of
    its turn. `estimated` says that its service has not said all of this: the reply is under way or broke off, or the
    service does not count. `final` says that nothing more will be known of it, even so; what is not estimated is final.
    """

    id: str
    n: int
    kind: UsageKind
    model: str
    usage: Usage
    estimated: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class PricedUsage:
    """One request to a model, as it is kept. `cost` is at the price of that day, None if there was none."""

    use: UsageEntry
    cost: int | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class UsageOwner:
    """Owner of usage: a user (`slack:U1`), a channel (`slack:T1:C5`), a workspace (`slack:T1`)."""

    person: str
    channel: str
    workspace: str

    @classmethod
    def of(cls, author: Author, where: ConversationKey) -> UsageOwner:
        """Return the owner for an author in a conversation."""
        return cls(author.principal, channel_of(where), where.workspace_key)


def channel_of(where: ConversationKey) -> str:
    """The channel of a conversation with its platform and workspace, in the text form of keys."""
    return ":".join(str(where).split(":")[:3])


# What was spent


class UsageGrouping(StrEnum):
    """Grouping of usage sums."""

    PERSON = "person"
    CHANNEL = "channel"
    WORKSPACE = "workspace"
    MODEL = "model"
    KIND = "kind"


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Which requests are counted: since then (epoch seconds), and of these alone where one is named."""

    since: float
    person: str = ""
    channel: str = ""
    workspace: str = ""


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """A sum. `costs` is in micro-units by currency; `unpriced` says how many of the requests had no price, `estimated`
    how many of them are estimates.
    """

    requests: int = 0
    usage: Usage = Usage()
    costs: Mapping[str, int] = field(default_factory=dict)
    unpriced: int = 0
    estimated: int = 0

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.usage.input_tokens + self.usage.output_tokens

    def joined(self, other: UsageTotal) -> UsageTotal:
        """Both together."""
        mine, theirs = self.usage, other.usage
        names = {**self.costs, **other.costs}
        return UsageTotal(
            self.requests + other.requests,
            Usage(
                mine.input_tokens + theirs.input_tokens,
                mine.output_tokens + theirs.output_tokens,
                mine.cached_tokens + theirs.cached_tokens,
                mine.cache_writes + theirs.cache_writes,
                mine.reasoning_tokens + theirs.reasoning_tokens,
            ),
            {name: self.costs.get(name, 0) + other.costs.get(name, 0) for name in names},
            self.unpriced + other.unpriced,
            self.estimated + other.estimated,
        )


def total(sums: Iterable[UsageTotal]) -> UsageTotal:
    """All of them together."""
    whole = UsageTotal()
    for each in sums:
        whole = whole.joined(each)
    return whole


# Limits


class LimitScope(StrEnum):
    """Scope of a limit: each user, channel or workspace has the limit alone."""

    PERSON = "person"
    CHANNEL = "channel"
    WORKSPACE = "workspace"


class LimitPeriod(StrEnum):
    """Period of a limit: days and months of UTC."""

    DAY = "day"
    MONTH = "month"

    def begin(self, now: float) -> float:
        """When the present one began."""
        return self._first(now).timestamp()

    def end(self, now: float) -> float:
        """When the next one begins."""
        first = self._first(now)
        if self is LimitPeriod.DAY:
            return (first + timedelta(days=1)).timestamp()
        return (first + timedelta(days=32)).replace(day=1).timestamp()

    def _first(self, now: float) -> datetime:
        today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return today if self is LimitPeriod.DAY else today.replace(day=1)


class LimitUnit(StrEnum):
    """Unit of a limit."""

    TOKENS = "tokens"
    MONEY = "money"


@dataclass(frozen=True, slots=True)
class UsageLimit:
    """So much for each person, channel or workspace whose name fits `only`, a pattern. Money is in micro-units."""

    per: LimitScope
    every: LimitPeriod
    unit: LimitUnit
    most: int
    only: str = "*"

    @property
    def kind(self) -> tuple[LimitScope, LimitPeriod, LimitUnit]:
        """Of limits of one kind, one holds for a question."""
        return self.per, self.every, self.unit

    def used(self, spent: UsageTotal, currency: str) -> int:
        """Return the used part of the limit."""
        return spent.tokens if self.unit is LimitUnit.TOKENS else spent.costs.get(currency, 0)


def limits_for(limits: Sequence[UsageLimit], spender: UsageOwner) -> Sequence[UsageLimit]:
    """Those that hold for a question: of each kind the first whose pattern fits."""
    found: dict[tuple[LimitScope, LimitPeriod, LimitUnit], UsageLimit] = {}
    for limit in limits:
        if matches_pattern(limit_owner(limit, spender), limit.only):
            found.setdefault(limit.kind, limit)
    return tuple(found.values())


def limit_owner(limit: UsageLimit, spender: UsageOwner) -> str:
    """Return the owner whose usage a limit counts."""
    match limit.per:
        case LimitScope.PERSON:
            return spender.person
        case LimitScope.CHANNEL:
            return spender.channel
        case LimitScope.WORKSPACE:
            return spender.workspace


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """Used part of a limit and its reset time (epoch seconds)."""

    limit: UsageLimit
    used: int
    resets_at: float
    currency: str = ""

    @property
    def reached(self) -> bool:
        """Nothing is left of it."""
        return self.used >= self.limit.most

    @property
    def said(self) -> str:
        """`1,203 of 2,000 tokens`, `0.42 of 5.00 EUR`. A limit is told to its last place, and what is used at least as
        exactly: it reads as reached when it is, and never before.
        """
        if self.limit.unit is LimitUnit.TOKENS:
            return f"{self.used:,} of {self.limit.most:,} tokens"
        most = Decimal(self.limit.most) / MICRO
        places = max(_PLACES, -int(most.normalize().as_tuple().exponent))
        return f"{format_money(self.used, places)} of {most:,.{places}f} {self.currency}"


def format_money(micro: int, places: int = _PLACES) -> str:
    """Money as people write it: cents, and parts of a cent where there is little. It is rounded down; what is too
    little to be told is `<0.0001`, not nothing.
    """
    value = Decimal(micro) / MICRO
    shown = places if micro >= MICRO or micro % _CENT == 0 else max(places, _PLACES_OF_LITTLE)
    least = Decimal(1).scaleb(-shown)
    return f"<{least:f}" if 0 < value < least else f"{value.quantize(least, ROUND_DOWN):,f}"
