"""`countersign servers …`, `usage …` and `tokens …`: administration in a shell, beside a running bot.

`servers` and `usage` are the verbs of `/mcp` and `/usage`, with the same code. A running bot follows the changes in the
database. A new token alone goes to standard output, so that a pipe can take it; all other text of `tokens` goes to
standard error.
"""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO

from bot.admin.tokens import check_token, parse_lifetime
from bot.app.database import open_migrated_database, upgrade
from bot.app.operator_files import read_operator_files
from bot.app.secrets import UsableSecrets, check_operator_secrets, secret_box
from bot.domain.api_clients import ApiRole, ApiToken
from bot.domain.approvals import ApprovalPolicy
from bot.domain.commands import FieldKind, Form, FormSubmission, Invocation, Reply, ReplyAction, reply_json
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.locales import system_locale
from bot.domain.messages import TextPart
from bot.domain.servers import EVERYWHERE, ConnectPolicy
from bot.domain.tools import CallNeedsInput, CallNotSent, CallOutcomeUnknown, CallReturned, ToolOutcome
from bot.domain.turns import StepStatus
from bot.errors import NotFound, SettingsError
from bot.platforms.console.lines import strip_markdown
from bot.platforms.console.local_user import LocalUser, fresh_conversation, login_name
from bot.platforms.console.plain_output import reply_text
from bot.ports import CallContext, DirectCall
from bot.rendering.text_safety import single_line
from bot.settings import Settings

if TYPE_CHECKING:
    from bot.app.components import AppServices
    from bot.storage.admin.api_tokens import SqlTokenStore

FAILED = 1
_VERB = re.compile(r"(?<![\w.\]])/mcp (?=[a-z])")
"""`/mcp` before a verb, not as the path of an address."""
_WORKSPACE = re.compile(r"[a-z][a-z-]*:[^\s:]+")


async def rotate(settings: Settings) -> tuple[int, Sequence[str]]:
    """Encrypt every stored secret again with the first key. Return their number, and those that no key decrypts. Raises
    CountersignError.
    """
    from bot.storage.admin.servers import SqlServerStore  # noqa: PLC0415 - loads the database's libraries

    async with open_migrated_database(settings, migrate=False) as database:
        usable = UsableSecrets(settings, {})
        servers = SqlServerStore(database, secret_box(settings), usable.environment, usable.open_file)
        return await servers.reseal(LocalUser(login_name()).author)


async def administer(
    settings: Settings, command: str, words: Sequence[str], *, as_json: bool, workspace: str = ""
) -> int:
    """Run one command. Return the exit code. `workspace` is `platform:id`, for servers that belong to one. Raises
    CountersignError.
    """
    if (command, *words[:1]) == ("mcp", "reload"):
        raise SettingsError(
            "No bot runs in this shell that could read its file again.",
            "leave it to the running bot, which follows its files, or use `/mcp reload` in a chat",
        )
    from bot.app.runtime import open_services  # noqa: PLC0415 - loads MCP, which the other commands do not need

    check_operator_secrets(settings)
    files = read_operator_files(settings)
    person = LocalUser(login_name(), locale=system_locale(os.environ))
    if settings.auto_migrate:
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
                _show_progress(last.text if isinstance(last, Reply) else "")
            _show_progress("")
            if isinstance(last, Form) and all(field.kind is FieldKind.SECRET for field in last.fields):
                request = FormSubmission(
                    last.id, _read_fields(last), person.member, request.conversation, hidden_input=True
                )
                continue
            actions = last.actions if isinstance(last, Reply) and not as_json else ()
            question = next((action for action in actions if action.question), None)
            if isinstance(last, Reply) and question is not None and sys.stdin.isatty():
                if not _agrees(last, question):
                    return FAILED if last.failed else 0
                request = Invocation(
                    question.words[0], question.words[1:], person.member, request.conversation, hidden_input=True
                )
                continue
            if isinstance(last, Reply) and last.message is not None:
                last = await _read(services, last.message, person) or last
            return _print_reply(last, as_json=as_json)


async def _read(services: AppServices, message: InboundMessage, person: LocalUser) -> Reply | None:
    """Return the contents of the resource or the prompt that a call by hand reads; None for any other message, and
    where a rule wants an approval.
    """
    call, conversation = message.call, message.conversation
    tools = (await services.toolbox.offer(conversation.workspace_key)).requests if call else ()
    tool = next((tool for tool in tools if call and tool.name == call.name), None)
    if tool is None or call is None:
        return None
    direct = DirectCall(tool, call.arguments, conversation, message.author)
    rules = services.rules.rules(conversation)
    judged = rules.judge(tool, call.arguments, message.author, person.member).stored
    if judged.policy is ApprovalPolicy.ALWAYS_DENY:
        await services.stores.call_audit.record_forbidden(direct, judged.rule)
        return Reply(message.text, details=(("cause", f"A policy forbids {tool.original_name}."),), failed=True)
    if judged.policy is ApprovalPolicy.ASK_USER:
        return None
    began = time.monotonic()
    outcome = await services.toolbox.call(tool, call, CallContext(message.author, f"shell:{call.id}"))
    seconds = None if isinstance(outcome, CallNotSent) else time.monotonic() - began
    await services.stores.call_audit.record_call(direct, _status(outcome), seconds)
    match outcome:
        case CallReturned(result):
            files = [part for part in result.parts if not isinstance(part, TextPart)]
            note = f" {len(files)} files are left out: a chat shows them." if files else ""
            return Reply(f"{message.text}:{note}", details=((tool.server, result.text),), failed=result.is_error)
        case CallNotSent(reason) | CallOutcomeUnknown(reason):
            return Reply(message.text, details=(("cause", reason),), failed=True)
        case CallNeedsInput():
            return None


