"""`countersign chat`: the terminal chat. The prompt appears at once; the runtime is built in the background."""

from __future__ import annotations

import asyncio
import difflib
import importlib
import math
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bot.app import web
from bot.app.database import use_database
from bot.app.models import is_demo, select_model
from bot.app.operator_files import read_operator_files
from bot.app.secrets import check_operator_secrets
from bot.domain.agents import AgentRef
from bot.domain.approvals import ApprovalRequirements
from bot.domain.conversations import ConversationKey
from bot.domain.locales import Locale, system_locale, use_locale
from bot.domain.servers import ServerStatus
from bot.domain.turns import Turn
from bot.errors import CountersignError, InvalidOption
from bot.i18n import _
from bot.logs import log_to_file
from bot.platforms.console.abandoned import describe, find_abandoned
from bot.platforms.console.auto_approval import ApproveMode
from bot.platforms.console.console import process_streams
from bot.platforms.console.headless import HeadlessChat
from bot.platforms.console.local_user import SCRIPT_PREFIX, LocalUser, fresh_conversation, login_name
from bot.platforms.console.turn_tracker import MOST_CONVERSATIONS, StartState, Welcome
from bot.ports import TurnViews
from bot.settings import Settings
from bot.storage.address import read_address
from bot.storage.lock_file import FileUse

if TYPE_CHECKING:
    from bot.admin.dependencies import Administration
    from bot.app.components import Runtime
    from bot.app.runtime import WatchLog
    from bot.chat.approval_inbox import ReadPendingCalls
    from bot.engine.engine import Engine
    from bot.platforms.console.interactive import InteractiveChat
    from bot.ports import Commands, ConversationSummary, ReportingStore
    from bot.web.surface import ApiSurface

    Terminal = HeadlessChat | InteractiveChat

