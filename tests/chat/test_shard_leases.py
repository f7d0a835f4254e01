"""Shares of shards: the number for each process, and the process that releases a shard."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bot.chat.listener_leases import share_of

NAMES = "abcde"


@given(
    st.integers(1, 12),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.dictionaries(st.integers(0, 11), st.sampled_from(NAMES)),
)
def test_every_shard_is_in_one_share_and_shares_differ_by_one_at_most(
    shards: int, processes: set[str], holders: dict[int, str]
) -> None:
    shares = {process: share_of(process, shards, processes, holders) for process in processes}
    if len(processes) <= shards:
        numbers = sorted(number for share in shares.values() for number in share)
        assert numbers == list(range(shards))
        sizes = [len(share) for share in shares.values()]
        assert max(sizes) - min(sizes) <= 1
    else:
        assert set().union(*shares.values()) == set(range(shards))
        assert {len(share) for share in shares.values()} == {
            1
        }  # the other processes share a shard number, and stand by


@given(st.integers(1, 12), st.sets(st.sampled_from(NAMES), min_size=1))
def test_shards_stay_with_their_holders(shards: int, processes: set[str]) -> None:
    holders = {
        number: process for process in sorted(processes)[:shards] for number in share_of(process, shards, processes, {})
    }
    for process in set(holders.values()):
        held = {number for number, holder in holders.items() if holder == process}
        assert share_of(process, shards, processes, holders) == held


def test_a_process_that_comes_gets_shards_of_those_with_more_and_one_that_goes_leaves_its_own() -> None:
    alone = dict.fromkeys(range(4), "a")
    assert share_of("a", 4, {"a", "b"}, alone) == {0, 1}
    assert share_of("b", 4, {"a", "b"}, alone) == {2, 3}
    assert share_of("b", 4, {"b"}, {0: "a", 1: "a", 2: "b", 3: "b"}) == {0, 1, 2, 3}
    assert share_of("b", 1, {"a", "b"}, {0: "a"}) == {0}  # waits for the lease
