"""Usage of language models: tokens and money by user and place, and the limits on them.

Money is counted in micro-units of one currency: a price of 3 a million tokens is 3 of them a token.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import reduce

from bot.domain.completions import Usage
from bot.domain.conversations import Author, ConversationKey
from bot.i18n import _, format_number, ngettext

MICRO = 1_000_000
_CENT = MICRO // 100
_PLACES = 2
_PLACES_OF_LITTLE = 4


class UsageKind(StrEnum):
    """Purpose of a model request."""

    REPLY = "reply"
    """A reply in a turn."""
    SUMMARY = "summary"
    """A summary of earlier turns, which keeps a long conversation within the model's window."""


# Prices


@dataclass(frozen=True, slots=True)
class Price:
    """Price of a million tokens of the models that match `model`, a pattern such as `anthropic:claude-*`."""

    model: str
    input: Decimal
    cached_input: Decimal
    cache_write: Decimal
    output: Decimal

    def cost_of(self, usage: Usage) -> int:
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
    """The operator's prices, all in one currency. The first price with a matching pattern counts."""

    currency: str = ""
    prices: tuple[Price, ...] = ()

    def cost(self, model: str, usage: Usage) -> int | None:
        """Return the price of a model's tokens in micro-units; None if the model has no price."""
        matching = next((price for price in self.prices if matches_pattern(model, price.model)), None)
        return None if matching is None else matching.cost_of(usage)


NO_PRICES = PriceList()


def matches_pattern(name: str, pattern: str) -> bool:
    """Return True if a name matches the pattern of a price or limit: `*` is the only wildcard."""
    return fnmatchcase(name, pattern.replace("[", "[[]").replace("?", "[?]"))


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """Usage of one model request. `id` is unique, so that an entry reported again is not counted twice. `n` is the step
    of its turn. `estimated` is True if the service has not reported all counts: the reply is in progress or broke off,
    or the service does not count. `final` is True if the counts will not change. Entries that are not estimated are
    final.
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
    """Stored usage of one model request. `cost` is in micro-units at the price of that day; None without a price."""

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
    def of(cls, author: Author, conversation: ConversationKey) -> UsageOwner:
        """Return the owner for an author in a conversation."""
        return cls(author.principal, channel_of(conversation), conversation.workspace_key)


def channel_of(conversation: ConversationKey) -> str:
    """Return the channel of a conversation with its platform and workspace, in the text form of keys."""
    return ":".join(str(conversation).split(":")[:3])


# Usage


class UsageGrouping(StrEnum):
    """Grouping of usage sums."""

    PERSON = "person"
    CHANNEL = "channel"
    WORKSPACE = "workspace"
    MODEL = "model"
    KIND = "kind"
    DAY = "day"
    """A day in UTC, as `2026-08-31`."""


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Filter of counted requests: since a time (epoch seconds), and of this user, channel and workspace. Empty fields
    match all.
    """

    since: float
    person: str = ""
    channel: str = ""
    workspace: str = ""


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """Sum of usage. `costs` is in micro-units by currency. `unpriced` is the number of requests without a price,
    `estimated` the number of estimated ones. `questions` is the number of turns with requests, 0 if it is not counted.
    """

    requests: int = 0
    usage: Usage = Usage()
    costs: Mapping[str, int] = field(default_factory=dict)
    unpriced: int = 0
    estimated: int = 0
    questions: int = 0

    @property
    def tokens(self) -> int:
        """Number of input and output tokens."""
        return self.usage.input_tokens + self.usage.output_tokens

    def add(self, other: UsageTotal) -> UsageTotal:
        """Return the sum of both."""
        names = {**self.costs, **other.costs}
        return UsageTotal(
            self.requests + other.requests,
            Usage(*map(operator.add, astuple(self.usage), astuple(other.usage))),
            {name: self.costs.get(name, 0) + other.costs.get(name, 0) for name in names},
            self.unpriced + other.unpriced,
            self.estimated + other.estimated,
            self.questions + other.questions,
        )


