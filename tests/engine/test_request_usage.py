"""Usage of a request, from the services' reports, consistent or not."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bot.domain.completions import ModelEvent, TextDelta, Usage, UsageReported
from bot.domain.conversations import ConversationKey
from bot.domain.turns import Claim
from bot.domain.usage import UsageKind
from bot.engine.usage import Estimates, RequestAttempt, estimate_text

CLAIM = Claim("t1", ConversationKey("test", "w", "hall", "1"), 1, 0)
WORDS = "Words that nobody has counted yet. "
ASKED = 100


def attempt_usage(*events: ModelEvent) -> Usage:
    attempt = RequestAttempt(CLAIM, 1, UsageKind.REPLY, "m", ASKED, estimates=Estimates())
    for event in events:
        attempt.take(event)
    assert attempt.entry is not None
    assert attempt.entry.estimated
    return attempt.entry.usage


def test_a_service_that_counts_nothing_until_the_end_takes_back_no_word() -> None:
    nothing_yet = UsageReported(Usage())
    assert attempt_usage(nothing_yet, TextDelta(WORDS), nothing_yet, TextDelta(WORDS), nothing_yet) == Usage(
        ASKED, round(estimate_text(WORDS * 2))
    )


def test_repeated_input_counts_do_not_count_later_output() -> None:
    read = UsageReported(Usage(5_000, 1, 4_000))
    assert attempt_usage(read, TextDelta(WORDS), read) == Usage(5_000, 1 + round(estimate_text(WORDS)), 4_000)


def test_counted_usage_stays_counted() -> None:
    assert attempt_usage(
        UsageReported(Usage(5_000, 30, 4_000, 500, 20)), UsageReported(), UsageReported(Usage(0, 40, 0, 0, 25))
    ) == Usage(5_000, 40, 4_000, 500, 25)


EVENTS = st.lists(
    st.one_of(
        st.builds(TextDelta, st.text("ab ", min_size=1, max_size=80)),
        st.builds(UsageReported, st.builds(Usage, st.integers(0, 9_000), st.integers(0, 900))),
    ),
    min_size=1,
)


@given(EVENTS)
def test_it_is_never_less_than_the_service_has_said_nor_nothing_where_something_was_written(
    events: Sequence[ModelEvent],
) -> None:
    found = attempt_usage(*events)
    said = [event.usage for event in events if isinstance(event, UsageReported)]
    written = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert found.input_tokens >= max((each.input_tokens for each in said), default=ASKED)
    most = max((each.output_tokens for each in said), default=0)
    assert most <= found.output_tokens <= most + round(estimate_text(written))
    assert found.output_tokens or round(estimate_text(written)) == 0
