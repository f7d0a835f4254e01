"""Audit entries as values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bot.storage
from bot.domain.audit import KINDS, AuditHead

_RECORDED = re.compile(r'audit\.record(?:_once)?\(\s*connection,\s*"([^"]+)"')


def test_every_kind_of_row_that_is_written_can_be_looked_for() -> None:
    folder = Path(bot.storage.__file__).parent
    written = {kind for path in folder.rglob("*.py") for kind in _RECORDED.findall(path.read_text(encoding="utf-8"))}
    assert len(written) > 15
    assert written <= {kind for kinds in KINDS.values() for kind in kinds}


def test_no_kind_is_in_two_groups() -> None:
    kinds = [kind for kinds in KINDS.values() for kind in kinds]
    assert len(kinds) == len(set(kinds))


@given(st.integers(0, 10**18 - 1), st.binary(min_size=32, max_size=32))
def test_a_head_is_read_back_from_its_text(seq: int, digest: bytes) -> None:
    head = AuditHead(seq, digest.hex())
    assert AuditHead.parse(f" {head}\n") == head


@pytest.mark.parametrize(
    "text", ["", "7", ":", f"{'f' * 64}", f"-1:{'f' * 64}", f"1:{'f' * 63}", f"1:{'g' * 64}", "1:\n"]
)
def test_an_invalid_head_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the head of an audit"):
        AuditHead.parse(text)
