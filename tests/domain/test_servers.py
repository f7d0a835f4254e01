"""Time limits of servers."""

from __future__ import annotations

import pytest

from bot.domain.servers import HttpKind, HttpTransport, ServerConfig, StdioTransport, Transport


@pytest.mark.parametrize(
    ("transport", "first", "later"),
    [
        (StdioTransport("npx"), 60, 30),
        *((HttpTransport("https://a.example", kind=kind), 10, 10) for kind in HttpKind),
    ],
)
def test_a_program_has_longer_to_start_than_an_address_to_answer_most_of_all_the_first_time(
    transport: Transport, first: float, later: float
) -> None:
    config = ServerConfig("s", transport)
    assert (config.connect_seconds(known=False), config.connect_seconds(known=True)) == (first, later)
    explicit = ServerConfig("s", transport, connect_timeout=7.5)
    assert {explicit.connect_seconds(known=known) for known in (True, False)} == {7.5}
