"""Diagnosis of a server: checks from its network address to its tools, with cause and fix.

The first broken check ends the diagnosis; the remaining ones are skipped. Each check closes its resources before its
result is returned, so the generators may be closed at any time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from bot.domain.flows import NO_FLOWS, Sends, Words
from bot.domain.health import Check, CheckStatus
from bot.domain.secrets import names_a_place
from bot.domain.servers import (
    CachedCapabilities,
    DesiredServer,
    HttpKind,
    HttpTransport,
    Protocol,
    ServerConfig,
    ServerEnablement,
    ServerStatus,
    SessionScope,
    StdioTransport,
    SyncStatus,
)
from bot.domain.tools import Tool, ToolKind, count_tools
from bot.errors import ServerTrouble, SettingsError
from bot.i18n import _, gettext_lazy, ngettext, pgettext_lazy
from bot.machine import Proxy, find_proxy
from bot.mcp.config.checks import (
    check_definition,
    check_paths,
    is_address,
    origin_of,
    parse_ip,
    resolve_allowed,
    resolve_host,
)
from bot.mcp.errors import InvalidDefinition, cause_and_fix, record_request, split_fix, status_phrase
from bot.mcp.redaction import USER_NAME, Redaction, public_address
from bot.mcp.registry import ManagedServer
from bot.mcp.server.connection import Connection
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.output import ServerLog, StrayLineCounter
from bot.mcp.server.retry import StartLimiter
from bot.mcp.server.status import ASK_FIX, PLAIN, ServerStatusTracker, SyncNotifier
from bot.mcp.transports.http import http_client

_ADDRESS = pgettext_lazy("check", "address")
_AUTHENTICATION = pgettext_lazy("check", "authentication")
_TOOLS = pgettext_lazy("check", "tools")
_COMMAND = pgettext_lazy("check", "command")
_DEFINITION = pgettext_lazy("check", "definition")
_STANDING = pgettext_lazy("check", "standing")
_SECRETS = pgettext_lazy("check", "secrets")
_NAMES = pgettext_lazy("check", "names")
_SESSIONS = pgettext_lazy("check", "sessions")
_FLOW = pgettext_lazy("check", "information flow")
_MODELS = pgettext_lazy("check", "models")
_QUESTIONS = pgettext_lazy("check", "questions")
_OUTPUT = pgettext_lazy("check", "output")
_LOG = pgettext_lazy("check", "its log")
_SYNC = pgettext_lazy("check", "sync")
_CALLS = pgettext_lazy("check", "calls")
"""Names of checks, beside those that are the same in all languages: DNS, TCP, TLS, HTTP, MCP."""
_NAMED_COLLISIONS = 5
_HANDSHAKE_SECONDS = 8.0
_SOON = 14 * 86_400.0
_CERTIFICATE_PROBLEMS = {
    9: (gettext_lazy("The certificate is not valid yet."), gettext_lazy("check the clocks of both machines")),
    10: (gettext_lazy("The certificate has expired."), gettext_lazy("renew the server's certificate")),
    18: (
        gettext_lazy("The certificate is self-signed."),
        gettext_lazy("give the server a certificate that this machine trusts"),
    ),
    19: (
        gettext_lazy("The certificate's chain ends in one that is self-signed."),
        gettext_lazy("let this machine trust its issuer"),
    ),
    20: (
        gettext_lazy("The certificate's issuer is not known here."),
        gettext_lazy("send the whole chain, or let this machine trust its issuer"),
    ),
    21: (
        gettext_lazy("The certificate's issuer is not known here."),
        gettext_lazy("send the whole chain, or let this machine trust its issuer"),
    ),
    62: (gettext_lazy("The certificate is for another host."), gettext_lazy("use the host that the certificate names")),
    64: (gettext_lazy("The certificate is for another host."), gettext_lazy("use the host that the certificate names")),
}
"""Cause and fix by OpenSSL's error number (X509_V_ERR_...)."""
_QUESTION = {"jsonrpc": "2.0", "id": "doctor", "method": "ping"}
_ACCEPTED = {"accept": "application/json, text/event-stream"}
_CHECK_SECONDS = 15.0
_GENTLE_SECONDS = 5.0
_OLD = 900.0
"""Age in seconds above which capabilities should be synced."""
_NAMED = 5
CheckFunction = Callable[[], Awaitable[Check]]
_NamedCheck = tuple[str, CheckFunction]
RefusedBy = Callable[[Tool], Mapping[str, str]]


