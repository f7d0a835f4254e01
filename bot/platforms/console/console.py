"""The forms of the terminal, ready to run: on a screen, one question, or a pipe.

Called by the application, which runs the listener and gives the surface to whoever draws turns. prompt_toolkit is
loaded only for the screen, rich only when the screen has something to draw.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Protocol, TextIO

from bot.platforms.console.auto_approval import ApproveMode, AutoApprover
from bot.platforms.console.elicitation_prompt import ElicitationPrompt, InputLines
from bot.platforms.console.headless import HeadlessHandlers, OneQuestion, Output, PipedChat
from bot.platforms.console.input_lines import input_lines
from bot.platforms.console.local_user import LocalUser
from bot.platforms.console.plain_output import JsonLines, PlainStream
from bot.platforms.console.startup import StartState
from bot.platforms.console.surface import ConsoleSurface, Drawing
from bot.platforms.console.theme import ConsoleTheme
from bot.platforms.console.turn_tracker import TurnTracker
from bot.ports import Commands, EngineApi


class ConsoleListener(Protocol):
    """A listener that ends by itself, with the exit code of the process."""

    async def run(
        self, engine: Awaitable[EngineApi], commands: Awaitable[Commands], opening: Awaitable[StartState]
    ) -> int:
        """Listen; the three may arrive later, or fail with a CountersignError, which becomes one line and a 1."""

    def interrupt(self) -> None:
        """SIGINT: stop what runs, and leave with 130 where that is all there was to do."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Where a process reads and writes, and the environment that says how."""

    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]

    @property
    def interactive(self) -> bool:
        """Whether there is a person at a terminal that can move its cursor."""
        return self.stdin.isatty() and self.stdout.isatty() and self.environ.get("TERM", "") not in ("dumb", "unknown")


@dataclass(frozen=True, slots=True)
class Terminal:
    """A listener and the surface that belongs to it."""

    listener: ConsoleListener
    surface: ConsoleSurface


def on_screen(
    person: LocalUser,
    streams: Streams,
    *,
    model: str,
    approve: ApproveMode = ApproveMode.ASK,
    history: Path | None = None,
    files: Path | None = None,
    quiet_seconds: float | None = None,
    clock: Callable[[], float] = monotonic,
    shared: bool = False,
) -> Terminal:
    """The interactive chat. `model` is the label in the banner, `history` the file of typed lines, `files` the folder
    for what tools return in files, `quiet_seconds` how long the keyboard must have been still before a card takes a
    key, `clock` what the seconds of waiting are read from, `shared` whether other processes work on the same database.
    """
    from bot.platforms.console.assembly import interactive  # noqa: PLC0415 - pipes must not wait for prompt_toolkit

    watch = TurnTracker(shared=shared)
    listener, page = interactive(
        person=person,
        streams=streams,
        watch=watch,
        model=model,
        approve=approve,
        history=history,
        quiet_seconds=quiet_seconds,
        clock=clock,
    )
    return Terminal(listener, ConsoleSurface(person, watch, page, files))


def one_question(
    text: str,
    person: LocalUser,
    streams: Streams,
    *,
    approve: ApproveMode = ApproveMode.ASK,
    json: bool = False,
    files: Path | None = None,
    shared: bool = False,
) -> Terminal:
    """`-m TEXT`: the answer on standard output, everything else on standard error; `json` for events instead."""
    watch, drawing, clerk = _batch(person, streams, approve, json=json, shared=shared)
    deputies = HeadlessHandlers(clerk, ElicitationPrompt(person, drawing.notice))
    listener = OneQuestion(text, person, watch, deputies, _output(streams))
    return Terminal(listener, ConsoleSurface(person, watch, drawing, files))


def piped(
    person: LocalUser,
    streams: Streams,
    *,
    approve: ApproveMode = ApproveMode.ASK,
    json: bool = False,
    files: Path | None = None,
    shared: bool = False,
) -> Terminal:
    """Every line of standard input is a message, or an answer to what a server asks back."""
    watch, drawing, clerk = _batch(person, streams, approve, json=json, shared=shared)
    lines = InputLines(input_lines(streams.stdin))
    deputies = HeadlessHandlers(clerk, ElicitationPrompt(person, drawing.notice, lines))
    listener = PipedChat(lines, person, watch, deputies, _output(streams))
    return Terminal(listener, ConsoleSurface(person, watch, drawing, files))


def _batch(
    person: LocalUser, streams: Streams, approve: ApproveMode, *, json: bool, shared: bool
) -> tuple[TurnTracker, Drawing, AutoApprover]:
    look = ConsoleTheme.of(streams.stderr, streams.environ)
    kind = JsonLines if json else PlainStream
    drawing: Drawing = kind(streams.stdout, streams.stderr, look)
    return TurnTracker(shared=shared), drawing, AutoApprover(approve, person, drawing.notice)


def _output(streams: Streams) -> Output:
    return Output(streams.stdout, streams.stderr)


def process_streams() -> Streams:
    """Those of this process."""
    import sys  # noqa: PLC0415 - nothing else here touches the process

    return Streams(sys.stdin, sys.stdout, sys.stderr, os.environ)
