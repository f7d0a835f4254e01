"""A definition of a server that cannot be used, and what a header may look like."""

from __future__ import annotations

import re

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")


class Unusable(Exception):
    """A server cannot be used as it is defined: `cause` is a sentence, `fix` an order without its full stop. Neither
    holds a secret. `key` is the wrong key of the server's entry, such as `headers.Authorization`; empty if no
    single key is wrong.
    """

    def __init__(self, cause: str, fix: str, key: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.fix = fix
        self.key = key

    @property
    def sentence(self) -> str:
        """Both in one."""
        return f"{self.cause} Fix: {self.fix}."


def header_fits(name: str, value: str) -> bool:
    """Both can be sent as they are: a line break in either would be another header."""
    return bool(_HEADER_NAME.fullmatch(name)) and value.isascii() and value.isprintable()
