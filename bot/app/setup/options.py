"""Options of `countersign setup`."""

from __future__ import annotations

from dataclasses import dataclass, field

WORKSPACE = "workspace"
"""Value of `admin` that leaves it to the platform's own admins."""


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """What was said on the command line. No secret is among it: others can read the command line of a process.

    `print_only` asks nothing; `write` lets it do what needs no person. `wait` is in seconds for something that a person
    does elsewhere. `redo` names a step to be done again.
    """

    subject: str = ""
    print_only: bool = False
    write: bool = False
    stdin: bool = False
    as_json: bool = False
    redo: str = ""
    name: str = ""
    without: frozenset[str] = frozenset()
    http: str = ""
    server: str = ""
    channel: str = ""
    admin: str = ""
    approvers: tuple[str, ...] = field(default=())
    model: str = ""
    message: bool = True
    browser: bool = True
    wait: float = 180.0
