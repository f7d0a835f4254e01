"""One person's part of what goes on at once."""

from __future__ import annotations

from bot.reception.portions import Portions


def test_a_person_has_so_much_in_hand_and_others_their_own() -> None:
    portions = Portions(2)
    assert [portions.begin("ana") for _ in range(3)] == [True, True, False]
    assert portions.begin("priya")
    portions.end("ana")
    assert portions.begin("ana")
    assert not portions.begin("ana")


def test_whoever_has_nothing_in_hand_is_forgotten() -> None:
    portions = Portions(1)
    for number in range(10_000):
        assert portions.begin(str(number))
        portions.end(str(number))
    assert portions._in_hand == {}