class NetworkProbes:
    """Checks of one address. `endpoint` is the transport of `config`."""

    def __init__(self, config: ServerConfig, endpoint: HttpTransport, shared: ConnectionDependencies) -> None:
        self._config = config
        self._endpoint = endpoint
        self._shared = shared
        self._allowances = shared.allowances
        self._addresses: list[str] = []
        self._status = 0
        self._asked_for = ""
        self._refusal = ""
        self.hint = ""
        """Fix if MCP fails although a web server answers: healthy servers, too, may not know the request of a check."""

    @cached_property
    def _proxy(self) -> Proxy | None:
        find = find_proxy if self._config.from_file else self._allowances.proxy_for
        with suppress(SettingsError):  # which the request itself reports
            return find(self._endpoint.url)
        return None

    def _proxied(self, name: str) -> Check:
        variable = self._proxy.variable if self._proxy else ""
        return Check(name, CheckStatus.SKIPPED, _("Requests go through the proxy of {variable}.", variable=variable))

    async def address(self) -> Check:
        """Check that the URL is valid and allowed."""
        url = self._endpoint.url
        if not is_address(url):
            return failed_check(_ADDRESS, _("The url is not an http or https address."), _("write https://host/path"))
        try:
            check_definition(self._config, self._allowances)
        except InvalidDefinition as unusable:
            return failed_check(_ADDRESS, unusable.cause, unusable.fix)
        return Check(_ADDRESS, CheckStatus.WELL, public_address(url))

    async def dns(self) -> Check:
        """Check that the host name resolves to allowed addresses only."""
        host, port = origin_of(self._endpoint.url)
        if self._proxy is not None and self._config.from_file:
            return self._proxied("DNS")
        try:
            if self._config.from_file:
                literal = parse_ip(host)
                self._addresses = [str(literal)] if literal is not None else await resolve_host(host, port)
            else:
                self._addresses = await resolve_allowed(host, port, self._allowances, self._shared.resolve)
        except InvalidDefinition as unusable:
            return failed_check("DNS", unusable.cause, unusable.fix)
        except OSError as error:
            return failed_check(
                "DNS",
                _("{host} is not known: {reason}.", host=host, reason=error.strerror),
                _("correct the host, or look at the DNS here"),
            )
        return Check(
            "DNS", CheckStatus.WELL, _("{host} is {addresses}", host=host, addresses=", ".join(self._addresses[:3]))
        )

    async def tcp(self) -> Check:
        """Check that the port accepts connections."""
        if self._proxy is not None:
            return self._proxied("TCP")
        _host, port = origin_of(self._endpoint.url)
        text = ""
        for item in tuple(self._addresses):
            try:
                _reader, writer = await asyncio.open_connection(item, port)
            except OSError as error:
                text = error.strerror or type(error).__name__
                continue
            self._addresses = [item]
            await _close(writer)
            return Check("TCP", CheckStatus.WELL, _("{address} listens on port {port}", address=item, port=port))
        return failed_check(
            "TCP",
            _("No connection to port {port}: {reason}.", port=port, reason=text),
            _("check that the server is running, its port, and the firewall between"),
        )

    async def tls(self) -> Check:
        """Check that the connection is encrypted and the certificate valid."""
        host, port = origin_of(self._endpoint.url)
        is_plain = urlsplit(self._endpoint.url).scheme == "http"
        if is_plain or self._proxy is not None:
            text = _("The url begins with http://, so nothing is encrypted.")
            return Check("TLS", CheckStatus.SKIPPED, text) if is_plain else self._proxied("TLS")
        context = await asyncio.to_thread(httpx2.create_ssl_context)
        try:
            _reader, writer = await asyncio.open_connection(
                self._addresses[0],
                port,
                ssl=context,
                server_hostname=host,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )
        except ssl.SSLCertVerificationError as error:
            other = _("The certificate is not accepted: {reason}.", reason=error.verify_message)
            return failed_check("TLS", *_CERTIFICATE_PROBLEMS.get(error.verify_code, (other, _("replace it"))))
        except ssl.SSLError as error:
            why = error.reason.replace("_", " ").lower() if error.reason else _("no TLS")
            return failed_check(
                "TLS",
                _("The port does not speak TLS as it should: {reason}.", reason=why),
                _("check the port and the scheme"),
            )
        except OSError as error:
            why = error.strerror or _("the connection was closed")
            return failed_check(
                "TLS",
                _("TLS was refused: {reason}.", reason=why),
                _("check the port, and what stands in front of the server"),
            )
        certificate = writer.get_extra_info("peercert") or {}
        expires = certificate.get("notAfter")
        left = None if expires is None else ssl.cert_time_to_seconds(expires) - time.time()
        await _close(writer)
        if left is not None and left < _SOON:
            text = ngettext(
                "The certificate expires in {n} day.", "The certificate expires in {n} days.", round(left / 86_400)
            )
            return Check("TLS", CheckStatus.DOUBTFUL, text, _("renew it"))
        return Check("TLS", CheckStatus.WELL, _("the certificate fits the host"))

    async def http(self) -> Check:
        """Check that a web server answers, and its status."""
        from bot.mcp.transports.open import build_network  # noqa: PLC0415 - it loads the MCP library

        with record_request() as attempt:
            below = build_network(
                self._config, self._allowances, self._shared.resolve, self._shared.token_provider(self._config)
            )
            async with (
                http_client(self._endpoint.headers, self._config.tool_timeout, below) as client,
                self._request(client) as response,
            ):
                headers = response.headers
        if attempt.failure and attempt.refusal:
            return failed_check("HTTP", *split_fix(attempt.refusal))
        if attempt.failure:
            cause = _("The request failed: {reason}.", reason=attempt.failure)
            return failed_check("HTTP", cause, attempt.fix or _("check the server's log"))
        self._status = attempt.status or 0
        self._refusal = attempt.refusal
        self._asked_for = headers.get("www-authenticate", "")
        return self._http_check(status_phrase(self._status), headers.get("location", ""))

    def _request(self, client: httpx2.AsyncClient) -> AbstractAsyncContextManager[httpx2.Response]:
        if self._endpoint.kind is HttpKind.SSE:
            return client.stream("GET", self._endpoint.url, headers={"accept": "text/event-stream"})
        return client.stream("POST", self._endpoint.url, json=_QUESTION, headers=_ACCEPTED)

    def _http_check(self, phrase: str, location: str) -> Check:
        # The request is not an MCP message, so many healthy servers answer 400.
        text = _("a web server answers ({status})", status=phrase)
        match self._status:
            case 301 | 302 | 303 | 307 | 308:
                where = public_address(location)
                cause = _("The server answers {status} and points to {address}.", status=phrase, address=where)
                return failed_check("HTTP", cause, _("use that address instead"))
            case 404 | 405 if self._endpoint.kind is HttpKind.AUTO:
                text = _("a web server answers ({status}), as one of HTTP+SSE does", status=phrase)
            case 404 | 405 | 410:
                self.hint = _("correct the path of the url")
            case 429 | 500 | 501 | 502 | 503 | 504:
                self.hint = _("check the server's log")
        return Check("HTTP", CheckStatus.WELL, text)

    async def authentication(self) -> Check:
        """Check that the server accepts the credentials."""
        sent = next((value for name, value in self._endpoint.headers.items() if name.lower() == "authorization"), "")
        bearer = self._shared.token_provider(self._config)
        kind = "Bearer" if bearer is not None and bearer.has_token else _scheme(sent) if sent else ""
        header = _("an Authorization header of the kind {kind}", kind=kind) if kind else _("no Authorization header")
        if self._status not in (401, 403):
            return Check(_AUTHENTICATION, CheckStatus.WELL, _("not refused; the bot sends {header}", header=header))
        if self._refusal:
            return failed_check(_AUTHENTICATION, *split_fix(self._refusal))
        cause = [
            _("The server answers {status}.", status=status_phrase(self._status)),
            *([_("It asks for {kind}.", kind=_scheme(self._asked_for))] if self._asked_for else []),
            _("The bot sends {header}.", header=header),
        ]
        return failed_check(
            _AUTHENTICATION,
            " ".join(cause),
            _(
                "check that the type of authentication is the one the server wants, that the secret is right and still "
                "valid, and the name and form of the header"
            ),
        )


