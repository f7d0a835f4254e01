"""A harness of commands in memory: servers, stores and administration that tests can set."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from bot.admin.dependencies import (
    AdminStores,
    CommandDependencies,
    ConfigDiff,
    OperatorTerms,
    Rights,
    RunningProcess,
    any_name,
)
from bot.admin.registry import CommandRegistry
from bot.domain.agents import AgentRef
from bot.domain.approvals import ApprovalPolicy, ApprovalRequirements
from bot.domain.audit import AuditHead, AuditReport
from bot.domain.commands import Form, FormSubmission, Invocation, Reply
from bot.domain.conversations import Author, ConversationKey, Member
from bot.domain.flows import Words
from bot.domain.health import Health
from bot.domain.launch_templates import LaunchTemplate
from bot.domain.metrics import ProcessCounters
from bot.domain.pins import WAITING, ReviewPolicy, ReviewStatus, first_pins, review_status
from bot.domain.policies import Rule
from bot.domain.profiles import Binding, ServersEnabled
from bot.domain.secrets import SecretReference
from bot.domain.servers import (
    CompletionTarget,
    DesiredServer,
    HttpTransport,
    Piece,
    Prompt,
    PromptArgument,
    Resource,
    ServerCapabilities,
    ServerConfig,
    ServerEnablement,
    ServerRecord,
    ServerSnapshot,
    ServerStatus,
    StdioTransport,
    TextContents,
)
from bot.domain.tools import Annotations, Tool
from bot.domain.turns import TurnView
from bot.engine.policy.approvers import Approvers
from bot.engine.policy.information_flow import asks_after
from bot.engine.policy.rules import Policies, RuleBook, Rules, ServerPolicy
from bot.errors import NotFound, ServerTrouble
from bot.examination import Check, CheckStatus
from bot.mcp.config.catalog import Catalog
from bot.mcp.hosts import read_hosts
from bot.mcp.resource_tools import request_tools
from tests.admin.memory_stores import (
    NOW,
    MemoryArchive,
    MemoryGrants,
    MemoryInstallations,
    MemoryLocales,
    MemoryPins,
    MemoryPolicies,
    MemoryProfiles,
    MemoryServers,
    MemorySessions,
    MemoryTokens,
    MemoryUsage,
)
from tests.fakes.parts import ANA, BEN, HALL

ADMIN = Member(ANA, platform_admin=True)
GUEST = Member(BEN)
OPERATOR = Member(Author("test", "op", "Op"), platform_admin=True)

NOTES = ServerConfig("notes", StdioTransport("python", ("-m", "notes")), trusted=True)
WEB = ServerConfig("web-search", HttpTransport("https://search.example/mcp"))


def tool(server: ServerConfig | str, name: str, **more: object) -> Tool:
    slug = server if isinstance(server, str) else server.name
    server_id = f"file:{slug}" if isinstance(server, str) else server.id
    return Tool(f"{slug}__{name}", slug, name, server_id=server_id, **more)  # type: ignore[arg-type]


@dataclass
class Servers:
    """Fake `bot.ports.ServerAdmin`."""

    states: list[ServerSnapshot] = field(default_factory=list)
    offered: list[Tool] = field(default_factory=list)
    prompts: dict[str, tuple[Prompt, ...]] = field(default_factory=dict)
    resources: dict[str, tuple[Resource, ...]] = field(default_factory=dict)
    instructions: dict[str, Tool] = field(default_factory=dict)
    enabled: bool = True
    after_a_while: list[ServerSnapshot] | None = None
    checks: list[Check] = field(default_factory=lambda: [Check("Reached", CheckStatus.WELL, "", "", 0.082)])
    done: list[tuple[str, ...]] = field(default_factory=list)
    trouble: str = ""
    pins: MemoryPins = field(default_factory=MemoryPins)
    review: ReviewPolicy = ReviewPolicy.CHANGED
    suggestions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Suggested values of arguments, by name."""
    asked_to_complete: list[tuple[CompletionTarget, dict[str, str]]] = field(default_factory=list)

    def unpinned_tools(self, server: str) -> Sequence[Tool]:
        return self._tools_in(server, *WAITING)

    def refused_tools(self, server: str) -> Sequence[Tool]:
        return self._tools_in(server, ReviewStatus.REFUSED)

    def _tools_in(self, server: str, *statuses: ReviewStatus) -> Sequence[Tool]:
        tools = self.capabilities(server).definitions
        pinned = {pin.tool: pin.definition for pin in self.pins.entries.values() if pin.server_id == server}
        pinned = pinned or first_pins(tools)
        return [each for each in tools if review_status(each, pinned) in statuses]

    async def wait_ready(self) -> None:
        if self.after_a_while is not None:
            self.states = self.after_a_while

    async def reconcile(self, entries: Sequence[DesiredServer]) -> None:
        raise NotImplementedError

    def servers(self) -> Sequence[ServerSnapshot]:
        return sorted(self.states, key=lambda state: state.config.name)

    def capabilities(self, server: str) -> ServerCapabilities:
        self.snapshot(server)
        return ServerCapabilities(
            tuple(each for each in self.offered if each.server_id == server),
            self.resources.get(server, ()),
            (),
            self.prompts.get(server, ()),
            instructions=self.instructions.get(server),
        )

    def by_server(self, tool: Tool) -> Tool:
        return tool

    def requests(self, server: str) -> Sequence[Tool]:
        return request_tools(self.snapshot(server).config, self.capabilities(server))

    async def connect(self, server: str) -> ServerSnapshot:
        self.done.append(("connect", server))
        return self.snapshot(server)

    async def sync(self, server: str) -> ServerCapabilities:
        self.done.append(("sync", server))
        if self.trouble:
            raise ServerTrouble(self.trouble, "start it")
        return self.capabilities(server)

    async def sync_all(self) -> None:
        raise NotImplementedError

    async def diagnose(self, server: str) -> AsyncGenerator[Check, None]:
        self.done.append(("examine", server))
        self.snapshot(server)
        for check in self.checks:
            yield check

    async def read_resource(self, server: str, uri: str) -> Sequence[Piece]:
        self.done.append(("read", server, uri))
        if self.trouble:
            raise ServerTrouble(self.trouble)
        return [TextContents(uri, "**what it says**")]

    async def get_prompt(self, server: str, name: str, arguments: Mapping[str, str]) -> Sequence[Piece]:
        self.done.append(("prompt", server, name, str(dict(arguments))))
        return [TextContents("user", f"Write about {arguments.get('topic', 'it')}.")]

    async def complete(self, server: str, of: CompletionTarget, given: Mapping[str, str]) -> Sequence[str]:
        self.asked_to_complete.append((of, dict(given)))
        return self.suggestions.get(of.argument, ())

    def snapshot(self, server: str) -> ServerSnapshot:
        found = next((state for state in self.states if state.config.id == server), None)
        if found is None:
            raise NotFound("There is no such server.")
        return found


