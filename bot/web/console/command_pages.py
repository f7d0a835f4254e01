"""Any verb as a page: a form of its parameters, its replies as they come, and the forms that it opens.

A verb that reads runs by a link. All others run by a form with the session's token.
"""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from bot.admin.command import Arguments, CommandRejected, parse_arguments
from bot.chat.actions import error_message
from bot.chat.command_runner import REPLY_SECONDS
from bot.chat.forms import COMMANDS as CARD_COMMANDS
from bot.domain.commands import (
    CompletionSource,
    Field,
    FieldKind,
    Form,
    FormSubmission,
    Invocation,
    Parameter,
    ParameterKind,
    Reply,
    ReplyAction,
    Verb,
)
from bot.domain.conversations import ConversationKey
from bot.domain.locales import UNKNOWN, use_locale
from bot.errors import CountersignError
from bot.i18n import _
from bot.web.console.dependencies import ConsoleDependencies
from bot.web.console.menu import (
    BUTTONS,
    COMMANDS_PATH,
    ENTRIES,
    SERVER_WORDS,
    PageSection,
    command_path,
    entry_of,
    find_verb,
    sections_of,
)
from bot.web.console.pictures import bar_widths
from bot.web.console.places import conversation_path, own_key
from bot.web.console.rendering import HEADERS
from bot.web.console.request import ConsoleRequest, FormData
from bot.web.console.sign_in import own_path

_MOST_CHOICES = 60
"""Names in a list to choose from; of more, a text field offers the first."""
_MOST_OFFERED = 300
_SHOWN_OPTIONS = 6
_PARTS = "<!-- parts -->"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")
Write = Callable[[str], Awaitable[None]]


class StreamedPage(Response):
    """A page that is sent as far as it is known. `write_parts` is given the function that sends a part."""

    def __init__(self, page: str, write_parts: Callable[[Write], Awaitable[None]]) -> None:
        super().__init__(b"", 200, {**HEADERS}, "text/html")
        del self.headers["content-length"]
        self._before, _mark, self._after = page.partition(_PARTS)
        self._write_parts = write_parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Send the page."""

        async def write(html: str) -> None:
            await send({"type": "http.response.body", "body": html.encode(), "more_body": True})

        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await write(self._before)
        await self._write_parts(write)
        await send({"type": "http.response.body", "body": self._after.encode(), "more_body": False})


class TextFile(Response):
    """A text that the browser saves."""

    def __init__(self, name: str, text: str) -> None:
        safe = _NOT_IN_NAMES.sub("-", name)[:100] or "file.txt"
        headers = {**HEADERS, "Content-Disposition": f'attachment; filename="{safe}"'}
        super().__init__(text.encode("utf-8", "replace"), 200, headers, "text/plain; charset=utf-8")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line of a request: its verb, the words behind it, and the parsed arguments. `error` says why they
    cannot run as they are; it is empty if only required ones are missing.
    """

    command: str
    verb: Verb
    words: tuple[str, ...]
    arguments: Arguments
    is_complete: bool
    error: str = ""

    @property
    def all_words(self) -> tuple[str, ...]:
        """The words behind the command."""
        return (*self.verb.path.split(), *self.words)