def failed_check(name: str, cause: str, fix: str) -> Check:
    """Return a failed check."""
    return Check(name, CheckStatus.BROKEN, str(cause), str(fix))


def _scheme(header: str) -> str:
    word, space, _rest = header.strip().partition(" ")
    return word if space and word.isalpha() and len(word) <= 20 else _("of its own")


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()


def flow_warnings(config: ServerConfig, tools: Sequence[Tool]) -> Iterator[tuple[str, str]]:
    """Yield doubtful information-flow settings of a server, each with its fix. `tools` are the server's tools."""
    flows = config.flows
    if flows == NO_FLOWS or not tools:
        return
    known = {tool.original_name: tool for tool in tools}
    if missing := sorted(flows.tools - known.keys()):
        text = _("Words, sends or recipients are set for tools that it does not have: {tools}.", tools=_list(missing))
        yield text, _("correct the names")
    for name, recipients in sorted(flows.tool_recipients.items()):
        yield from _recipients(known[name], recipients) if name in known else ()
    contradicted = [
        tool.original_name
        for tool in tools
        if tool.annotations.open_world is True
        and (tool.flow.words is Words.OWN or (tool.flow.sends is Sends.CLOSED and not tool.read_only))
    ]
    # Of a server that the operator trusts in the file, the settings are what the operator says of its hints.
    if contradicted and not (config.from_file and config.trusted):
        text = _(
            "It says that the world of {tools} is open, and they are set to own words or to closed.",
            tools=_list(contradicted),
        )
        yield text, _("check whose words they return and who reads what is sent")
    if not config.trusted and any(tool.annotations.read_only for tool in tools):
        yield (
            _("It is not marked trusted, so that even tools that only read are treated as if they changed something."),
            _("mark it trusted if its hints are true"),
        )