class Way(Protocol):
    """A way to send commands."""

    async def answers(self, held: CommandHarness, request: Invocation | FormSubmission) -> list[Reply | Form]: ...

    def author(self, author: Author) -> Author:
        """Return a user of the platform."""

    def place(self, where: ConversationKey, author: Author = ANA) -> ConversationKey:
        """Return the user's place on the platform."""


class AtOnce:
    """Sends commands directly to the registry."""

    async def answers(self, held: CommandHarness, request: Invocation | FormSubmission) -> list[Reply | Form]:
        return [answer async for answer in held.registry.handle(request)]

    def author(self, author: Author) -> Author:
        return author

    def place(self, where: ConversationKey, author: Author = ANA) -> ConversationKey:
        return where


@dataclass
class CommandHarness:
    """Commands over memory. `refresh` makes the servers follow the store, as the harness does."""

    servers: Servers = field(default_factory=Servers)
    store: MemoryServers = field(default_factory=MemoryServers)
    policies: MemoryPolicies = field(default_factory=MemoryPolicies)
    profiles: MemoryProfiles = field(default_factory=MemoryProfiles)
    archive: MemoryArchive = field(default_factory=MemoryArchive)
    grants: MemoryGrants = field(default_factory=MemoryGrants)
    locales: MemoryLocales = field(default_factory=MemoryLocales)
    sessions: MemorySessions = field(default_factory=MemorySessions)
    tokens: MemoryTokens = field(default_factory=MemoryTokens)
    installations: MemoryInstallations = field(default_factory=MemoryInstallations)
    usage: MemoryUsage = field(default_factory=MemoryUsage)
    named: dict[tuple[str, str], ApprovalPolicy] = field(default_factory=dict)
    """The operator's policies, by slug and tool."""
    operator_rules: tuple[Rule, ...] = ()
    """Further rules of the operator."""
    self_approval: bool = True
    reviewed: bool = False
    """True if all definitions are treated as pinned."""
    views: dict[str, list[TurnView]] = field(default_factory=dict)
    news: ConfigDiff = ConfigDiff()
    older_files: str = ""
    health: Health = Health(database=True)
    counted: ProcessCounters = ProcessCounters()
    objections: str = ""
    programs: set[str] = field(default_factory=set)
    catalog: Catalog = field(default_factory=Catalog)
    refused_references: str = ""
    admits: Callable[[str], bool] = any_name
    servers_enabled: ServersEnabled = ServersEnabled.ALL
    refreshed: int = 0
    reloaded: int = 0
    way: Way = field(default_factory=AtOnce)
    templates: dict[str, LaunchTemplate] = field(default_factory=dict)

    async def refresh(self) -> None:
        self.refreshed += 1
        status = {
            ServerEnablement.ON: ServerStatus.CONNECTED,
            ServerEnablement.DISABLED: ServerStatus.DISABLED,
            ServerEnablement.DISCONNECTED: ServerStatus.DISCONNECTED,
        }
        of_file = [state for state in self.servers.states if state.config.from_file]
        of_store = [ServerSnapshot(each.config, status[each.enablement]) for each in self.store.entries.values()]
        self.servers.states = [*of_file, *of_store]

    @property
    def files_rejection(self) -> str:
        return self.older_files

    async def difference(self) -> ConfigDiff:
        return self.news

    async def reload(self) -> ConfigDiff:
        self.reloaded += 1
        return self.news

    def rejection_reason(self, config: ServerConfig) -> str:
        return self.objections

    def allows_program(self, program: str) -> bool:
        return program in self.programs

    async def allow_program(self, program: str) -> None:
        self.programs.add(program)

    def reference_rejection(self, reference: SecretReference, config: ServerConfig) -> str:
        return self.refused_references

    def asks_after(self, tool: Tool, arguments: Mapping[str, object]) -> Sequence[Words]:
        return asks_after(tool, arguments)

    def rules(self, conversation: ConversationKey, agent: AgentRef | None = None) -> Rules:
        return self.rule_book.rules(conversation, agent)

    def signed_by(
        self, terms: ApprovalRequirements, conversation: ConversationKey, agent: AgentRef | None = None
    ) -> str:
        return self.rule_book.rules(conversation, agent).approvers.format_requirements(terms)

    @property
    def rule_book(self) -> RuleBook:
        servers: dict[str, dict[str, ApprovalPolicy]] = {}
        for (server, name), policy in self.named.items():
            servers.setdefault(server, {})[name] = policy
        short = {server: ServerPolicy(tools) for server, tools in servers.items()}
        file = Policies(servers=short, rules=self.operator_rules, self_approval=self.self_approval)
        approvers = Approvers(admins=frozenset({ANA.principal}))
        default_profile = self.servers_enabled.default_profile
        book = RuleBook(file, approvers, lambda _tool: self.reviewed, read_hosts, default_profile=default_profile)
        bindings = [
            *(Binding(place, profile) for place, profile in self.profiles.bound.items()),
            *(Binding(place, profile, by_name=True) for place, profile in self.profiles.by_name),
        ]
        book.amend(self.policies.entries.values(), self.profiles.entries.values(), bindings)
        return book

    async def recent(self, conversation: ConversationKey, limit: int) -> Sequence[TurnView]:
        return self.views.get(str(conversation), [])[-limit:]

    async def current_health(self) -> Health:
        return self.health

    @property
    def parts(self) -> CommandDependencies:
        return CommandDependencies(
            self.servers,
            self,
            Rights(
                lambda member: member.platform_admin,
                lambda member: member == OPERATOR,
                lambda member: member == OPERATOR,
                "test:ana",
            ),
            AdminStores(
                self.store,
                self.servers.pins,
                self.policies,
                self.profiles,
                self.grants,
                self.usage,
                self.locales,
                self.archive,
                self.sessions,
                self.tokens,
                self.installations,
            ),
            OperatorTerms(
                self.catalog,
                admits=self.admits,
                templates=lambda: self.templates,
                servers_enabled=self.servers_enabled,
            ),
            RunningProcess(
                self.recent,
                self.current_health,
                lambda servers: self.counted if "jira" in servers else ProcessCounters(),
                self.usage.balances,
                self.audit_report,
            ),
            clock=lambda: NOW,
        )

    async def audit_report(self) -> AuditReport:
        return AuditReport(AuditHead(), 0, True, None, None, (), 0, None, (), 0, ())

    @property
    def registry(self) -> CommandRegistry:
        return CommandRegistry(self.parts)

    async def answers(
        self,
        *words: str,
        member: Member = ADMIN,
        where: ConversationKey = HALL,
        hidden_input: bool = False,
    ) -> list[Reply | Form]:
        command, *rest = words
        return await self.way.answers(self, Invocation(command, tuple(rest), member, where, hidden_input))

    async def run(
        self, *words: str, member: Member = ADMIN, where: ConversationKey = HALL, hidden_input: bool = False
    ) -> Reply:
        """Run a command and return the last reply."""
        reply = (await self.answers(*words, member=member, where=where, hidden_input=hidden_input))[-1]
        assert isinstance(reply, Reply), reply
        return reply

    async def ask(self, line: str, member: Member = ADMIN, where: ConversationKey = HALL) -> Reply:
        """Run a command line, given without its slash, and return the last reply."""
        return await self.run(*line.split(), member=member, where=where)

    async def refusal(self, line: str, member: Member = ADMIN, where: ConversationKey = HALL) -> Reply:
        """Run a command line that fails, and return the last reply."""
        reply = await self.ask(line, member, where)
        assert reply.failed, reply
        return reply

    async def form(self, line: str, member: Member = ADMIN, *, hidden_input: bool = False) -> Form:
        form = (await self.answers(*line.split(), member=member, hidden_input=hidden_input))[-1]
        assert isinstance(form, Form), form
        return form

    async def submit(
        self, form: Form, fields: Mapping[str, str], member: Member = ADMIN, *, hidden_input: bool = False
    ) -> Reply | Form:
        """Submit a form as a platform does: with carried fields, preset values and the user's input."""
        present = {each.name: each.value for each in form.fields}
        filled = {**form.carried, **present, **fields}
        return (await self.way.answers(self, FormSubmission(form.id, filled, member, HALL, hidden_input)))[-1]

    async def next_form(
        self, form: Form, fields: Mapping[str, str], member: Member = ADMIN, *, hidden_input: bool = False
    ) -> Form:
        """Submit a form that another one follows."""
        answer = await self.submit(form, fields, member, hidden_input=hidden_input)
        assert isinstance(answer, Form), answer
        return answer

    async def reply_to(
        self, form: Form, fields: Mapping[str, str], member: Member = ADMIN, *, hidden_input: bool = False
    ) -> Reply:
        """Submit the last form, and return the last reply."""
        answer = await self.submit(form, fields, member, hidden_input=hidden_input)
        assert isinstance(answer, Reply), answer
        return answer

    @property
    def record(self) -> ServerRecord:
        """The only server of the store."""
        [record] = self.store.entries.values()
        return record


