"""Consent of the operator to a program that is to run as a server on this machine.

Only the operator's own terminal can give it: there it is asked, and `--allow` answers in advance. In a chat, admins
start programs by launch templates alone.
"""

from __future__ import annotations

from bot.commands.argument_parser import CommandRejected
from bot.commands.command import CommandContext
from bot.commands.dependencies import CommandDependencies
from bot.commands.server_definition import ParsedDefinition, command_line
from bot.commands.text_format import code
from bot.domain.catalog import unpinned_package
from bot.domain.commands import ActionStyle, Parameter, ParameterKind, Reply, ReplyAction
from bot.domain.servers import ServerConfig, StdioTransport
from bot.domain.tools import digest
from bot.i18n import _, gettext_lazy

_DIGEST_LENGTH = 12

ALLOW = Parameter("allow", gettext_lazy("allow its program on this machine, without a question"), ParameterKind.FLAG)


class ProgramConsent:
    """Asks for consent, and records it."""

    def __init__(self, dependencies: CommandDependencies) -> None:
        self._administration = dependencies.administration
        self._rights = dependencies.rights

    async def question(
        self, draft: ParsedDefinition, request: CommandContext, verb: str, *, always: bool = False
    ) -> Reply | None:
        """Return the question about the draft's program, None if there is none to ask; `always` asks about an allowed
        one, too. With `--allow`, the program is allowed, and its error leaves the draft. Raises CommandRejected,
        SettingsError.
        """
        at_terminal = request.hidden_input and self._rights.operates(request.member)
        if request.arguments.has("allow") and not at_terminal:
            raise CommandRejected(_("Only the operator may allow a program, at a terminal of the bot's machine."))
        program = self._program_to_allow(draft, always=always)
        if not program or not at_terminal:
            return None
        if not request.arguments.has("allow"):
            same = ("--digest", _digest(draft.record.config)) if always else ()
            return self._ask(program, draft.record.config, ("mcp", verb, "--allow", *same, *request.words))
        if always and request.arguments.get("digest", _digest(draft.record.config)) != _digest(draft.record.config):
            raise CommandRejected(
                _("The registry has another command now than the one that was shown. Nothing was added.")
            )
        if not self._administration.allows_program(program):
            await self._administration.allow_program(program)
            del draft.errors["command"]
        return None

    def _program_to_allow(self, draft: ParsedDefinition, *, always: bool) -> str:
        """Return the program if nothing else is wrong with the draft; empty if it needs no consent."""
        match draft.record.config.transport:
            case StdioTransport(command=program, launch=None) if program and draft.errors.keys() <= {"command"}:
                is_allowed = self._administration.allows_program(program)
                return program if always or ("command" in draft.errors and not is_allowed) else ""
            case _:
                return ""

    def _ask(self, program: str, config: ServerConfig, words: tuple[str, ...]) -> Reply:
        allowed = self._administration.allows_program(program)
        values = {"program": code(program, _("a program"))}
        question = (
            _("Start this on this machine with {program}?", program=program)
            if allowed
            else _("Allow {program} on this machine?", program=program)
        )
        return Reply(
            _("This server would run {program} on this machine, as its publisher says. Nothing was saved.", **values)
            if allowed
            else _(
                "This server would run {program} on this machine, which is not allowed yet. Nothing was saved.",
                **values,
            ),
            details=(
                (gettext_lazy("program"), program),
                (gettext_lazy("command"), command_line(config)),
                *version_warning(config),
                (
                    gettext_lazy("fix"),
                    _("run this in a terminal, which asks; add --allow; or name it in MCP_ALLOWED_COMMANDS"),
                ),
            ),
            failed=True,
            actions=(
                ReplyAction(
                    _("Allow {program} and go on", program=program),
                    words,
                    ActionStyle.PRIMARY,
                    question=question,
                ),
            ),
        )


def _digest(config: ServerConfig) -> str:
    """Return a short digest of what is started: a registry may have another command by the time of the answer."""
    transport = config.transport
    variables = sorted(transport.env.items()) if isinstance(transport, StdioTransport) else []
    return digest([command_line(config), *map(list, variables)])[:_DIGEST_LENGTH]


def version_warning(config: ServerConfig) -> tuple[tuple[str, str], ...]:
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