def _recipients(tool: Tool, recipients: Sequence[str]) -> Iterator[tuple[str, str]]:
    properties = tool.input_schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    if missing := [recipient for recipient in recipients if recipient not in known]:
        text = _(
            "The recipients of {tool} are to be in arguments that it does not have: {arguments}. They exempt nothing.",
            tool=tool.original_name,
            arguments=_list(missing),
        )
        yield text, _("correct the names of the arguments")
    if tool.sends is Sends.CLOSED:
        text = _("{tool} has recipients and is closed, so they change nothing.", tool=tool.original_name)
        yield text, _("take one of the two out")


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    if len(names) <= _NAMED:
        return shown
    return ngettext("{names} and {n} more", "{names} and {n} more", len(names) - _NAMED, names=shown)


def never_refused(tool: Tool) -> Mapping[str, str]:  # noqa: ARG001 - see RefusedBy
    """Return no rejections, for a process without a model."""
    return {}


class ServerDiagnostics:
    """Diagnosis of servers. Test connections share only secrets, allowed targets and timing with the managed ones.
    `refused` returns the reasons why models rejected a tool, by model.
    """

    def __init__(self, shared: ConnectionDependencies, refused: RefusedBy) -> None:
        self._refused = refused
        self._shared = replace(shared, start_limiter=StartLimiter(), sync_notifier=SyncNotifier())
        self._trials: set[Connection] = set()

    async def close(self, limit: float) -> None:
        """Close the test connections."""
        await asyncio.gather(*(trial.close(limit) for trial in self._trials))

    async def verify(self, entry: DesiredServer) -> AsyncGenerator[Check, None]:
        """Check a server that need not be managed."""
        redact = self._shared.secrets.open(entry)
        try:
            async with aclosing(self._verify_checks(entry, redact)) as checks:
                async for check in checks:
                    yield _clean(check, redact)
        finally:
            self._shared.secrets.close(entry.config.id, redact)

    async def _verify_checks(self, entry: DesiredServer, redact: Redaction) -> AsyncGenerator[Check, None]:
        if entry.problem:
            yield _split(_DEFINITION, entry.problem)
            return
        trial = Connection(entry.config, self._shared, redact, CachedCapabilities())
        mcp = partial(self._test_connection, trial)
        async with aclosing(self._run_in_order(self._checks_of(entry.config, mcp, trial.tracker))) as checks:
            async for check in checks:
                yield check

    async def diagnose(self, managed: ManagedServer, collisions: Sequence[str] = ()) -> AsyncGenerator[Check, None]:
        """Check a managed server: its status first, its recent results last."""
        async with aclosing(self._examine(managed, collisions)) as checks:
            async for check in checks:
                yield _clean(check, managed.redact)

    async def _examine(self, managed: ManagedServer, collisions: Sequence[str]) -> AsyncGenerator[Check, None]:
        yield _check_status(managed)
        if check := _check_secrets(managed):
            yield check
        connection = managed.connection
        if connection is None:
            return
        tracker = connection.tracker

        async def mcp() -> Check:
            if managed.entry.enablement is not ServerEnablement.ON and tracker.status is not ServerStatus.CONNECTED:
                return Check("MCP", CheckStatus.SKIPPED, _("It is disconnected."))
            await connection.connect()
            check = _check_handshake(tracker)
            if check.finding is CheckStatus.WELL:
                try:
                    await connection.sync()
                except ServerTrouble as trouble:
                    return Check(
                        "MCP",
                        CheckStatus.DOUBTFUL,
                        _("{detail}, but: {problem}", detail=check.detail, problem=trouble.cause),
                        str(trouble.fix),
                    )
            return check

        async with aclosing(self._run_in_order(self._checks_of(managed.config, mcp, tracker))) as checks:
            async for check in checks:
                yield check
        for check in (
            *_check_names(collisions),
            *_check_sessions(tracker),
            *_check_flows(tracker),
            *_check_rejections(tracker, self._refused),
            *_check_elicitation(tracker),
            *_check_output(tracker.stray_lines),
            *_check_log(tracker.server_log),
        ):
            yield check
        yield _check_sync(tracker, is_on=managed.entry.enablement is ServerEnablement.ON)
        yield _check_calls(connection)

    def _checks_of(
        self, config: ServerConfig, mcp: CheckFunction, tracker: ServerStatusTracker
    ) -> Sequence[_NamedCheck]:
        async def tools() -> Check:
            return _check_tools(tracker)

        match config.transport:
            case HttpTransport() as endpoint:
                to = NetworkProbes(config, endpoint, self._shared)

                async def mcp_with_hint() -> Check:
                    check = await mcp()
                    if check.finding is not CheckStatus.BROKEN or not to.hint:
                        return check
                    return replace(
                        check,
                        fix=_("{fix}; or {other_fix}", fix=check.fix, other_fix=to.hint) if check.fix else to.hint,
                    )

                network_checks: Sequence[_NamedCheck] = (
                    (_ADDRESS, to.address),
                    ("DNS", to.dns),
                    ("TCP", to.tcp),
                    ("TLS", to.tls),
                    ("HTTP", to.http),
                    (_AUTHENTICATION, to.authentication),
                )
                return (*network_checks, ("MCP", mcp_with_hint), (_TOOLS, tools))
            case StdioTransport() as process:
                command = partial(asyncio.to_thread, self._check_command, config, process)
                return ((_COMMAND, command), ("MCP", mcp), (_TOOLS, tools))

    def _check_command(self, config: ServerConfig, process: StdioTransport) -> Check:
        """Check the program of a server without starting it."""
        from bot.mcp.transports.open import child_environment  # noqa: PLC0415 - it loads the MCP library

        try:
            check_definition(config, self._shared.allowances)
            check_paths(config, self._shared.allowances.templates())
        except InvalidDefinition as unusable:
            return failed_check(_COMMAND, unusable.cause, unusable.fix)
        if process.cwd is not None and not Path(process.cwd).is_dir():
            return failed_check(
                _COMMAND,
                _("The folder {folder} does not exist.", folder=process.cwd),
                _("create it or correct the cwd"),
            )
        path = child_environment(process)["PATH"]
        executable = shutil.which(process.command, path=path)
        if executable is None and process.cwd is not None and os.sep in process.command:
            executable = shutil.which(str(Path(process.cwd, process.command)))
        if executable is None:
            return failed_check(
                _COMMAND,
                _("{command} was not found, or cannot be executed.", command=process.command),
                _("install it, or correct the command"),
            )
        return Check(_COMMAND, CheckStatus.WELL, executable)

    async def _run_in_order(self, checks: Sequence[_NamedCheck]) -> AsyncGenerator[Check, None]:
        whole = True
        for name, run_check in checks:
            if not whole:
                yield Check(name, CheckStatus.SKIPPED, _("Skipped, because an earlier check failed."))
                continue
            check = await _run_timed(name, run_check)
            whole = check.finding is not CheckStatus.BROKEN
            yield check

    async def _test_connection(self, trial: Connection) -> Check:
        """Connect once, and disconnect before the result is returned."""
        self._trials.add(trial)
        try:
            await trial.connect()
            check = _check_handshake(trial.tracker)
        finally:
            await trial.disconnect(_GENTLE_SECONDS)
            self._trials.discard(trial)
        return check


