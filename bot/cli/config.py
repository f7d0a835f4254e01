"""`config`: files and folders in use, and the files of a new installation."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from bot.cli.execution import FAILED, Debug, print_error, remember, run_command
from bot.folders import Folders, copy_defaults, find_folders
from bot.settings import Settings

commands = typer.Typer(help="Files and folders: which are in use, and the files to begin with.", rich_markup_mode=None)


class PathOption(StrEnum):
    """Names of `config path`."""

    CONFIG = "config"
    DATA = "data"
    ENV = "env"


@commands.command("path")
def print_paths(
    name: Annotated[
        PathOption | None,
        typer.Argument(
            help="Print this one alone: the folder of files, the folder of data, or .env.", metavar="[NAME]"
        ),
    ] = None,
    *,
    debug: Debug = False,
) -> None:
    """Print which files and folders are in use, and why."""

    async def show(settings: Settings) -> int:
        folders = find_folders()
        paths = {
            PathOption.CONFIG: folders.config,
            PathOption.DATA: settings.data_folder,
            PathOption.ENV: folders.env_file,
        }
        for line in [str(paths[name].absolute())] if name else _report(folders, settings):
            typer.echo(line)
        return 0

    run_command(show, debug=debug, needs_consent=False)


@commands.command("init")
def make_files(
    *,
    here: Annotated[
        bool, typer.Option("--here", help="In the working folder, which counts for commands in it from then on.")
    ] = False,
) -> None:
    """Copy the files to begin with (servers, policies, prompt, examples) to where they count. None is replaced."""
    folders = find_folders()
    folder = Path("config") if here else folders.config
    try:
        copies = copy_defaults(folder)
    except OSError as error:
        print_error(
            f"{error.filename or folder} cannot be written: {error.strerror}. "
            "Fix: let this user write there, or choose another folder with COUNTERSIGN_HOME"
        )
        raise typer.Exit(FAILED) from error
    if here and not folders.own_files:  # files of another user still need a consent
        remember(folders)
    for path in copies:
        typer.echo(path)
    if not copies:
        typer.echo(f"All files are there already, in {folder.absolute()}.")


def _report(folders: Folders, settings: Settings) -> list[str]:
    fields = {
        "servers": "mcp_servers_file",
        "policies": "policy_file",
        "prompt": "system_prompt_file",
        "prices": "prices_file",
        "limits": "limits_file",
        "templates": "mcp_launch_templates_file",
        "grants": "mcp_secret_grants_file",
        "programs": "mcp_allowed_commands_file",
        "data": "data_folder",
    }
    files: list[tuple[str, str, Path]] = [("settings", "", folders.env_file)]
    files += [(label, field, getattr(settings, field)) for label, field in fields.items()]
    lines = []
    for label, field, path in files:
        notes = [f"set by {field.upper()}"] if field in settings.model_fields_set else []
        notes += [] if path.exists() else ["not there"]
        note_text = f"  ({', '.join(notes)})" if notes else ""
        lines.append(f"{label:<10} {path.absolute()}{note_text}")
    return [*lines, "", f"They count because {folders.reason}."]
