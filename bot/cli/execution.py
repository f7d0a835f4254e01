"""Execution of a command: consent to its folder, errors as one line, outcomes as exit codes.

Commands return FAILED if a check fails.

The first command in a working folder asks for consent to its files, because a cloned repository may have files that
start programs and send questions elsewhere. Only an installed program asks: running it from its source, or setting
COUNTERSIGN_HOME, is a choice of the folder.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from bot.domain.characters import spell_hidden
from bot.domain.launch_variables import variable_effect
from bot.domain.locales import Locale, system_locale, use_locale
from bot.errors import CountersignError, InvalidOption, SettingsError
from bot.folders import HOME_VARIABLE, Folders, copy_defaults, find_folders, in_shell
from bot.machine import drop_key_log, machine_problems

if TYPE_CHECKING:
    # Loaded by commands with settings alone: other agents start `hook` for each of their calls.
    from bot.settings import Settings

P = ParamSpec("P")
FAILED, USAGE, INTERRUPTED = 1, 2, 130

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]
_LONGEST_CONSENT = 10_000
"""Characters of a folder's files that are shown before its user agrees."""
_PRIVATE_FILE, _PRIVATE_FOLDER = 0o600, 0o700


def run_command(
    run: Callable[[Settings], Coroutine[Any, Any, int]], *, debug: bool, needs_consent: bool = True
) -> None:
    """Run a command with the loaded settings, in the language of the terminal, and exit with its code. A command that
    starts nothing and sends nothing needs no consent to the files of the working folder.
    """

    def start() -> int:
        import asyncio  # noqa: PLC0415 - see the import of the settings

        from bot.settings import read_settings  # noqa: PLC0415

        _check_working_folder()
        if needs_consent:
            require_consent(find_folders())
        settings = read_settings()
        _fill_own_folders()
        with use_locale(system_locale(os.environ).or_else(Locale(settings.language, settings.time_zone))):
            return asyncio.run(run(settings))

    run_plainly(start, debug=debug)


def run_plainly(run: Callable[[], int], *, debug: bool = False, failed: int = FAILED) -> None:
    """Run a command without settings in the language of the terminal, and exit with its code; with `failed` after an
    error that is none of its options.
    """
    with use_locale(system_locale(os.environ)):
        code = _run(run, debug=debug, failed=failed)
    raise typer.Exit(code)


def command(run: Callable[Concatenate[Settings, P], Coroutine[Any, Any, int]]) -> Callable[..., None]:
    """Return a function of the command line: it has the parameters behind the settings as options, and `--debug`."""

    def start(debug: bool, *arguments: P.args, **options: P.kwargs) -> None:
        run_command(lambda settings: run(settings, *arguments, **options), debug=debug)

    _settings, *parameters = inspect.signature(run, eval_str=True).parameters.values()
    parameters.append(inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug))
    start.__name__, start.__doc__ = run.__name__, run.__doc__
    start.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(start)["__signature__"] = inspect.Signature(parameters)
    return start


def _run(run: Callable[[], int], *, debug: bool, failed: int) -> int:
    printed = [str(problem) for problem in machine_problems()]
    for problem in printed:
        print_error(problem)
    drop_key_log()
    try:
        return run()
    except CountersignError as error:
        if debug:
            traceback.print_exc()
        if str(error) not in printed:
            print_error(str(error))
        return USAGE if isinstance(error, SettingsError | InvalidOption) else failed
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # last resort: users get one line, not a traceback
        if isinstance(error, OSError) and output_failed("\n"):
            return failed
        if debug:
            raise
        print_error(f"Something broke ({type(error).__name__}: {error}). Fix: run it with --debug to see where")
        return failed


def output_failed(last: str = "") -> bool:
    """Flush the standard streams, that of the output with a last text where a lost one is not tried again. Return True
    if the output fails, after one line with the reason, or in silence if the reader of a pipe has closed it.
    """
    failed = False
    for stream, text in ((sys.stdout, last), (sys.stderr, "")):
        try:
            if text:
                stream.write(text)
            stream.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            failed = failed or stream is sys.stdout
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                print_error(f"The output cannot be written: {error.strerror}. Fix: write it to another place")
    return failed