def _clean(check: Check, redact: Redaction) -> Check:
    return replace(check, detail=redact.clean(check.detail), fix=redact.clean(check.fix))


async def _run_timed(name: str, run_check: CheckFunction) -> Check:
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        # The MCP check has the server's own connect_timeout.
        async with asyncio.timeout(None if name == "MCP" else _CHECK_SECONDS):
            check = await run_check()
    except TimeoutError:
        fix = _("check the server, and the network and firewall between")
        check = failed_check(name, _("No answer within {seconds} s.", seconds=f"{_CHECK_SECONDS:g}"), fix)
    return replace(check, seconds=loop.time() - began)


def _check_handshake(tracker: ServerStatusTracker) -> Check:
    """Check the result of the MCP handshake."""
    if tracker.status is not ServerStatus.CONNECTED:
        silent = cause_and_fix(_("It did not answer in time."), _("raise its connect_timeout"))
        return _split("MCP", tracker.problem or silent)
    known, wanted = tracker.synced.capabilities, tracker.config.protocol
    if known.protocol == PLAIN:
        text = _(
            "It speaks {protocol} and not MCP, so it is contacted at the first call only.", protocol=known.protocol
        )
        return Check("MCP", CheckStatus.SKIPPED, text)
    older = known.handshake is not None and known.handshake.transport == HttpKind.SSE
    spoken = (
        _("speaks MCP {version} over HTTP+SSE", version=known.protocol)
        if older
        else _("speaks MCP {version}", version=known.protocol)
    )
    if known.server_version:
        spoken = _("{protocol}, version {version}", protocol=spoken, version=known.server_version)
    if wanted is Protocol.AUTO:
        return Check("MCP", CheckStatus.WELL, spoken)
    if wanted == known.protocol:
        return Check("MCP", CheckStatus.WELL, _("{protocol}, as set", protocol=spoken))
    fix = _("set its protocol to {version} or auto", version=known.protocol)
    text = _("{protocol}, and its protocol is set to {version}", protocol=spoken, version=wanted)
    return Check("MCP", CheckStatus.DOUBTFUL, text, fix)


