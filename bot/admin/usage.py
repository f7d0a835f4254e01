"""`/usage`: tokens and money, as a reply and as a report in JSON values, which is that of `GET /api/usage`.

Users see their own usage, admins that of their channel and workspace, the operator all. Money in a report is in units
of its currency, to the millionth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from bot.admin.command import CommandContext, CommandRejected, Verbs, option, verb
from bot.admin.text_format import MOMENT, format_expiry, format_moment, known_facts
from bot.domain.commands import Reply, RequiredRole, Table
from bot.domain.usage import (
    MICRO,
    LimitPeriod,
    LimitScope,
    LimitStatus,
    LimitUnit,
    UsageGrouping,
    UsageOwner,
    UsageQuery,
    UsageTotal,
    format_money,
    total,
)
from bot.i18n import _, format_date, format_number, format_time, format_time_zone, gettext_lazy, ngettext, pgettext_lazy

MOST_NAMES = 1_000
"""Names in one report."""
ROWS = 25
"""Names in one reply, the most expensive first."""
_SINCE = option("since", gettext_lazy("from then on, this month without it: {formats}", formats=MOMENT), metavar="TIME")
_BY = option("by", "group the sums by this", choices=tuple(UsageGrouping), metavar="|".join(UsageGrouping))
_LIMIT_NAMES = {
    (LimitScope.PERSON, LimitPeriod.DAY): gettext_lazy("your limit a day"),
    (LimitScope.PERSON, LimitPeriod.MONTH): gettext_lazy("your limit a month"),
    (LimitScope.CHANNEL, LimitPeriod.DAY): gettext_lazy("this channel's limit a day"),
    (LimitScope.CHANNEL, LimitPeriod.MONTH): gettext_lazy("this channel's limit a month"),
    (LimitScope.WORKSPACE, LimitPeriod.DAY): gettext_lazy("this workspace's limit a day"),
    (LimitScope.WORKSPACE, LimitPeriod.MONTH): gettext_lazy("this workspace's limit a month"),
}
_GROUPINGS = {
    UsageGrouping.PERSON: gettext_lazy("person"),
    UsageGrouping.CHANNEL: gettext_lazy("channel"),
    UsageGrouping.WORKSPACE: gettext_lazy("workspace"),
    UsageGrouping.MODEL: gettext_lazy("model"),
    UsageGrouping.KIND: gettext_lazy("kind"),
    UsageGrouping.DAY: gettext_lazy("day"),
}
_UNCOUNTED = gettext_lazy("the provider did not report all of it, or the reply is incomplete")
_PRICES = gettext_lazy("not counted as money. The operator sets prices in config/prices.toml")


class UsageVerbs(Verbs):
    """Verbs of `/usage`: totals and limits."""

    @verb(
        "me",
        "tokens and money that your questions took, by model",
        (_SINCE, _BY),
        who=RequiredRole.EVERYONE,
        aliases=("mine",),
        reads=True,
    )
    async def _me(self, request: CommandContext) -> Reply:
        query = UsageQuery(self._since(request), person=request.author.principal)
        spender = UsageOwner.of(request.author, request.conversation)
        return await self._reply(
            _("Your usage"),
            query,
            _grouping(request, UsageGrouping.MODEL),
            await self._dependencies.process.usage_limits(spender),
        )

    @verb("channel", "usage of this channel, by user", (_SINCE, _BY), reads=True)
    async def _channel(self, request: CommandContext) -> Reply:
        spender = UsageOwner.of(request.author, request.conversation)
        query = UsageQuery(self._since(request), channel=spender.channel, workspace=spender.workspace)
        limits = [
            balance
            for balance in await self._dependencies.process.usage_limits(spender)
            if balance.limit.per is not LimitScope.PERSON
        ]
        return await self._reply(_("This channel"), query, _grouping(request, UsageGrouping.PERSON), limits)

    @verb("workspace", "usage of this workspace, by user", (_SINCE, _BY), reads=True)
    async def _workspace(self, request: CommandContext) -> Reply:
        spender = UsageOwner.of(request.author, request.conversation)
        query = UsageQuery(self._since(request), workspace=spender.workspace)
        limits = [
            balance
            for balance in await self._dependencies.process.usage_limits(spender)
            if balance.limit.per is LimitScope.WORKSPACE
        ]
        return await self._reply(_("This workspace"), query, _grouping(request, UsageGrouping.PERSON), limits)

    @verb("all", "usage of all workspaces, for the operator", (_SINCE, _BY), reads=True)
    async def _all(self, request: CommandContext) -> Reply:
        if not self._dependencies.rights.administers_everywhere(request.member):
            raise CommandRejected(_("Only the operator sees every workspace. You can use `/usage workspace`."))
        query = UsageQuery(self._since(request))
        return await self._reply(_("All workspaces"), query, _grouping(request, UsageGrouping.WORKSPACE), ())

    async def _reply(self, whose: str, query: UsageQuery, by: UsageGrouping, limits: Sequence[LimitStatus]) -> Reply:
        sums = await self._dependencies.stores.usage.totals_by(query, by)
        if by is UsageGrouping.DAY:
            sums = sorted(sums, key=itemgetter(0), reverse=True)
        questions = await self._dependencies.stores.usage.count_questions(query)
        overall = replace(total(spent for _name, spent in sums), questions=questions)
        now = self._dependencies.clock()
        limit_facts = tuple(
            (_LIMIT_NAMES[limit.limit.per, limit.limit.every], _limit_text(limit, now)) for limit in limits
        )
        data = usage_report(query.since, by, sums, limits, questions)
        if not overall.requests:
            return Reply(
                _("{whose}: no model was asked since {time}.", whose=whose, time=_since_text(query.since)),
                details=limit_facts,
                data=data,
            )
        rows = tuple((name or _("not known"), *_row(spent)) for name, spent in sums[:ROWS])
        count = f"{_estimate_mark(overall)}{format_number(overall.tokens)}"
        asked = ngettext("{n} question", "{n} questions", questions)
        used = " · ".join(filter(None, (asked, _("{count} tokens", count=count), _money(overall))))
        return Reply(
            _("{whose} · {used} · since {time}", whose=whose, used=used, time=_since_text(query.since)),
            Table(
                (
                    _GROUPINGS[by],
                    "questions",
                    pgettext_lazy("tokens", "in"),
                    pgettext_lazy("tokens", "cached"),
                    pgettext_lazy("tokens", "out"),
                    "cost",
                ),
                rows,
                bars=tuple(float(sum(spent.costs.values()) or spent.tokens) for _name, spent in sums[:ROWS]),
            ),
            (*limit_facts, *_facts(overall, len(sums) - ROWS)),
            data=data,
        )

    def _since(self, request: CommandContext) -> float:
        now = self._dependencies.clock()
        given = request.arguments.since(now)
        return LimitPeriod.MONTH.start_of_period(now) if given is None else given


def _grouping(request: CommandContext, otherwise: UsageGrouping) -> UsageGrouping:
    word = request.arguments.get("by")
    return UsageGrouping(word) if word else otherwise


def _row(spent: UsageTotal) -> tuple[str, ...]:
    usage, about = spent.usage, _estimate_mark(spent)
    tokens = (
        f"{about}{format_number(usage.input_tokens)}",
        format_number(usage.cached_tokens),
        f"{about}{format_number(usage.output_tokens)}",
    )
    return (str(spent.questions), *tokens, _money(spent) or _("no price"))


def _money(spent: UsageTotal) -> str:
    about = _estimate_mark(spent)
    return ", ".join(f"{about}{format_money(cost)} {currency}" for currency, cost in sorted(spent.costs.items()))


def _estimate_mark(spent: UsageTotal) -> str:
    return "~" if spent.estimated else ""


def _limit_text(balance: LimitStatus, now: float) -> str:
    texts = {
        "used": balance.text,
        "time": f"{format_time(balance.resets_at)} {format_time_zone()}",
        "when": format_expiry(balance.resets_at, now),
    }
    if balance.reached:
        return _("{used}, nothing is left; resets at {time}, {when}", **texts)
    return _("{used}; resets at {time}, {when}", **texts)


def _requests(count: int, total: int, note: str) -> str:
    of_all = ngettext("{count} of {n} request to models", "{count} of {n} requests to models", total, count=count)
    return "; ".join((of_all, str(note)))


def _facts(overall: UsageTotal, left_out: int) -> tuple[tuple[str, str], ...]:
    written, reasoning = overall.usage.cache_writes, overall.usage.reasoning_tokens
    return known_facts(
        (
            gettext_lazy("written to the cache"),
            _("{count} tokens of those that went in", count=format_number(written)) if written else "",
        ),
        (
            gettext_lazy("reasoning"),
            _("{count} tokens of those that came out", count=format_number(reasoning)) if reasoning else "",
        ),
        (
            gettext_lazy("estimated"),
            _requests(overall.estimated, overall.requests, _UNCOUNTED) if overall.estimated else "",
        ),
        (
            gettext_lazy("without a price"),
            _requests(overall.unpriced, overall.requests, _PRICES) if overall.unpriced else "",
        ),
        (gettext_lazy("left out"), ngettext("{n} name", "{n} names", left_out) if left_out > 0 else ""),
    )


# -------------------- report


def usage_report(
    since: float,
    by: UsageGrouping,
    sums: Sequence[tuple[str, UsageTotal]],
    limits: Iterable[LimitStatus],
    questions: int,
) -> Mapping[str, Any]:
    """Return usage since a time (epoch seconds): the total with its number of questions, and at most `MOST_NAMES`
    sums.
    """
    return {
        "since": _moment(since),
        "by": by.value,
        "total": _total_report(replace(total(spent for _name, spent in sums), questions=questions)),
        "sums": [{"name": name, **_total_report(spent)} for name, spent in sums[:MOST_NAMES]],
        "omitted": max(0, len(sums) - MOST_NAMES),
        "limits": [_limit_report(limit) for limit in limits],
    }


def _total_report(spent: UsageTotal) -> dict[str, Any]:
    usage = spent.usage
    return {
        "questions": spent.questions,
        "requests": spent.requests,
        "inputTokens": usage.input_tokens,
        "cachedTokens": usage.cached_tokens,
        "cacheWrites": usage.cache_writes,
        "outputTokens": usage.output_tokens,
        "reasoningTokens": usage.reasoning_tokens,
        "costs": {currency: cost / MICRO for currency, cost in spent.costs.items()},
        "unpriced": spent.unpriced,
        "estimated": spent.estimated,
    }


def _limit_report(balance: LimitStatus) -> dict[str, Any]:
    limit = balance.limit
    of_money = limit.unit is LimitUnit.MONEY
    return {
        "per": limit.per.value,
        "every": limit.every.value,
        "unit": limit.unit.value,
        "used": balance.used / MICRO if of_money else balance.used,
        "most": limit.most / MICRO if of_money else limit.most,
        "currency": balance.currency if of_money else "",
        "resetsAt": _moment(balance.resets_at),
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _since_text(since: float) -> str:
    """Return the begin of a period: a date if it is midnight, such as the first day of a month."""
    moment = format_moment(since)
    day = moment.removesuffix(" 00:00:00")
    return format_date(since) if day != moment else f"{moment} {format_time_zone()}"
