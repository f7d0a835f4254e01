"""The files in deploy/, read as Docker reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
import yaml  # type: ignore[import-untyped]  # it comes with the test tools

from bot.app.service import COMPONENTS
from bot.cli.commands import app

PROJECT = Path(__file__).parents[2]
DEPLOY = PROJECT / "deploy"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile: its name, and all that follows it."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Words of the instruction: the JSON form parsed, any other split at its blanks."""
        start = self.rest.find("[")
        if self.name in {"CMD", "ENTRYPOINT", "HEALTHCHECK"} and start >= 0:
            found: list[str] = json.loads(self.rest[start:])
            return found
        return self.rest.split()


def stages() -> list[list[Instruction]]:
    """Return the stages of the image, from each FROM on. Lines before the first belong to all of them."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    found = [Instruction(*line.split(maxsplit=1)) for line in lines.splitlines() if line.strip()]
    starts = [n for n, each in enumerate(found) if each.name == "FROM"]
    before = found[: starts[0]]
    return [before + found[a:b] for a, b in zip(starts, [*starts[1:], len(found)], strict=True)]


def stage(name: str) -> list[Instruction]:
    """The stage of this name."""
    [found] = [
        each for each in stages() if any(line.name == "FROM" and line.words[-2:] == ["AS", name] for line in each)
    ]
    return found


def image() -> list[Instruction]:
    """The image that is built without a target."""
    last = [line.rest for line in stages()[-1] if line.name != "ARG"]
    assert last == ["bot"]  # another name of that stage, so that it need not be last
    return stage("bot")


def image_environment() -> dict[str, str]:
    """The variables that the image sets."""
    pairs = (word for each in image() if each.name == "ENV" for word in each.words)
    return dict(pair.split("=", 1) for pair in pairs)


def compose(name: str) -> dict[str, Any]:
    """A compose file, merges and anchors resolved."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return found


def bots(file: Mapping[str, Any]) -> dict[str, Any]:
    """The services of a compose file that are this program."""
    return {name: each for name, each in file["services"].items() if each.get("image", "countersign") == "countersign"}


def interpolated_value(text: str, **variables: str) -> str:
    """A value as Compose hands it on: `${NAME:-default}`, `${NAME:?why}` and `$$`."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1]) or found[2] or ""

    return re.sub(r"\$\$|\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}", value, text)


def is_a_command(words: list[str]) -> bool:
    """True if the command line takes these words, and a `run` the parts that it names."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest and hasattr(command, "commands"):
        command = command.commands.get(rest.pop(0))
    if command is None or hasattr(command, "commands"):
        return False
    known = {option for parameter in command.params for option in parameter.opts}
    parts = rest[rest.index("--only") + 1].split(",") if "--only" in rest else []
    return {word for word in rest if word.startswith("-")} <= known and set(parts) <= set(COMPONENTS)


def procfile() -> Iterator[tuple[str, list[str]]]:
    """The processes of the Procfile, and the words of each."""
    for line in (PROJECT / "Procfile").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, command = line.partition(":")
            yield name, command.split()
