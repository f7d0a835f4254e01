"""The one description of what somebody agrees to before a server is added: whole, escaped, on one line each.

Nothing in it is cut or masked. What has no room on a screen is refused instead of asked. References to secrets stay
references. Variables and options that load code or redirect packages and connections are named with their effect.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from bot.admin.command import CommandRejected
from bot.admin.servers.definition import command_line
from bot.admin.text_format import sentences
from bot.domain.catalog import unpinned_package
from bot.domain.characters import spell_hidden
from bot.domain.launch_variables import argument_effects, variable_effect
from bot.domain.secrets import SecretReference, SecretSource
from bot.domain.servers import HttpTransport, ServerConfig, StdioTransport
from bot.domain.tools import digest
from bot.i18n import _, gettext_lazy

NO_SECRETS: Mapping[str, SecretReference] = MappingProxyType({})
NO_VALUES: Mapping[str, str] = MappingProxyType({})
LONGEST_CONSENT = 6_000
"""Characters about one server at a terminal."""
_LONGEST_INTRO = 2_800
"""Characters about one server in a chat: fewer than every platform shows in one message or modal."""
LONGEST_QUESTION = 160
_DIGEST_LENGTH = 12
_PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_UV, _NODE = "https://docs.astral.sh/uv", "https://nodejs.org"
_SOURCES = {
    "uvx": _UV, "uv": _UV, "npx": _NODE, "npm": _NODE, "node": _NODE, "bunx": "https://bun.sh",
    "docker": "https://docs.docker.com/get-docker", "pipx": "https://pipx.pypa.io",
}  # fmt: skip
"""Programs that start servers, and where they come from."""
Facts = tuple[tuple[str, str], ...]


def consent_facts(
    config: ServerConfig,
    references: Mapping[str, SecretReference] = NO_SECRETS,
    values: Mapping[str, str] = NO_VALUES,
    *,
    in_chat: bool = False,
) -> Facts:
    """Return what is agreed to. In a chat, arguments are not listed beside the command line.

    `values` are those of stored secrets by slot. Raises CommandRejected if it is too long to be shown.
    """
    missing = str(gettext_lazy("missing: it is still to be entered"))
    secrets = [
        (slot, values.get(slot, missing) if reference.source is SecretSource.STORED else str(reference))
        for slot, reference in sorted(references.items())
    ]
    match config.transport:
        case HttpTransport(url=url, headers=plain):
            facts: list[tuple[str, str]] = [(gettext_lazy("address"), url)]
            kind = gettext_lazy("header")
        case StdioTransport(command, args, plain, cwd) as process:
            facts = [(gettext_lazy("program"), command), (gettext_lazy("command"), command_line(config))]
            if not (in_chat or all(map(_PLAIN_WORD.fullmatch, args))):
                facts += ((gettext_lazy("argument {number}", number=n), word) for n, word in enumerate(args, 1))
            facts += [(gettext_lazy("folder"), cwd)] if cwd else []
            facts += [*_missing_program(process), *version_warning(config)]
            kind = gettext_lazy("variable")
            for name, effect in argument_effects((command, *args)).items():
                facts.append((gettext_lazy("warning"), _("{variable} {effect}", variable=name, effect=effect)))
    named = [(kind, name, text) for name, text in plain.items()]
    named += [(kind, slot.partition(":")[2], text) for slot, text in secrets if ":" in slot]
    named += [(gettext_lazy("sign-in"), slot, text) for slot, text in secrets if ":" not in slot]
    for label, name, text in named:
        facts.append((label, f"{name}={text}"))
        if facts[0][0] == "program" and (effect := variable_effect(name)):
            facts.append((gettext_lazy("warning"), _("{variable} {effect}", variable=name, effect=effect)))
    shown = tuple((name, spell_hidden(text)) for name, text in facts)
    most = _LONGEST_INTRO if in_chat else LONGEST_CONSENT
    if sum(len(name) + len(text) for name, text in shown) > most:
        raise CommandRejected(
            _(
                "It has more than the {most} characters that can be shown whole, so it is not asked about. Shorten it.",
                most=most,
            )
        )
    return shown


def checked_question(question: str) -> str:
    """Return a question that a terminal shows whole. Raises CommandRejected for a longer one."""
    if len(question) > LONGEST_QUESTION:
        raise CommandRejected(_("The names of its programs are too long to be asked about. Shorten them."))
    return question


def start_warning(config: ServerConfig, references: Mapping[str, SecretReference] = NO_SECRETS) -> str:
    """Return the text that a confirmation is about. Raises CommandRejected."""
    _program, (_command, line), *others = consent_facts(config, references, in_chat=True)
    text = _("It will start exactly this on the machine the bot runs on:\n{command}", command=line)
    return "\n".join((*(f"{name}: {value}" for name, value in others), text))


def consent_digest(config: ServerConfig) -> str:
    """Return a short digest of what is started, which may have changed by the time of the answer."""
    return digest(repr(config.transport))[:_DIGEST_LENGTH]


def version_warning(config: ServerConfig) -> Facts:
    """Return a detail about a package without a version."""
    match config.transport:
        case StdioTransport(command, args, launch=None) if package := unpinned_package(command, args):
            text = _(
                "{package} is whatever is published at the moment: name a version after the package to fix it",
                package=package,
            )
            return ((gettext_lazy("version"), text),)
        case _:
            return ()


def _missing_program(process: StdioTransport) -> Facts:
    """Return a detail about a program that this machine does not have."""
    program = process.command
    own = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    path = process.env.get("PATH", own)
    if os.sep in program or shutil.which(program, path=path):
        return ()
    source = _SOURCES.get(program)
    text = _("{program} is not installed on this machine.", program=program)
    more = _("It comes with {source}.", source=source) if source else ""
    return ((gettext_lazy("missing"), sentences(text, more)),)
