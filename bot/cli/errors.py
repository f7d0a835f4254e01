"""Execution of a command: errors become one line, outcomes become exit codes.

Commands return FAILED if a check fails.
"""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Annotated, Any

import typer

from bot.cli.folder_consent import require_consent
from bot.domain.locales import Locale, system_locale, use_locale
from bot.errors import CountersignError, InvalidOption, SettingsError
from bot.folders import copy_defaults, find_folders, in_shell
from bot.settings import Settings, read_settings

FAILED, USAGE, INTERRUPTED = 1, 2, 130

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def run_command(
    command: Callable[[Settings], Coroutine[Any, Any, int]], *, debug: bool, needs_consent: bool = True
) -> None:
    """Run a command with the loaded settings, in the language of the terminal, and exit with its code. A command that
    starts nothing and sends nothing needs no consent to the files of the working folder.
    """
    locale = system_locale(os.environ)
    with use_locale(locale):
        code = _run(command, locale, debug=debug, needs_consent=needs_consent)
    sys.stdout.flush()
    raise typer.Exit(code)


def _run(
    command: Callable[[Settings], Coroutine[Any, Any, int]], locale: Locale, *, debug: bool, needs_consent: bool
) -> int:
    try:
        if needs_consent:
            require_consent(find_folders())
        _fill_own_folders()
        settings = read_settings()
        with use_locale(locale.or_else(Locale(settings.language, settings.time_zone))):
            code = asyncio.run(command(settings))
    except CountersignError as error:
        if debug:
            traceback.print_exc()
        print_error(str(error))
        code = USAGE if isinstance(error, SettingsError | InvalidOption) else FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed it: no further output is possible.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    except Exception as error:  # last resort: users get one line, not a traceback
        if debug:
            raise
        print_error(f"Something broke ({type(error).__name__}: {error}). Fix: run it with --debug to see where")
        code = FAILED
    return code


def _fill_own_folders() -> None:
    """At the first start of an installed program, put its files where their user can edit them, and say where."""
    folders = find_folders()
    if folders.is_filled:
        return
    with suppress(OSError):  # as in a read-only home: the program's own files count
        copy_defaults(folders.config)
        folders.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        print_error(
            f"your servers, policies and prompt are in {folders.config}, your data is in {folders.data}. "
            "`countersign config path` lists the files"
        )


def print_error(problem: str) -> None:
    """Print an error on one line."""
    visible = "".join(character if character.isprintable() else " " for character in in_shell(problem))
    typer.echo(f"countersign: {' '.join(visible.split())}", err=True)