def _check_working_folder() -> None:
    """Raise SettingsError for a working folder that is gone."""
    try:
        Path.cwd()
    except OSError as error:
        raise SettingsError(f"The working folder cannot be used: {error.strerror}.", "run it in another") from error


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
    with suppress(OSError):  # as of a full disk
        typer.echo(f"countersign: {' '.join(visible.split())}", err=True)


def require_consent(folders: Folders) -> None:
    """Ask at the terminal for consent to the files of a working folder that was never used before. Raises SettingsError
    without consent, and without a terminal.
    """
    if not folders.own_files or _is_known(folders):
        return
    folder = Path.cwd()
    cause = f"{str(folder)!r} has files for Countersign that you have not used before: {', '.join(folders.own_files)}."
    fix = (
        f"if they are yours, run countersign there in a terminal and answer yes, or set {HOME_VARIABLE}=. ; "
        "if not, run it in another folder"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise SettingsError(cause, fix)
    lines = list(_folder_lines(folders))
    if sum(map(len, lines)) > _LONGEST_CONSENT:
        too_long = f"{cause} They have more than the {_LONGEST_CONSENT} characters that are shown whole."
        raise SettingsError(too_long, f"read them, and if you trust whoever wrote them, set {HOME_VARIABLE}=.")
    sys.stderr.write(
        f"countersign: {cause}\n"
        + "".join(f"  {line}\n" for line in lines)
        + "They decide which programs start, who is asked before a call, and where questions are sent.\n"
        "Use them? Answer yes only if you trust whoever wrote them. [y/N] "
    )
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise SettingsError("The files of this folder are not used.", "run countersign in another folder")
    remember(folders)


def _folder_lines(folders: Folders) -> Iterator[str]:
    """Yield what the files of a folder start, allow and set, each on one line, escaped and unmasked."""
    from dotenv import dotenv_values  # noqa: PLC0415 - the other commands ask nothing

    from bot.admin.command import CommandRejected  # noqa: PLC0415
    from bot.admin.servers.launch_consent import consent_facts  # noqa: PLC0415
    from bot.domain.server_files import find_sections, plain_json  # noqa: PLC0415
    from bot.mcp.config.file import ConfigEntry, server_config  # noqa: PLC0415
    from bot.mcp.errors import InvalidDefinition  # noqa: PLC0415

    for name, value in dotenv_values(stream=StringIO(_read(folders.env_file)), interpolate=False).items():
        yield spell_hidden(f"{folders.env_file}: {name}={value} {variable_effect(name)}".rstrip())
    programs = (line.strip() for line in _read(folders.config / "allowed_commands.txt").splitlines())
    yield from (spell_hidden(f"allowed: {line}") for line in programs if line and not line.startswith("#"))
    try:
        document = json.loads(plain_json(_read(folders.config / "mcp_servers.json")))
    except (ValueError, RecursionError):
        return  # nothing of it can start
    for _at, section in find_sections(document) if isinstance(document, dict) else ():
        for name, entry in section.items():
            try:
                facts = consent_facts(server_config(ConfigEntry(name, entry, None)))
            except (InvalidDefinition, CommandRejected, AttributeError):
                facts = (("server", spell_hidden(json.dumps(entry, ensure_ascii=False))),)
            yield from (f"{spell_hidden(name)}: {fact}: {text}" for fact, text in facts)


def _read(path: Path) -> str:
    """Return the text of a file; empty if it cannot be read, and then not used either."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8-sig", errors="replace") if path.is_file() else ""
    return ""


def remember(folders: Folders) -> None:
    """Note that the files of the working folder count. Without a place for the note, the question comes again."""
    if folders.memory is None:
        return
    with suppress(OSError):
        folders.memory.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
        file = os.open(folders.memory, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _PRIVATE_FILE)
        try:
            os.write(file, f"{_line_of_working_folder()}\n".encode())
        finally:
            os.close(file)


def _is_known(folders: Folders) -> bool:
    if folders.memory is None:
        return False
    try:
        return _line_of_working_folder() in folders.memory.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False


def _line_of_working_folder() -> str:
    return json.dumps(str(Path.cwd().resolve()))  # in ASCII, whatever bytes a name has