def _check_elicitation(tracker: ServerStatusTracker) -> Iterator[Check]:
    """Check for questions to users that the protocol of the connection does not have."""
    if tracker.asks_in_older_way:
        spoken = tracker.synced.capabilities.protocol
        cause = _("It tried to ask a user during a call in a way that MCP {version} does not have.", version=spoken)
        yield Check(_QUESTIONS, CheckStatus.DOUBTFUL, cause, str(ASK_FIX))


def _check_tools(tracker: ServerStatusTracker) -> Check:
    """Check the tools: their number, and those that are left out or renamed, with the reason."""
    tools = tracker.synced.capabilities.tools
    detail = count_tools(tools)
    previews = (("preview", name) for name in tracker.config.preview.values())
    for setting, wanted in (("auto_context_tool", tracker.config.auto_context_tool), *previews):
        if wanted and all(tool.original_name != wanted for tool in tools):
            text = _("{tools}; there is no {tool}", tools=detail, tool=wanted)
            return Check(_TOOLS, CheckStatus.DOUBTFUL, text, _("correct its {setting}", setting=setting))
    if tracker.pinning.withheld_definitions:
        text = _withheld_text(detail, tracker)
        fix = _("use /mcp review {server}", server=tracker.config.name)
        return Check(_TOOLS, CheckStatus.DOUBTFUL, text, fix)
    if left_out := tracker.synced.capabilities.left_out:
        text = _("{tools}; not offered: {reasons}", tools=detail, reasons=", ".join(map(str, left_out[:_NAMED])))
        return Check(_TOOLS, CheckStatus.DOUBTFUL, text, _("correct them on the server, then sync"))
    known = tracker.synced.capabilities
    if not tools and not (known.resources or known.templates or known.prompts):
        fix = _("check that the server has any, then sync")
        return Check(_TOOLS, CheckStatus.DOUBTFUL, _("It has no tools."), fix)
    return Check(_TOOLS, CheckStatus.WELL, _with_names(detail, tracker.config, tools))


def _withheld_text(tools: str, tracker: ServerStatusTracker) -> str:
    """Return the number of tools, and of those that wait for a review."""
    withheld = tracker.pinning.withheld_definitions
    count = sum(tool.kind is not ToolKind.INSTRUCTIONS for tool in withheld)
    if not count:
        return _("{tools}; the instructions not offered, because no admin has reviewed them yet", tools=tools)
    if count == len(withheld):
        return ngettext(
            "{tools}; {n} not offered, because no admin has reviewed it yet",
            "{tools}; {n} not offered, because no admin has reviewed them yet",
            count,
            tools=tools,
        )
    return ngettext(
        "{tools}; {n} tool and the instructions not offered, because no admin has reviewed them yet",
        "{tools}; {n} tools and the instructions not offered, because no admin has reviewed them yet",
        count,
        tools=tools,
    )