class CommandPages:
    """Pages of verbs."""

    def __init__(self, dependencies: ConsoleDependencies) -> None:
        self._commands = dependencies.commands
        self._dependencies = dependencies

    async def index(self, call: ConsoleRequest) -> Response:
        """Show all verbs that the user may run."""
        return call.page("commands.html", commands=call.menu.commands(call.viewer.member))

    async def run(self, call: ConsoleRequest) -> Response:
        """Run a verb, or show the form of its parameters."""
        command, viewer = str(call.request.path_params["command"]), call.viewer
        if command in CARD_COMMANDS and call.is_post:
            invocation = Invocation(command, tuple(call.form.get_all("w")), viewer.member, viewer.conversation)
            page = call.render("run.html", title=_("Answer a server"), parts=_PARTS, **_NOTHING)
            return self._streamed(call, page, invocation)
        return await self.run_words(call, command)

    async def run_words(self, call: ConsoleRequest, command: str, *words: str) -> Response:
        """Run the verb at the beginning of these words and those of the request."""
        line = self._read_line(call.form, command, words)
        if line is None:
            return call.page("problem.html", 404, title=_("There is no such command"), text="", fix="")
        if not call.menu.may_run(line.verb, call.viewer.member):
            text = _("Only {who} can do this.", who=self._dependencies.rights.who)
            return call.page("problem.html", 403, title=_("This is not for you"), text=text, fix="")
        if not (call.is_post or (line.verb.reads and line.is_complete)):
            return self._page(call, line)
        invocation = call.viewer.invocation(line.command, *line.all_words)
        if line.verb.reads and call.form.get("download"):
            return await self._download(invocation)
        values = self._page_values(call, line, is_open=not line.verb.reads)
        sections = () if call.is_post else sections_of((line.command, *line.verb.path.split()))
        page = call.render(
            "run.html", parts=_PARTS, with_parameters=line.verb.reads and values["first_fields"], **values
        )
        # What was wrong can be corrected below.
        correction = "" if line.verb.reads else call.render("parameters.html", **values)
        return self._streamed(call, page, invocation, correction, [(each, values["subject"]) for each in sections])

    async def choose(self, call: ConsoleRequest) -> Response:
        """Run the commands of the choices that were changed in a table, and return to its page."""
        failed: list[str] = []
        for run in filter(None, call.form.get_all("run")):
            command, *words = shlex.split(run)
            async for reply in self._commands.handle(call.viewer.invocation(command, *words)):
                if isinstance(reply, Form) or reply.failed:
                    failed += [reply.title if isinstance(reply, Form) else reply.text]
        back = call.templates.url(own_path(call.form.get("back")) or COMMANDS_PATH)
        if not failed:
            return RedirectResponse(back, 303, {**HEADERS})
        return call.page("problem.html", 400, title=_("That did not work"), text="\n".join(failed), fix="")

    async def first_reply(self, call: ConsoleRequest, command: str, *words: str) -> str:
        """Return the first reply of a live page as HTML, empty for any other."""
        line, entry = self._read_line(FormData(), command, words), entry_of((command, *words))
        if line is None or entry is None or not entry.live or not call.menu.may_run(line.verb, call.viewer.member):
            return ""
        invocation = call.viewer.invocation(command, *words)
        async with aclosing(self._commands.handle(invocation)) as replies:  # type: ignore[type-var]
            return self._part(call, await anext(replies), invocation)

    async def submit(self, call: ConsoleRequest) -> Response:
        """Take a form of a verb."""
        form, viewer = call.form, call.viewer
        fields = {name: values[-1] for name, values in (form.below("c.") | form.below("f.")).items()}
        submission = FormSubmission(
            form.get("form"), fields, viewer.member, viewer.conversation, viewer.hidden_input, on_page=True
        )
        page = call.render("run.html", title=form.get("title"), parts=_PARTS, **_NOTHING)
        return self._streamed(call, page, submission)

    def _read_line(self, form: FormData, command: str, before: Sequence[str]) -> CommandLine | None:
        found = find_verb(self._commands.verbs.get(command, ()), (*before, *form.get_all("w")))
        if found is None:
            return None
        verb, rest = found
        words = (*rest, *_option_words(verb, form))
        try:
            return CommandLine(command, verb, words, parse_arguments(verb, words, command), is_complete=True)
        except CommandRejected as rejection:
            optional = tuple(replace(parameter, required=False) for parameter in verb.parameters)
            try:
                arguments = parse_arguments(replace(verb, parameters=optional), words, command)
            except CommandRejected:
                return CommandLine(command, verb, words, Arguments(), is_complete=False, error=str(rejection))
            return CommandLine(command, verb, words, arguments, is_complete=False)

    def _page(self, call: ConsoleRequest, line: CommandLine) -> Response:
        """Return the page without replies: the form of the parameters is the page."""
        return call.page("run.html", parts="", with_parameters=True, **self._page_values(call, line, is_open=True))

    def _page_values(self, call: ConsoleRequest, line: CommandLine, *, is_open: bool) -> dict[str, Any]:
        verb = line.verb
        entry = entry_of((line.command, *line.all_words))
        related = call.menu.related(line.command, verb, call.viewer.member)
        subject = line.arguments.get(verb.places[0].name) if related else ""
        parent = next((other for other in ENTRIES if other.words[:1] == (line.command,)), None)
        summary = _heading(str(verb.summary))
        fields, offered = self._fields(line, call.viewer.conversation)
        # Of a verb that reads, its subject stands above: then there is nothing to filter by.
        is_bare = verb.reads and bool(subject) and len(fields) == 1
        few = _SHOWN_OPTIONS + 1 if verb.reads else len(verb.places)
        first = few if len(fields) > _SHOWN_OPTIONS else len(fields)
        return {
            "title": str(entry.title) if entry else subject or call.form.get("title") or summary,
            "summary": summary,
            "entry": entry,
            "parent": None if entry else parent,
            "live": shlex.join((line.command, *line.all_words)) if entry and entry.live and not call.is_post else "",
            "line": line,
            "subject": subject,
            "related": _related(line.command, related, subject) if subject else [],
            "buttons": {other.path: BUTTONS[other.path] for other in related if subject and other.path in BUTTONS},
            "first_fields": [] if is_bare else fields[:first],
            "other_fields": fields[first:],
            "offered": offered,
            "is_open": is_open,
            "may_destroy": any(parameter.name == "confirm" for parameter in verb.parameters),
        }

    def _fields(self, line: CommandLine, conversation: ConversationKey) -> tuple[list[Field], dict[str, list[str]]]:
        """Return a field for each parameter, in the order of a command line, and the names that text fields offer."""
        offered: dict[str, list[str]] = {}
        fields = []
        for parameter in sorted(line.verb.parameters, key=lambda each: each.shape is not ParameterKind.PLACE):
            names = self._names(line, parameter, conversation)
            field = _field_of(parameter, names, line.arguments.get_all(parameter.name))
            if names and field.kind is FieldKind.TEXT:
                offered[parameter.name] = names
            fields.append(field)
        return fields, offered

    def _names(self, line: CommandLine, parameter: Parameter, conversation: ConversationKey) -> list[str]:
        """Return the names that a parameter may have, as completion knows them."""
        if parameter.completes is CompletionSource.NOTHING:
            return []
        words = [line.command, *line.verb.path.split()]
        if parameter.shape is ParameterKind.PLACE:
            for place in line.verb.places:
                if place is parameter:
                    break
                if not line.arguments.get(place.name):
                    return []
                words.append(shlex.quote(line.arguments.get(place.name)))
        else:
            words.append(f"--{parameter.name}")
        head = " ".join(words) + " "
        found = (text.removeprefix(head) for text in self._commands.complete(head, conversation))
        names = [name for text in found if not text.startswith("--") for name in shlex.split(text)[:1]]
        return names[:_MOST_OFFERED]

    def _streamed(
        self,
        call: ConsoleRequest,
        page: str,
        request: Invocation | FormSubmission,
        correction: str = "",
        more: Sequence[tuple[PageSection, str]] = (),
    ) -> Response:
        """Return a page with the replies to a request, and with `correction` below the last one if it has failed; else
        with more sections about a subject.
        """

        async def write_parts(write: Write) -> None:
            with use_locale(call.viewer.locale):
                has_failed = await self._write_replies(call, request, write)
                if has_failed and correction:
                    await write(correction)
                for section, subject in () if has_failed else more:
                    await self._write_section(call, section, subject, write)

        return StreamedPage(page, write_parts)

    async def _write_replies(self, call: ConsoleRequest, request: Invocation | FormSubmission, write: Write) -> bool:
        """Write the replies to a request as they come. Return True if the last one has failed."""
        has_failed = False
        try:
            async with (
                asyncio.timeout(REPLY_SECONDS),
                aclosing(self._commands.handle(request)) as replies,  # type: ignore[type-var]
            ):
                async for reply in replies:
                    follow = await self._ask(call, reply)
                    has_failed = isinstance(reply, Reply) and reply.failed
                    await write(self._part(call, reply, request, follow))
        except (CountersignError, TimeoutError) as error:
            has_failed = True
            await write(self._part(call, Reply(error_message(error), failed=True), request))
        return has_failed

    async def _write_section(self, call: ConsoleRequest, section: PageSection, subject: str, write: Write) -> None:
        """Write the replies of a verb below others, or the form of its parameters if it needs more of them or changes
        something; nothing if the user may not run it.
        """
        command, *words = (*section.words, *([subject] if subject else []))
        line = self._read_line(FormData(), command, words)
        if line is None or not call.menu.may_run(line.verb, call.viewer.member):
            return
        await write(call.render("section.html", title=section.title))
        if line.verb.reads and line.is_complete:
            await self._write_replies(call, call.viewer.invocation(command, *words), write)
            return
        values = {
            **self._page_values(call, line, is_open=True),
            "at": f"{'-'.join(section.words)}-",
            "label": section.title,
        }
        await write(call.render("confirmed.html" if subject else "parameters.html", **values))

    async def _ask(self, call: ConsoleRequest, reply: Reply | Form) -> str:
        """Ask what a command passes on to the engine, in a new conversation. Return the path of that, or nothing."""
        if isinstance(reply, Form) or reply.message is None:
            return ""
        web = self._dependencies.web
        message = replace(reply.message, conversation=own_key(call.viewer))
        known = web.locales.with_known(message, call.viewer.locale, UNKNOWN, direct=True)
        receipt = await web.engine.receive(known)
        return conversation_path((await web.engine.view(receipt.turn_id)).turn.conversation)

    def _part(
        self, call: ConsoleRequest, reply: Reply | Form, request: Invocation | FormSubmission, follow: str = ""
    ) -> str:
        if isinstance(reply, Form):
            # A chat's button says what it can: "Continue", "Add and verify".
            saves = (_("Continue"), _("Add and verify"), _("Save and verify"))
            submit = _("Save") if str(reply.submit) in saves else str(reply.submit)
            return call.render("form.html", form=reply, submit=submit, title=call.form.get("title"))
        rows = reply.table.rows if reply.table is not None else ()
        opens = reply.table.opens if reply.table is not None else ()
        addresses = [command_path(words) if words else "" for words in opens] or [""] * len(rows)
        download = ""
        if (
            reply.document is not None
            and isinstance(request, Invocation)
            and self._reads(request.command, request.words)
        ):
            path = command_path((request.command, *request.words))
            download = f"{path}{'&' if '?' in path else '?'}download=1"
        return call.render(
            "reply.html",
            reply=reply,
            rows=list(zip(rows, addresses, strict=True)),
            actions=[self._action(action) for action in reply.actions if not self._has_button(call, action)],
            settings=reply.table.settings if reply.table is not None else (),
            back=call.path,
            bars=bar_widths(reply.table.bars if reply.table is not None else ()),
            pages=_page_links(reply),
            download=download,
            follow=follow,
        )

    def _has_button(self, call: ConsoleRequest, action: ReplyAction) -> bool:
        """Return True for what the page of a subject has a button or a form for."""
        command, *words = action.words
        found = find_verb(self._commands.verbs.get(command, ()), words)
        own = (*BUTTONS, *(section.words[-1] for section in sections_of(SERVER_WORDS)))
        return command_path((*SERVER_WORDS, *words[1:2])) == call.path and found is not None and found[0].path in own

    def _action(self, action: ReplyAction) -> dict[str, Any]:
        command, *words = action.words
        is_link = not action.confirm and self._reads(command, words)
        address = command_path(action.words) if is_link else ""
        rest = [word for _name, word in parse_qsl(address.partition("?")[2])]
        return {"action": action, "command": command, "address": address, "rest": rest}

    def _reads(self, command: str, words: Sequence[str]) -> bool:
        found = find_verb(self._commands.verbs.get(command, ()), words)
        return found is not None and found[0].reads

    async def _download(self, invocation: Invocation) -> Response:
        """Return the file of a reply."""
        document = None
        async for reply in self._commands.handle(invocation):
            document = reply.document if isinstance(reply, Reply) else None
        if document is None:
            return Response(status_code=404, headers={**HEADERS})
        return TextFile(document.name, document.text)


