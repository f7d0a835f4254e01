"""Pages of a form that is too long for one window: the fields of each page, and the carried answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bot.domain.commands import Field


class FormPages:
    """Pages of a form, with `size` fields each. `answers` are the earlier answers by field; those of unknown fields are
    dropped.
    """

    def __init__(self, fields: Sequence[Field], size: int, answers: Mapping[str, str]) -> None:
        self._fields = fields
        self._size = size
        self.answers = {field.name: answers[field.name] for field in fields if field.name in answers}

    @property
    def count(self) -> int:
        """Number of pages."""
        return -(-len(self._fields) // self._size)

    def page_of(self, name: str) -> int:
        """The step in which a field stands."""
        return [field.name for field in self._fields].index(name) // self._size

    def fields(self, number: int) -> Sequence[Field]:
        """The fields of a step, counted from 0; those of the last where there are not so many."""
        start = max(0, min(number, self.count - 1)) * self._size
        return self._fields[start : start + self._size]

    def carried(self, number: int) -> dict[str, str]:
        """The answers that go along with a step, since its own fields do not hold them."""
        names = {field.name for field in self.fields(number)}
        return {name: answer for name, answer in self.answers.items() if name not in names}

    def sort_errors(self, errors: Mapping[str, str]) -> dict[str, str]:
        """Errors by field, those of the first step first."""
        return dict(sorted(errors.items(), key=lambda each: self.page_of(each[0])))
