"""Checks of servers that are started by a launch template.

They run when a definition is loaded or entered, and again before each start, because the template and the files may
have changed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bot.domain.launch_templates import InvalidSlotValue, LaunchTemplate, Templates
from bot.domain.servers import ServerConfig, StdioTransport, TemplateLaunch
from bot.mcp.errors import InvalidDefinition


def resolve_launch(config: ServerConfig, templates: Templates) -> ServerConfig:
    """Return the server with the program of its template, if it has one. Raises InvalidDefinition."""
    match config.transport:
        case StdioTransport(env=env, launch=TemplateLaunch() as launch):
            filled = _filled(_template(launch, templates), launch)
            return replace(config, transport=replace(filled, env={**filled.env, **env}))
        case _:
            return config


def check_launch(process: StdioTransport, launch: TemplateLaunch, templates: Templates) -> None:
    """Check that the process is what the template starts now, without reading the disk. Raises InvalidDefinition."""
    template = _template(launch, templates)
    filled = _filled(template, launch)
    if (filled.command, filled.args, filled.cwd) != (process.command, process.args, process.cwd) or any(
        process.env.get(name) != value for name, value in filled.env.items()
    ):
        raise InvalidDefinition(
            f"What the launch template {launch.template} starts is not what it was when this server was looked at.",
            "run /mcp reload --apply, then review the server again",
        )
    stray = sorted(process.env.keys() - filled.env.keys() - set(template.secrets.values()))
    if stray:
        raise InvalidDefinition(
            f"The launch template {launch.template} has no slot for the variable {stray[0]}.",
            "remove that secret",
        )


def check_paths(config: ServerConfig, templates: Templates) -> None:
    """Check that each path exists and is below its folder after following links. Reads the disk: run it in a
    thread. Raises InvalidDefinition.
    """
    match config.transport:
        case StdioTransport(launch=TemplateLaunch() as launch):
            for slot, folder, path in _template(launch, templates).paths(launch.values):
                _check_path(slot, Path(folder), Path(path))
        case _:
            return


def check_start(config: ServerConfig, templates: Templates) -> None:
    """Run both checks before a process is started. Reads the disk: run it in a thread. Raises InvalidDefinition."""
    match config.transport:
        case StdioTransport(launch=TemplateLaunch() as launch) as process:
            check_launch(process, launch, templates)
            check_paths(config, templates)
        case _:
            return


def _check_path(slot: str, folder: Path, path: Path) -> None:
    try:
        real, root = path.resolve(strict=True), folder.resolve(strict=True)
    except (OSError, RuntimeError):
        raise InvalidDefinition(f"There is no {path}, as {slot} says.", "name an existing path, or create it") from None
    if not real.is_relative_to(root):
        raise InvalidDefinition(f"{path}, as {slot} says, leads out of {folder}.", f"name a path below {folder}")


def _template(launch: TemplateLaunch, templates: Templates) -> LaunchTemplate:
    template = templates.get(launch.template)
    if template is None:
        raise InvalidDefinition(
            f"It is started by the launch template {launch.template}, which is missing or invalid.",
            "the operator puts it into the file of launch templates, or an admin removes this server",
        )
    return template


def _filled(template: LaunchTemplate, launch: TemplateLaunch) -> StdioTransport:
    try:
        return template.filled(launch.values)
    except InvalidSlotValue as misfilled:
        slot, error = next(iter(misfilled.errors.items()))
        about = f"{slot} does not fit the launch template {template.name} as it is now" if slot else template.name
        raise InvalidDefinition(f"{about}: {error.rstrip('.')}.", "edit the server, or ask the operator") from None
