"""Pictures of numbers, drawn as SVG without styles of their own."""

from __future__ import annotations

from collections.abc import Sequence

WIDTH = 100


def bar_widths(numbers: Sequence[float]) -> list[float]:
    """Return the widths of bars that compare these numbers, the longest of `WIDTH`."""
    most = max(numbers, default=0.0)
    return [round(WIDTH * max(number, 0.0) / most, 1) if most > 0 else 0.0 for number in numbers]