_NOTHING: Mapping[str, Any] = {
    "summary": "",
    "subject": "",
    "entry": None,
    "parent": None,
    "live": "",
    "line": None,
    "related": [],
    "buttons": {},
    "with_parameters": False,
}


def _heading(summary: str) -> str:
    """Return the first clause of a verb's summary; others are hints for a command line."""
    clause = re.split("[;。]", summary)[0]
    return f"{clause[:1].upper()}{clause[1:]}"


def split_words(text: str) -> Sequence[str]:
    """Return the words of a command line; a line that cannot be read is no command."""
    try:
        return shlex.split(text) or ("",)
    except ValueError:
        return ("",)


def _option_words(verb: Verb, form: Any) -> list[str]:
    """Return the fields of a verb's form as options, `--name=value`."""
    words = []
    given: dict[str, list[str]] = form.below("a.")
    for parameter in verb.parameters:
        values = given.get(parameter.name, [])
        if parameter.shape is ParameterKind.FLAG:
            words += [f"--{parameter.name}"] if "yes" in values else []
        elif parameter.repeated:
            words += [f"--{parameter.name}={value}" for text in values for value in text.split("\n") if value.strip()]
        else:
            words += [f"--{parameter.name}={value}" for value in values[-1:] if value]
    words += [f"--page={value}" for value in given.get("page", [])[-1:]]
    if "typed" in given:
        words.append(f"--confirm={given['typed'][-1].strip()}")
    return words