def total(sums: Iterable[UsageTotal]) -> UsageTotal:
    """Return the sum of all totals."""
    return reduce(UsageTotal.add, sums, UsageTotal())


# Limits


class LimitScope(StrEnum):
    """Scope of a limit: each user, channel or workspace has the limit alone. The values are fields of a UsageOwner."""

    PERSON = "person"
    CHANNEL = "channel"
    WORKSPACE = "workspace"


class LimitPeriod(StrEnum):
    """Period of a limit: days and months of UTC."""

    DAY = "day"
    MONTH = "month"

    def start_of_period(self, now: float) -> float:
        """Return the start of the period that contains `now`, both in epoch seconds."""
        return self._first(now).timestamp()

    def end_of_period(self, now: float) -> float:
        """Return the start of the next period, in epoch seconds."""
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
    """Limit for each user, channel or workspace with a name that matches the pattern `only`. `most` is in tokens or
    micro-units.
    """

    per: LimitScope
    every: LimitPeriod
    unit: LimitUnit
    most: int
    only: str = "*"

    @property
    def kind(self) -> tuple[LimitScope, LimitPeriod, LimitUnit]:
        """Kind of the limit. At most one limit of each kind applies to a question."""
        return self.per, self.every, self.unit

    def used_amount(self, spent: UsageTotal, currency: str) -> int:
        """Return the used part of the limit."""
        return spent.tokens if self.unit is LimitUnit.TOKENS else spent.costs.get(currency, 0)


def limits_for(limits: Sequence[UsageLimit], spender: UsageOwner) -> Sequence[UsageLimit]:
    """Return the limits for a question: of each kind the first with a matching pattern."""
    strictest: dict[tuple[LimitScope, LimitPeriod, LimitUnit], UsageLimit] = {}
    for limit in limits:
        if matches_pattern(limit_owner(limit, spender), limit.only):
            strictest.setdefault(limit.kind, limit)
    return tuple(strictest.values())


def limit_owner(limit: UsageLimit, spender: UsageOwner) -> str:
    """Return the owner of the usage that a limit counts."""
    owner: str = getattr(spender, limit.per.value)
    return owner


@dataclass(frozen=True, slots=True)
class LimitStatus:
    """Used part of a limit and its reset time (epoch seconds)."""

    limit: UsageLimit
    used: int
    resets_at: float
    currency: str = ""

    @property
    def reached(self) -> bool:
        """True if the limit is used up."""
        return self.used >= self.limit.most

    @property
    def text(self) -> str:
        """Used part as text: `1,203 of 2,000 tokens`, `0.42 of 5.00 EUR`. The used amount has at least the decimal
        places of the limit, so that both read as equal only if the limit is reached.
        """
        if self.limit.unit is LimitUnit.TOKENS:
            return _("{used} of {limit}", used=format_number(self.used), limit=self.limit_text)
        return _("{used} of {limit}", used=format_money(self.used, self._places), limit=self.limit_text)

    @property
    def limit_text(self) -> str:
        """The limit as text: `2,000 tokens`, `5.00 EUR`."""
        if self.limit.unit is LimitUnit.TOKENS:
            return ngettext("{n} token", "{n} tokens", self.limit.most)
        return f"{Decimal(self.limit.most) / MICRO:,.{self._places}f} {self.currency}"

    @property
    def _places(self) -> int:
        most = Decimal(self.limit.most) / MICRO
        return max(_PLACES, -int(most.normalize().as_tuple().exponent))


def format_money(micro: int, places: int = _PLACES) -> str:
    """Return money as text: with cents, and with parts of a cent for small amounts. Amounts are rounded down; an amount
    below the smallest shown one is `<0.0001`.
    """
    value = Decimal(micro) / MICRO
    decimals = places if micro >= MICRO or micro % _CENT == 0 else max(places, _PLACES_OF_LITTLE)
    least = Decimal(1).scaleb(-decimals)
    return f"<{least:f}" if 0 < value < least else f"{value.quantize(least, ROUND_DOWN):,f}"
