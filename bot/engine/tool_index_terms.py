"""The words that tools are told apart by: split, cut to their stems, and those that mean much the same.

Called by `tool_index`. Everyday language only: nothing here knows a tool or a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
"""Scripts written without spaces, or with particles glued to the words: Thai to Korean."""
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VOWEL = re.compile(r"[aeiouy]")
_LONGEST_WORD = 40
_EMPTY = """
    a about after all also am an and any anything are as at be been before but by can could d did do does each every
    for from has have how i if in into is it its just kindly let ll may me might more my need no not now of on one or
    our out over please s same shall should so some something still t than that the their them then there these they
    this those to too tool tools up us ve via want was we were what when where which who whose will with would you
    your
"""
"""Words that say nothing about which tool is meant."""
_ALIKE = """
    create add new make open register record insert draft write log file raise
    delete remove erase drop discard destroy purge clear
    list show enumerate overview display
    get fetch read retrieve show view look open display tell check see
    find search query look locate seek
    update edit change modify revise adjust set alter correct
    send post deliver mail submit
    start run launch trigger begin execute
    stop end halt cancel abort terminate kill
    close finish complete resolve done
    copy duplicate clone
    move transfer relocate
    upload attach put
    download export
    share grant give invite allow
    assign delegate owner hand
    approve accept confirm
    reject decline refuse deny
    restore recover undo revert rollback
    merge combine join
    schedule plan book reserve arrange
    convert translate transform turn
    compute calculate count sum total
    compare diff difference
    subscribe follow watch
    mute silence suppress snooze
    comment reply respond answer remark
    rename title name call
    tag label category mark
    summarize summary digest
    check verify validate test
    issue ticket bug task defect problem
    message mail email letter
    meeting event appointment
    person user member people employee colleague staff
    contact lead person
    team group department
    file document doc attachment
    folder directory
    picture image photo screenshot
    page article
    customer client account company
    invoice bill receipt
    payment charge money pay
    refund reimburse
    order purchase buy
    price cost fare
    product item goods
    stock inventory
    holiday vacation leave absence off
    salary wage payroll pay
    repository repo
    commit change
    release deployment deploy rollout ship
    server machine host instance
    error exception crash failure
    alert alarm warning incident outage
    metric measurement statistic
    chart graph plot diagram
    trip travel journey
    hotel room accommodation
    address place location
    route direction way
    password secret credential
    permission right access role
    deadline due
    chat channel
    link url
    person people
    version revision history
    free available availability
    delivery shipment parcel package
    discount coupon voucher
"""
"""A line for each group of words by which the same deed or thing is called. A word may be in several."""


def terms(text: str) -> Iterator[str]:
    """The stems of the words that say something, in order. Scripts without spaces come in pairs of characters."""
    for found in _WORD.findall(_CAMEL.sub(" ", text)):
        if _IS_UNSPACED.match(found):
            yield from (found[n : n + 2] for n in range(max(1, len(found) - 1)))
            continue
        word = found.casefold()[:_LONGEST_WORD]
        if word not in _SAYING_NOTHING:
            yield stem(word)


def stem(word: str) -> str:
    """The word without the endings by which forms of it differ: `policies` and `policy` become equal, and so do
    `scheduling`, `scheduled` and `schedule`, or `deletion` and `delete`. It is for comparing, not for reading.
    """
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("sses", "xes", "zes", "ches", "shes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed", "ion"):
        root = word.removesuffix(ending)
        if root == word or len(root) < 3 or not _VOWEL.search(root) or word.endswith("eed"):
            continue
        if ending == "ion" and root[-1] not in "ts":
            continue
        word = root[:-1] if root[-1] == root[-2] and root[-1] not in "lsz" else root
        break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


_SAYING_NOTHING = frozenset(_EMPTY.split())


def _alike() -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for line in _ALIKE.splitlines():
        group = [stem(word) for word in line.split()]
        for word in group:
            found.setdefault(word, {}).update((other, None) for other in group if other != word)
    return {word: tuple(others) for word, others in found.items()}


ALIKE = _alike()
"""The stems that may stand for another one."""