def _field_of(parameter: Parameter, names: Sequence[str], values: Sequence[str]) -> Field:
    """Return the field of a parameter with its given values."""
    # Most names are words of tables, too, which the catalogues have.
    label = _(parameter.name.replace("-", " "))
    choices = tuple(parameter.metavar.split("|")) if "|" in parameter.metavar else parameter.choices
    value = values[-1] if values else ""
    kind = FieldKind.TEXT
    if parameter.shape is ParameterKind.FLAG:
        kind = FieldKind.SWITCH
    elif parameter.repeated:
        kind, value = FieldKind.LINES, "\n".join(values)
    elif choices:
        kind = FieldKind.CHOICE
    elif names and len(names) <= _MOST_CHOICES and value in ("", *names):
        kind, choices = FieldKind.CHOICE, tuple(names)
    name, hint = parameter.name, str(parameter.hint)
    return Field(name, f"{label[:1].upper()}{label[1:]}", kind, hint, parameter.required, choices, value)


def _related(command: str, verbs: Sequence[Verb], subject: str) -> list[dict[str, Any]]:
    """Return the verbs about a subject: those that need no other argument run at once."""
    return [
        {
            "verb": verb,
            "command": command,
            "address": command_path((command, *verb.path.split(), subject)),
            "needs_no_more": sum(parameter.required for parameter in verb.parameters) <= 1,
            "runs": not verb.reads and sum(parameter.required for parameter in verb.parameters) <= 1,
            "words": (*verb.path.split(), subject),
        }
        for verb in verbs
        if verb.path.split() not in [[*section.words[1:]] for section in sections_of(SERVER_WORDS)]
    ]


def _page_links(reply: Reply) -> dict[str, Any] | None:
    page = reply.page
    if page is None:
        return None
    paths = [
        command_path((*page.words, "--page", str(number))) if 1 <= number <= page.of else ""
        for number in (page.number - 1, page.number + 1)
    ]
    return {"number": page.number, "of": page.of, "before": paths[0], "after": paths[1]}