def _with_names(tools: str, config: ServerConfig, offered: Sequence[Tool]) -> str:
    """Return the number of tools, and those that models know by other names."""
    others = [tool for tool in offered if tool.name != f"{config.name}__{tool.original_name}"]
    if not others:
        return tools
    names = _list([_("{tool} as {name}", tool=tool.original_name, name=tool.name) for tool in others])
    return _("{tools}; offered under names that models take: {names}", tools=tools, names=names)


def _check_status(managed: ManagedServer) -> Check:
    state = managed.snapshot
    if managed.problem:
        return _split(_STANDING, managed.problem)
    match state.status:
        case ServerStatus.CONNECTED | ServerStatus.CONNECTING | ServerStatus.IDLE:
            return Check(_STANDING, CheckStatus.WELL, str(state.status.label))
        case ServerStatus.DISABLED:
            return Check(_STANDING, CheckStatus.SKIPPED, _("It is disabled, so its tools are hidden."), _("enable it"))
        case ServerStatus.DISCONNECTED:
            return Check(
                _STANDING, CheckStatus.SKIPPED, _("It is disconnected, so its tools are hidden."), _("connect it")
            )
        case ServerStatus.PENDING:
            return Check(_STANDING, CheckStatus.WELL, _("pending: it connects at its first use"))
        case ServerStatus.FAILED | ServerStatus.AUTH_REQUIRED:
            # The checks below find the current cause.
            cause, fix = split_fix(state.problem)
            text = _("{status}: {problem}", status=state.status.label, problem=cause)
            return Check(_STANDING, CheckStatus.DOUBTFUL, text, str(fix))


def _check_secrets(managed: ManagedServer) -> Check | None:
    """Check for weak secrets in the server's definition."""
    transport = managed.entry.config.transport
    variables = transport.env if isinstance(transport, StdioTransport) else {}
    places = {value for name, value in variables.items() if names_a_place(name, value)}
    weak = {
        secret.label: secret.weakness
        for secret in managed.redact.secrets
        if secret.value in managed.entry.secrets and secret.value not in places and secret.label != USER_NAME
    }
    warnings = [
        _("Its {secret} is {weakness}.", secret=label, weakness=weakness)
        for label, weakness in weak.items()
        if weakness
    ]
    if not warnings:
        return None
    text = " ".join([*warnings[:_NAMED], _("It is hidden in results of this server, and nowhere else.")])
    return Check(_SECRETS, CheckStatus.DOUBTFUL, text, _("set a random one"))


def _check_names(collisions: Sequence[str]) -> Iterator[Check]:
    """Yield a check if tools are not offered because other servers have tools of their names."""
    if collisions:
        detail = _(
            "not offered because of their names: {reasons}",
            reasons="; ".join(map(str, collisions[:_NAMED_COLLISIONS])),
        )
        if (more := len(collisions) - _NAMED_COLLISIONS) > 0:
            detail = ngettext("{names}, and {n} more", "{names}, and {n} more", more, names=detail)
        fix = _("set tool_names of one of the two servers to prefixed, or rename it")
        yield Check(_NAMES, CheckStatus.DOUBTFUL, detail, fix)


def _check_sessions(tracker: ServerStatusTracker) -> Iterator[Check]:
    """Yield a check if conversations or users are to be apart at a server whose protocol has no sessions."""
    config, protocol = tracker.config, tracker.synced.capabilities.protocol
    from mcp.types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415 - loaded with the first connection

    has_none = protocol == PLAIN or protocol in MODERN_PROTOCOL_VERSIONS
    if config.sessions is not SessionScope.SHARED and isinstance(config.transport, HttpTransport) and has_none:
        cause = _("{protocol} over HTTP has no sessions, so what the server keeps is shared by all.", protocol=protocol)
        fix = _(
            "set protocol to {version} if the server speaks that, too, or sessions to shared",
            version=Protocol.V2025_11_25,
        )
        yield Check(_SESSIONS, CheckStatus.DOUBTFUL, cause, fix)


def _check_flows(tracker: ServerStatusTracker) -> Iterator[Check]:
    for text, fix in flow_warnings(tracker.config, tracker.synced.capabilities.tools):
        yield Check(_FLOW, CheckStatus.DOUBTFUL, text, fix)


