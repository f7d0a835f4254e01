from __future__ import annotations

from typing import Any

import pytest

from mcp_servers.weather.areas import AmbiguousArea, AreaTable, UnknownArea, spelling
from mcp_servers.weather.jma_json import Unreadable
from mcp_servers.weather.sample_data import bundled_areas
from tests.fakes.jma import area_file

PREFECTURES = """
    Aomori Iwate Miyagi Akita Yamagata Fukushima Ibaraki Tochigi Gunma Saitama Chiba Tokyo Kanagawa Niigata Toyama
    Ishikawa Fukui Yamanashi Nagano Gifu Shizuoka Aichi Mie Shiga Kyoto Osaka Hyogo Nara Wakayama Tottori Shimane
    Okayama Hiroshima Yamaguchi Tokushima Kagawa Ehime Kochi Fukuoka Saga Nagasaki Kumamoto Oita Miyazaki Kagoshima
    Okinawa
"""
"""All but Hokkaido, which has eight offices, in the order of their numbers from 2 to 47."""


@pytest.mark.parametrize(("number", "name"), list(zip(range(2, 48), PREFECTURES.split(), strict=True)))
def test_every_prefecture_is_found_by_its_name(number: int, name: str) -> None:
    assert bundled_areas().resolve(name).code.startswith(f"{number:02}")


@pytest.mark.parametrize(
    ("spoken", "code"),
    [
        ("Sapporo", "016000"),
        ("Nagoya", "230000"),
        ("Yokohama", "140000"),
        ("Sendai", "040000"),
        ("Kobe", "280000"),
        ("Naha", "471000"),
        ("那覇", "471000"),
        ("神戸市", "280000"),
        ("Kōbe", "280000"),
        ("NAGOYA, Aichi", "230000"),
        ("京都", "260000"),
        ("東京", "130000"),
        ("甲府", "190000"),
        ("津", "240000"),
        ("四日市", "240000"),
        ("Tokyo Prefecture", "130000"),
        ("Kushiro", "014100"),
        ("Obihiro", "014030"),
        ("Amami", "460040"),
        ("Kagoshima", "460100"),
        ("011000", "011000"),
    ],
)
def test_cities_and_spellings_people_use_lead_to_their_office(spoken: str, code: str) -> None:
    assert bundled_areas().resolve(spoken).code == code


def test_a_city_away_from_the_capital_knows_its_part_of_the_district() -> None:
    place = bundled_areas().resolve("Hamamatsu")
    assert (place.code, place.local_code, place.label) == ("220000", "220040", "Hamamatsu City (浜松市)")


def test_a_region_of_several_offices_is_ambiguous_and_names_them() -> None:
    with pytest.raises(AmbiguousArea) as several:
        bundled_areas().resolve("Hokkaido")
    assert [place.code for place in several.value.candidates][:2] == ["011000", "012000"]


@pytest.mark.parametrize("text", ["", "  ", "Atlantis", "000000", "、"])
def test_nothing_is_found_for_an_unknown_place(text: str) -> None:
    assert bundled_areas().find(text, 10) == []
    with pytest.raises(UnknownArea):
        bundled_areas().resolve(text)


def test_finding_gives_the_best_matches_first_and_an_office_only_once() -> None:
    found = bundled_areas().find("kyo", 10)
    assert [place.english_name for place in found] == ["Tokyo", "Kyoto"]
    assert len(bundled_areas().find("a", 10)) == 10


def test_a_municipality_leads_upwards_through_every_level() -> None:
    place = AreaTable.read(area_file()).resolve("Kameoka")
    assert (place.code, place.local_code, place.spoken) == ("260000", "260010", "亀岡市")


def test_a_part_whose_parents_are_missing_is_left_out() -> None:
    table = area_file()
    del table["class15s"]["260011"]
    with pytest.raises(UnknownArea):
        AreaTable.read(table).resolve("Kameoka")


@pytest.mark.parametrize("value", [None, [], {}, {"offices": {}}, {"offices": {"1": "x"}}, {"offices": []}])
def test_a_table_without_offices_is_unreadable(value: Any) -> None:
    with pytest.raises(Unreadable):
        AreaTable.read(value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Sapporo City", "sapporo"),
        ("東京都", "東京"),
        ("京都", "京都"),
        ("防府", "防府"),
        ("Ōita", "oita"),
        ("がっさん", "がっさん"),
    ],
)
def test_spelling_keeps_differences_of_names(name: str, expected: str) -> None:
    assert spelling(name) == expected
