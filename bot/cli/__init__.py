"""The command line: words to options, errors to one line, endings to exit codes (0 ok, 1 failed, 2 usage, 3 not
approved, 130 interrupted).
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from pathlib import Path

_NEW_OBJECTS = 400_000
"""Objects made and kept until the garbage collector looks at them."""


def main() -> None:
    """Run the command line."""
    # Most objects of a start stay until the end: to look through them took a quarter of the CPU of a short command.
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)
    import typer  # noqa: PLC0415 - loaded with the setting above

    if {*sys.argv[1:2]} & {"ask", "hook", "connect", "receipt"}:
        # Other agents start these for each of their calls: the other commands load the settings.
        from bot.cli.gateway import app  # noqa: PLC0415
    else:
        from bot.cli.commands import app  # noqa: PLC0415
    from bot.cli.execution import FAILED, USAGE, output_failed, print_error  # noqa: PLC0415

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever has started the program
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open until the end
    try:
        # A fixed name in the help, because documentation uses it.
        code = app(prog_name="countersign", standalone_mode=False)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "countersign"
        message = error.format_message().replace("Value error, ", "")
        print_error(f"{message}{'' if message.endswith(('.', '?')) else '.'} Fix: see `{command} --help`")
        code = USAGE
    except OSError:
        if not output_failed("\n"):
            raise
        code = FAILED
    sys.exit(FAILED if output_failed() else code or 0)