def command_harness() -> CommandHarness:
    """Return a harness with the two servers of the operator's file."""
    return CommandHarness(
        two_servers(),
        named={
            ("notes", "list"): ApprovalPolicy.ALWAYS_ALLOW,
            ("notes", "delete"): ApprovalPolicy.ALWAYS_DENY,
        },
    )


def two_servers() -> Servers:
    return Servers(
        [
            ServerSnapshot(NOTES, ServerStatus.CONNECTED, protocol="2025-11-25", server_version="1.2.3", tool_count=3),
            ServerSnapshot(WEB, ServerStatus.FAILED, "Server web-search cannot be reached. Fix: start it."),
        ],
        [
            tool("notes", "list", title="List notes", annotations=Annotations(read_only=True), trusted=True),
            tool(
                "notes", "add", description="Add a note.\nAt once.", annotations=Annotations(False, False), trusted=True
            ),
            tool("notes", "delete", annotations=Annotations(destructive=True), trusted=True),
        ],
        prompts={NOTES.id: (Prompt("summary", "Sum up", "", (PromptArgument("topic", "", required=True),)),)},
        resources={NOTES.id: (Resource("notes://1", "first"),)},
    )


def registry(servers: Servers) -> CommandRegistry:
    """Return a registry of all commands for these servers, with empty stores."""
    held = command_harness()
    held.servers = servers
    return held.registry


async def with_jira(member: Member = ADMIN, way: Way | None = None) -> CommandHarness:
    """Return a harness in which an admin of the workspace has added `jira`, with a secret and a tool that writes."""
    held = command_harness()
    held.way = way or held.way
    line = "mcp add jira --url https://jira.example/mcp --auth api_key --secret env:JIRA_TOKEN"
    reply = (await held.answers(*line.split(), member=member))[-1]
    assert isinstance(reply, Reply)
    assert not reply.failed
    jira = next(iter(held.store.entries.values())).config
    held.servers.offered.append(tool(jira, "create_issue"))
    held.store.audit.clear()
    held.servers.done.clear()
    held.refreshed = 0
    return held


def config_of(held: CommandHarness, name: str) -> ServerConfig:
    return next(each.config for each in held.store.entries.values() if each.config.name == name)


def elsewhere(config: ServerConfig) -> ServerConfig:
    return replace(config, workspace="test:other")
