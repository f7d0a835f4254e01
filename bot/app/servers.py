"""`countersign servers …` and `countersign usage …`: the verbs of `/mcp` and `/usage` in a shell, with the same code.

They work beside a running bot, which follows the changes in the database.
"""

from __future__ import annotations

import getpass
import json
import re
import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO

from bot.app.database import current, open_migrated_database, upgrade
from bot.app.login import login_name
from bot.app.operator_files import read_operator_files
from bot.app.secrets import UsableSecrets, check_operator_secrets, secret_box
from bot.app.services import open_services
from bot.domain.commands import FieldKind, Form, FormSubmission, Invocation, Reply, reply_json
from bot.domain.conversations import ConversationKey
from bot.domain.servers import ConnectPolicy
from bot.errors import SettingsError
from bot.platforms.console.lines import strip_markdown
from bot.platforms.console.local_user import LocalUser, fresh_conversation
from bot.platforms.console.plain_output import reply_text
from bot.rendering.text_safety import single_line
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.storage.servers import Resealed

FAILED = 1
_VERB = re.compile(r"(?<![\w.\]])/mcp (?=[a-z])")
"""`/mcp` before a verb, not as the path of an address."""


async def rotate(settings: Settings) -> Resealed:
    """Encrypt every stored secret again with the first key. Raises CountersignError."""
    from bot.app.stores import build_stores  # noqa: PLC0415 - loads the database's libraries

    async with open_migrated_database(settings, migrate=False) as database:
        stores = build_stores(database, secret_box(settings), UsableSecrets(settings, {}))
        return await stores.servers.reseal(LocalUser(login_name()).author)


async def administer(
    settings: Settings, command: str, words: Sequence[str], *, as_json: bool, workspace: str = ""
) -> int:
    """Run one command. Return the exit code. `workspace` is `platform:id`, for servers that belong to one. Raises
    CountersignError.
    """
    if (command, *words[:1]) == ("mcp", "reload"):
        raise SettingsError(
            "No bot runs in this shell that could read its file again.",
            "use `/mcp reload` in a chat, or restart the bot",
        )
    check_operator_secrets(settings)
    files = read_operator_files(settings)
    person = LocalUser(login_name())
    if settings.auto_migrate:
        found, wanted = await current(settings)
        if found != wanted:
            await upgrade(settings)
    async with (
        open_migrated_database(settings, migrate=False) as database,
        open_services(
            settings, files, database, operator=person.author.principal, connect=ConnectPolicy.LAZY
        ) as services,
    ):
        request: Invocation | FormSubmission = Invocation(
            command, tuple(words), person.member, _place(person, workspace), hidden_input=True
        )
        while True:
            last: Reply | Form | None = None
            async for last in services.commands.handle(request):
                _show_progress(last)
            _hide_progress()
            if isinstance(last, Form) and _only_secrets(last):
                request = FormSubmission(last.id, _asked(last), person.member, request.conversation, hidden_input=True)
                continue
            return _told(last, as_json=as_json)


def _place(person: LocalUser, workspace: str) -> ConversationKey:
    """Return the operator's terminal conversation, or one in the named workspace."""
    here = person.key(fresh_conversation())
    if not workspace:
        return here
    platform, separator, name = workspace.partition(":")
    if not (platform and separator and name):
        raise SettingsError(f"{workspace!r} is no workspace.", "write platform:id, such as slack:T123")
    return ConversationKey(platform, name, here.channel, here.thread)


def _told(reply: Reply | Form | None, *, as_json: bool) -> int:
    if reply is None:
        return 0
    failed = isinstance(reply, Form) or reply.failed or any(action.confirm for action in reply.actions)
    if isinstance(reply, Reply) and reply.message is not None:
        # The shell has no engine: manual calls need a conversation for their approval card.
        reply = Reply("Run a tool in a chat, where it can be approved: `countersign chat`.", failed=True)
        failed = True
    if as_json:
        _write(json.dumps(reply_json(reply)), sys.stdout)
    elif isinstance(reply, Reply) and reply.document is not None:
        _write(reply.document.text, sys.stdout)
    else:
        _write(_in_the_shell(reply_text(reply)), sys.stderr if failed else sys.stdout)
    return FAILED if failed else 0


def _in_the_shell(text: str) -> str:
    """Return the text with commands in the form of the shell."""
    return _VERB.sub("countersign servers ", text)


def _show_progress(reply: Reply | Form) -> None:
    """Print a progress line that the next reply overwrites."""
    if isinstance(reply, Reply) and sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{single_line(strip_markdown(reply.text), get_terminal_size().columns - 1)}")
        sys.stderr.flush()


def _hide_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _write(text: str, stream: TextIO) -> None:
    stream.write(f"{text}\n")
    stream.flush()


def _only_secrets(form: Form) -> bool:
    return all(field.kind is FieldKind.SECRET for field in form.fields)


def _asked(form: Form) -> dict[str, str]:
    """Read the fields of a form without echo from a terminal, or one line each from a pipe."""
    answers = dict(form.carried)
    for field in form.fields:
        prompt = f"{field.label}: "
        answers[field.name] = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    return answers