def _status(outcome: ToolOutcome) -> StepStatus:
    match outcome:
        case CallReturned(result) if not result.is_error:
            return StepStatus.DONE
        case CallOutcomeUnknown():
            return StepStatus.UNKNOWN
        case _:
            return StepStatus.FAILED


def _place(person: LocalUser, workspace: str) -> ConversationKey:
    """Return the operator's terminal conversation, or one in the named workspace."""
    here = person.key(fresh_conversation())
    if not workspace:
        return here
    platform, separator, name = workspace.partition(":")
    if not (platform and separator and name):
        raise SettingsError(f"{workspace!r} is no workspace.", "write platform:id, such as slack:T123")
    return ConversationKey(platform, name, here.channel, here.thread)


def _print_reply(reply: Reply | Form | None, *, as_json: bool) -> int:
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
    return _VERB.sub("countersign servers ", text)


def _show_progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{single_line(strip_markdown(text), get_terminal_size().columns - 1)}")
        sys.stderr.flush()


def _write(text: str, stream: TextIO) -> None:
    stream.write(f"{text}\n")
    stream.flush()


def _read_fields(form: Form) -> dict[str, str]:
    """Read the fields of a form without echo from a terminal, or one line each from a pipe."""
    answers = dict(form.carried)
    with _interruptible():
        for field in form.fields:
            prompt = f"{field.label}: "
            answers[field.name] = getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    return answers


def _agrees(reply: Reply, question: ReplyAction) -> bool:
    """Ask a question of a reply. Anything but yes is a no, the end of the input too."""
    actions = tuple(action for action in reply.actions if action is not question)
    details = tuple((name, text) for name, text in reply.details if name != "fix")  # Yes is the fix.
    text = _in_the_shell(reply_text(replace(reply, actions=actions, details=details)))
    _write(f"{text}\n", sys.stderr if reply.failed else sys.stdout)
    with _interruptible():
        sys.stderr.write(f"{single_line(question.question, 200)} [y/N] ")
        sys.stderr.flush()
        line = sys.stdin.readline()
    if not line.endswith("\n"):
        sys.stderr.write("\n")
    if line.strip().lower() in ("y", "yes"):
        return True
    if reply.failed:
        _write("Nothing was changed.", sys.stderr)
    return False


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a wait for input at once: the event loop's own handler waits for the loop, which waits too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# -------------------- tokens of the HTTP API


async def create(settings: Settings, name: str, role: ApiRole, workspace: str, expires: str) -> int:
    """Create a token and print it. Return the exit code. Raises CountersignError."""
    check_token(name, workspace)
    lifetime = parse_lifetime(expires)
    async with _opened_tokens(settings) as tokens:
        record, token = await tokens.create(name, role, workspace, lifetime, _operator())
    until = f"until {_format_time(record.expires_at)}" if record.expires_at else "until it is revoked"
    where = record.workspace if record.workspace != EVERYWHERE else "all workspaces"
    sys.stderr.write(f"The token {name} is good for {where} {until}, as {record.role}. It is shown this once:\n")
    sys.stdout.write(f"{token}\n")
    return 0


async def show(settings: Settings, *, as_json: bool) -> int:
    """List all tokens. Return the exit code. Raises CountersignError."""
    async with _opened_tokens(settings) as tokens:
        listed_tokens = await tokens.tokens()
    if as_json:
        sys.stdout.write(f"{json.dumps([_object(api_token) for api_token in listed_tokens])}\n")
    elif listed_tokens:
        rows = [("NAME", "ROLE", "WORKSPACE", "MADE", "STATE")]
        for token in listed_tokens:
            creation = f"{_format_time(token.created_at)} by {token.created_by}"
            rows.append((token.name, token.role.value, token.workspace or "all", creation, _state(token)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    else:
        sys.stderr.write("There are no tokens. `countersign tokens create NAME --role ROLE` makes one.\n")
    return 0


async def revoke(settings: Settings, name: str) -> int:
    """Revoke a token. Return the exit code. Raises CountersignError."""
    async with _opened_tokens(settings) as tokens:
        if not await tokens.revoke(name, _operator()):
            raise NotFound(f"There is no token {name!r:.100} to revoke.", "see `countersign tokens list`")
    sys.stderr.write(f"The token {name} is good for nothing any more.\n")
    return 0


@asynccontextmanager
async def _opened_tokens(settings: Settings) -> AsyncIterator[SqlTokenStore]:
    from bot.storage.admin.api_tokens import SqlTokenStore  # noqa: PLC0415 - loads the database's libraries

    if settings.auto_migrate:
        await upgrade(settings)
    async with open_migrated_database(settings, migrate=False) as database:
        yield SqlTokenStore(database)


def _operator() -> Author:
    return LocalUser(login_name()).author


def _state(token: ApiToken) -> str:
    if token.revoked_at is not None:
        return f"revoked {_format_time(token.revoked_at)}"
    if token.expires_at is None:
        return "good"
    state = "good until" if token.is_valid(time.time()) else "expired"
    return f"{state} {_format_time(token.expires_at)}"


def _object(token: ApiToken) -> dict[str, object]:
    times = {"createdAt": token.created_at, "expiresAt": token.expires_at, "revokedAt": token.revoked_at}
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role.value,
        "workspace": token.workspace,
        "createdBy": token.created_by,
        **{name: None if at is None else _format_time(at) for name, at in times.items()},
    }


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