_STARTING = (ServerStatus.PENDING, ServerStatus.CONNECTING)
_IN_TROUBLE = (ServerStatus.FAILED, ServerStatus.AUTH_REQUIRED)
REMEMBERED_TURNS = 50
MOST_WAITING = 50
"""Number of calls that wait for the user, among which the start looks for those of other conversations."""
COMPARED_IDS = 200
"""Number of conversations among which one with a similar id is looked for."""
OFFERED_CONVERSATIONS = 50
"""Number of conversations that the prompt completes behind `/open`."""
KNOWN_SECONDS = 86_400.0
"""Age of a server's stored tools up to which a chat starts the server only when one of them is used."""
WRITES_SECONDS, REFUSALS = 1.0, 15
"""Interval of the check that the database takes writes, and the refused ones in a row that end a script."""
TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Command line options of a chat. `user` names a user other than the operator, `agent` the one to ask."""

    message: str | None = None
    model: str = ""
    approve: ApproveMode = ApproveMode.ASK
    user: str = ""
    fresh: bool = False
    conversation: str = ""
    json: bool = False
    agent: str = ""


async def chat(settings: Settings, options: ChatOptions, *, watch_log: WatchLog = lambda turn_log: turn_log) -> int:
    """Run a chat in this terminal until the user leaves. Return the exit code. Raises CountersignError."""
    check_operator_secrets(settings)
    session = _Session(settings, options)
    settings, locale = session.settings, session.person.locale
    with use_locale(locale), use_database(settings, "countersign chat") as use:
        log_to_file(settings.log_level, session.folder / "countersign.log")
        return await session.run(use, watch_log)


async def _serve_console(settings: Settings, runtime: Runtime, terminal: Terminal, api: ApiSurface) -> None:
    """Serve the console to this machine until cancelled, unless its port is in use."""
    web.attach_surface(api, settings, runtime)
    dependencies = web.build_web_dependencies(settings, runtime, api)
    pages = web.console_pages(settings, dependencies, runtime, [terminal.surface, api])
    async with web.serve_if_free(web.serve_web(settings, pages=pages)) as port:
        if port is not None:
            address = f"{web.lead_to_console(dependencies.command_dependencies, settings, port)}/console/"
            terminal.surface.announce(_("The console is at {address}: `/console` opens it as you.", address=address))
        await asyncio.Event().wait()


class _Session:
    """One chat, from the first prompt to the exit. The terminal waits for the futures, the results of the start."""

    def __init__(self, settings: Settings, options: ChatOptions) -> None:
        if options.model:
            settings = settings.model_copy(update={"bot_model": options.model})
        self.settings = settings
        self.options = options
        self.choice = select_model(settings)
        self.files = read_operator_files(settings)
        self.folder = read_address(settings.database_url, settings.data_folder).folder
        self.streams = process_streams()
        self.person = LocalUser(
            options.user or login_name(),
            operator=not options.user,
            locale=system_locale(self.streams.environ).or_else(Locale(settings.language, settings.time_zone)),
            agent=options.agent,
            is_script=not (self.streams.interactive and options.message is None and not options.json),
        )
        self.use: FileUse | None = None
        self.administration: Administration | None = None
        """Set before the first turn."""
        loop = asyncio.get_running_loop()
        self.engine: asyncio.Future[Engine] = loop.create_future()
        self.commands: asyncio.Future[Commands] = loop.create_future()
        self.opening: asyncio.Future[StartState] = loop.create_future()
        self.welcome: asyncio.Future[Welcome] = loop.create_future()

    async def run(self, use: FileUse | None, watch_log: WatchLog) -> int:
        """Chat. `use` is the use of a SQLite file, `watch_log` may wrap the turn log."""
        self.use = use
        loop = asyncio.get_running_loop()
        terminal = self._terminal()
        leaving = asyncio.Event()
        building = asyncio.create_task(self._build(terminal, leaving, watch_log), name="runtime")
        listener = terminal.run(self.engine, self.commands, self.opening)
        listening = asyncio.create_task(listener, name="terminal")
        # An unexpected error ends the listener, and `await building` raises it.
        building.add_done_callback(
            lambda built: None if built.cancelled() else built.exception() and listening.cancel()
        )
        loop.add_signal_handler(signal.SIGTERM, listening.cancel)
        loop.add_signal_handler(signal.SIGHUP, listening.cancel)
        loop.add_signal_handler(signal.SIGINT, terminal.interrupt)
        try:
            return await listening
        except asyncio.CancelledError:
            return TERMINATED
        finally:
            leaving.set()
            await building
            for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                loop.remove_signal_handler(signal_number)

    async def _build(self, terminal: Terminal, leaving: asyncio.Event, watch_log: WatchLog) -> None:
        """Build the runtime, publish its components, and run it until the user leaves."""
        operator = self.person.author.principal if self.person.operator else ""
        # The process that serves the page of a one-time link cannot check the access of a terminal user.
        settings = self.settings.model_copy(update={"public_url": None})
        futures: tuple[asyncio.Future[Any], ...] = (self.opening, self.commands, self.engine, self.welcome)
        try:
            # In a thread, because loading takes a second and the prompt is there already.
            names = ("bot.app.runtime", "bot.chat.context", "bot.chat.interactions")
            for name in names[:2] if self.person.is_script else names:
                await asyncio.to_thread(importlib.import_module, name)
            from bot.app.runtime import open_runtime  # noqa: PLC0415 - loaded now

            api = await web.open_surface() if settings.console and not self.person.is_script else None
            async with open_runtime(
                settings,
                self.files,
                self.choice,
                [terminal.surface] if api is None else [terminal.surface, api],
                use=self.use,
                operator=operator,
                # The tools of a run that ends at once are the stored ones, because it would not see newer ones.
                known_for=math.inf if self.person.is_script else KNOWN_SECONDS,
                watch_log=watch_log,
                notify=terminal.surface.announce,
            ) as runtime:
                await self._publish(runtime, terminal)
                tasks = self._start_tasks(runtime, terminal, api)
                tasks[0].add_done_callback(lambda _: leaving.set())
                try:
                    await runtime.run_until(leaving)
                    if tasks[0].done():
                        await tasks[0]  # raises its error
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.wait(tasks)
        except CountersignError as error:
            if self.engine.done():
                raise
            for future in futures:
                if not future.done():
                    future.set_exception(error)
                    # An awaiting caller gets the error; without one it is not logged as lost.
                    future.exception()
        finally:
            for future in futures:
                future.cancel()

    def _start_tasks(self, runtime: Runtime, terminal: Terminal, api: ApiSurface | None) -> list[asyncio.Task[None]]:
        """Start what runs beside the chat. The first task ends if the database takes no writes."""
        tasks = [asyncio.create_task(self._watch_writes(runtime, terminal), name="disk")]
        if not self.person.is_script:
            tasks.append(asyncio.create_task(self._greet(runtime), name="welcome"))
        if api is not None:
            serving = _serve_console(self.settings, runtime, terminal, api)
            tasks.append(asyncio.create_task(serving, name="console"))
        return tasks

    async def _publish(self, runtime: Runtime, terminal: Terminal) -> None:
        from bot.chat.approval_inbox import PendingCallReader  # noqa: PLC0415 - loaded with the runtime
        from bot.chat.context import Lookups, with_card_forms  # noqa: PLC0415

        services = runtime.services

        def notify(conversations: Sequence[ConversationKey]) -> None:
            if self.use is not None:
                self.use.open_conversations(map(str, conversations))
            runtime.engine.poll()

        terminal.surface.on_open(notify)
        read_pending = PendingCallReader(services.stores.reporting, runtime.turn_log, services.rules).read
        self.opening.set_result(await self._opening(runtime, read_pending, terminal))
        records = Lookups(pending_calls=read_pending)
        self.commands.set_result(with_card_forms(runtime.engine, runtime.commands, records))
        self.administration = services.administration
        self.engine.set_result(runtime.engine)

    async def _watch_writes(self, runtime: Runtime, terminal: Terminal) -> None:
        """Say when the database takes no writes. Raises CountersignError in a script if that lasts."""
        refused = 0
        while True:
            await asyncio.sleep(WRITES_SECONDS)
            refused = 0 if runtime.services.stores.takes_writes() else refused + 1
            if refused == 1 or (refused >= REFUSALS and self.person.is_script):
                health = await runtime.services.health.check()
                cause = _("The database cannot be written: {reason}.", reason=health.unwritable)
                if refused > 1 and health.unwritable:
                    raise CountersignError(cause, health.fix)
                if health.unwritable:
                    terminal.surface.announce(str(CountersignError(cause, health.fix)))

    async def _greet(self, runtime: Runtime) -> None:
        """Publish the connected servers, once they have had time to answer."""
        from bot.llm.demo import examples  # noqa: PLC0415 - a script has no other use for it

        services, key = runtime.services, self.person.key("")
        offer = await services.toolbox.offer(key.workspace_key)
        tools = [tool for tool in offer.tools if services.rules.rules(key).profile.enables(tool)]
        snapshots = services.toolbox.servers()
        in_trouble = [server.config.name for server in snapshots if server.status in _IN_TROUBLE]
        # In a thread, because each example is planned as the demo model would.
        tried = await asyncio.to_thread(examples, tools, datetime.now(UTC).astimezone().date())
        servers = dict(sorted(Counter(tool.server for tool in tools).items()))
        names = [server.config.name for server in services.toolbox.servers() if server.status in _STARTING]
        starting = [name for name in names if name not in servers]
        self.welcome.set_result(Welcome(servers, in_trouble, tried, is_demo(self.settings), starting))

    def _terminal(self) -> Terminal:
        options, person, streams = self.options, self.person, self.streams
        if person.is_script:
            return HeadlessChat(
                options.message,
                person,
                streams,
                approve=options.approve,
                as_json=options.json,
                signed_by=self._signed_by,
                files=self.folder / "files",
            )
        from bot.platforms.console.interactive import InteractiveChat  # noqa: PLC0415 - pipes must not wait for prompt_toolkit

        history = self.folder / "history"
        if not self.settings.keeps_content:  # not even an earlier file is kept
            with suppress(OSError):
                history.unlink(missing_ok=True)
        return InteractiveChat(
            person,
            streams,
            model=self.choice.label,
            approve=options.approve,
            history=history if self.settings.keeps_content else None,
            files=self.folder / "files",
            welcome=self.welcome,
        )

    def _signed_by(self, terms: ApprovalRequirements, conversation: ConversationKey, agent: AgentRef | None) -> str:
        """Return the approvers of a call in short text, for events."""
        return self.administration.signed_by(terms, conversation, agent) if self.administration is not None else ""

    async def _opening(self, runtime: Runtime, read_pending: ReadPendingCalls, terminal: Terminal) -> StartState:
        """Return the named conversation, or the last one of a window unless it is open in another. Headless runs start
        a new one each.
        """
        turn_log, key_prefix, elsewhere = runtime.turn_log, self.person.key_prefix, ""
        saved = _SavedConversations(self.person, runtime.services.stores.reporting, turn_log)
        conversation = await self._named_conversation(saved)
        abandoned = await find_abandoned(turn_log, key_prefix)
        for view in abandoned:
            if view.turn.conversation.thread != conversation:
                terminal.surface.announce(describe(view))
        if self.person.is_script:
            threads = [view.turn.conversation.thread for view in abandoned]
            return replace(await saved.start(conversation), left=threads, abandoned=abandoned)
        others = await asyncio.to_thread(self.use.others) if self.use is not None else ()
        open_elsewhere = {key for process in others for key in process.conversations}
        if not conversation and not self.options.fresh:
            latest = await turn_log.latest_conversation(key_prefix, SCRIPT_PREFIX)
            thread = latest.thread if latest else ""
            conversation, elsewhere = ("", thread) if str(latest) in open_elsewhere else (thread, "")
        unanswered = await turn_log.unanswered_conversations(key_prefix, MOST_CONVERSATIONS)
        unfinished = [key for key in unanswered if str(key) not in open_elsewhere]
        waiting: list[Turn] = []
        if asking := [key for key in unfinished if key.thread != conversation]:
            pending = await read_pending(self.person.member, asking[0].workspace_key, 0, MOST_WAITING)
            waiting = [call.turn for call in pending.calls if call.turn.conversation in asking]
        start = await saved.start(conversation)
        names = [key.thread for key in unfinished] if self.use is not None else []
        return replace(start, left=names, elsewhere=elsewhere, waiting=waiting)

    async def _named_conversation(self, saved: _SavedConversations) -> str:
        """Return the conversation of `--conversation`; a new name with `--new`; empty without one. Raises
        InvalidOption.
        """
        if not (name := saved.name_of(self.options.conversation)):
            return ""
        if not self.options.fresh:
            return await saved.find(name, _("countersign chat --list lists them, --new starts one of this name"))
        if await saved.archive.summary(self.person.key(name)) is not None:
            raise InvalidOption(_("There is a conversation {name} already.", name=name), _("go on without --new"))
        return name


@dataclass(frozen=True, slots=True)
class _SavedConversations:
    """The user's conversations on disk."""

    person: LocalUser
    archive: ReportingStore
    turn_log: TurnViews

    async def titles(self) -> Mapping[str, str]:
        return {summary.key.thread: summary.title for summary in await self._last(OFFERED_CONVERSATIONS)}

    async def read(self, name: str) -> StartState:
        return await self.start(await self.find(self.name_of(name), _("/conversations list shows the ids")))

    async def start(self, conversation: str) -> StartState:
        """Return a conversation with its last turns, a new one without an id."""
        if not conversation:
            return StartState(fresh_conversation(), saved=self)
        recent = await self.turn_log.recent_turns(self.person.key(conversation), REMEMBERED_TURNS)
        shown = [view for view in recent if not view.turn.content_deleted]
        return StartState(conversation, shown, turns=recent[-1].turn.seq if recent else 0, saved=self)

    async def find(self, name: str, advice: str) -> str:
        """Return the id that begins with this name. Raises InvalidOption if that is not one, with advice."""
        from bot.admin.conversations import ambiguous_id, find_conversations  # noqa: PLC0415 - loaded by then

        matches = await find_conversations(self.archive, self.person.key(name))
        if len(matches) > 1:
            raise InvalidOption(ambiguous_id(name, matches), _("write more of the one that you mean"))
        if matches:
            return matches[0].thread
        ids = [summary.key.thread for summary in await self._last(COMPARED_IDS)]
        nearest = difflib.get_close_matches(name, ids)
        meant = _("did you mean {names}?", names=", ".join(nearest)) if nearest else ""
        fix = " ".join(filter(None, (meant, advice)))
        raise InvalidOption(_("You have no conversation {name}.", name=name), fix)

    def name_of(self, typed: str) -> str:
        """Return a typed id without the parts of a key before it."""
        return typed.removeprefix(self.person.key_prefix).removeprefix(f"{self.person.name}:")

    async def _last(self, count: int) -> Sequence[ConversationSummary]:
        summaries, _total = await self.archive.conversations(self.person.key_prefix, "", count, 0)
        return summaries