def _check_rejections(tracker: ServerStatusTracker, refused: RefusedBy) -> Iterator[Check]:
    """Check for tools that models have rejected since this process started."""
    rejections = [
        _("{tool} by {model}: {reason}", tool=tool.name, model=model or _("the model"), reason=str(why).rstrip(".。"))
        for tool in tracker.synced.capabilities.tools
        for model, why in refused(tool).items()
    ]
    if rejections:
        shown = "; ".join(rejections[:_NAMED])
        if (more := len(rejections) - _NAMED) > 0:
            shown = ngettext("{refusals}; and {n} more", "{refusals}; and {n} more", more, refusals=shown)
        text = _("Services of models have refused tools of it: {refusals}.", refusals=shown)
        fix = _("have the server corrected, or leave the tools out of the profile")
        yield Check(_MODELS, CheckStatus.DOUBTFUL, text, fix)


def _check_output(stray_lines: StrayLineCounter) -> Iterator[Check]:
    """Check for lines in standard output that are not messages."""
    if not stray_lines.example:
        return
    cause = _(
        "It writes lines to its standard output that are not messages, more than 20 a minute, such as: {line}",
        line=stray_lines.example,
    )
    yield Check(_OUTPUT, CheckStatus.DOUBTFUL, cause, _("let it log to its standard error"))


def _check_log(server_log: ServerLog) -> Iterator[Check]:
    if server_log.last:
        text = "; ".join(f"{level}: {line}" for level, line in server_log.last)
        yield Check(_LOG, CheckStatus.DOUBTFUL, _("It said: {lines}", lines=text))


def _check_sync(tracker: ServerStatusTracker, *, is_on: bool) -> Check:
    """Check the age of the capabilities. Those of a new connection have no time until they are stored, and those of a
    server that is switched off are not synced.
    """
    synced = tracker.synced
    if synced.at is None and tracker.status is ServerStatus.CONNECTED:
        return Check(_SYNC, CheckStatus.WELL, _("just now"))
    if synced.at is None:
        text = _("Its tools have not been loaded yet.")
        return Check(_SYNC, CheckStatus.DOUBTFUL, text, _("connect it, then sync"))
    age = max(time.time() - synced.at, 0.0)
    text = _("{status}, {span} ago", status=synced.status.label, span=_span(age))
    if synced.status is SyncStatus.SYNC_FAILED:
        cause, fix = split_fix(synced.problem)
        text = _("{sync}: {problem}", sync=text, problem=cause)
        return Check(_SYNC, CheckStatus.DOUBTFUL, text, str(fix) or _("sync again"))
    if age > _OLD and is_on:
        return Check(_SYNC, CheckStatus.DOUBTFUL, text, _("sync, so that new tools are offered"))
    return Check(_SYNC, CheckStatus.WELL, text)


def _check_calls(connection: Connection) -> Check:
    """Check the duration of recent calls against the timeout."""
    if connection.failures:
        failed = [
            _("{tool}, {span} ago: {problem}", tool=tool, span=_span(max(time.time() - at, 0.0)), problem=str(reason))
            for at, tool, reason in connection.failures
        ]
        text = _("the last that failed: {calls}", calls="; ".join(failed))
        return Check(_CALLS, CheckStatus.DOUBTFUL, text, _("check the arguments and the server's log"))
    times = sorted(connection.durations)
    if not times:
        return Check(_CALLS, CheckStatus.WELL, _("none answered since this process started"))
    half, most = times[len(times) // 2], times[min(int(len(times) * 0.95), len(times) - 1)]
    limit = connection.config.tool_timeout
    text = _(
        "the last {count}: half within {half} s, 95 % within {most} s, limit {limit} s",
        count=len(times),
        half=f"{half:.2f}",
        most=f"{most:.2f}",
        limit=f"{limit:g}",
    )
    if most > 0.8 * limit:
        return Check(_CALLS, CheckStatus.DOUBTFUL, text, _("raise its tool_timeout, or make the server faster"))
    return Check(_CALLS, CheckStatus.WELL, text)


def _span(seconds: float) -> str:
    if seconds < 120:
        return _("{seconds} s", seconds=f"{seconds:.0f}")
    if seconds < 7200:
        return _("{minutes} min", minutes=f"{seconds / 60:.0f}")
    return _("{hours} h", hours=f"{seconds / 3600:.0f}")


def _split(name: str, sentence: str) -> Check:
    return failed_check(name, *split_fix(sentence))
