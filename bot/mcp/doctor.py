"""Diagnosis of a server: checks from its network address to its tools and last calls, with cause and fix.

The first broken check of the connection ends it; the remaining ones are skipped. Each check closes its resources before
its result is returned, so the generator may be closed at any time. A new check is one row of a table below.
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
from typing import Any
from urllib.parse import urlsplit

import httpx2

from bot.domain.flows import NO_FLOWS, Sends, Words
from bot.domain.secrets import names_a_place
from bot.domain.servers import (
    HttpKind,
    HttpTransport,
    Protocol,
    ServerEnablement,
    ServerStatus,
    SessionScope,
    StdioTransport,
    SyncStatus,
    is_address,
)
from bot.domain.tools import Tool, ToolKind, count_tools
from bot.errors import ServerTrouble, SettingsError
from bot.examination import Check, CheckDoubtful, CheckFailed, CheckSkipped, CheckStatus, run_check, run_in_order
from bot.i18n import _, gettext_lazy, ngettext, pgettext_lazy
from bot.machine import Proxy, find_proxy
from bot.mcp.config.checks import (
    check_definition,
    check_paths,
    origin_of,
    parse_ip,
    resolve_allowed,
    resolve_host,
)
from bot.mcp.errors import InvalidDefinition, cause_and_fix, record_request, split_fix, status_phrase
from bot.mcp.redaction import USER_NAME, public_address
from bot.mcp.registry import ManagedServer
from bot.mcp.server.connection import Connection
from bot.mcp.server.dependencies import ConnectionDependencies
from bot.mcp.server.status import ASK_FIX, PLAIN, ServerStatusTracker
from bot.mcp.transports.http import http_client

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
    62: (gettext_lazy("The certificate is for another host."), gettext_lazy("use the host that the certificate names")),
}
"""Cause and fix by OpenSSL's error number (X509_V_ERR_...)."""
_SAME_PROBLEM = {21: 20, 64: 62}
_CHECK_SECONDS = 15.0
_OLD = 900.0
"""Age in seconds above which capabilities should be synced."""
_NAMED = 5
RefusedBy = Callable[[Tool], Mapping[str, str]]
Warnings = Iterator[tuple[str, str]]
"""Doubtful findings, each with its fix."""


class ServerProbes:
    """Checks of one server. `collisions` are the reasons why tools are not offered because of their names, `refused`
    returns the reasons why models rejected a tool, by model.
    """

    def __init__(
        self,
        managed: ManagedServer,
        connection: Connection,
        shared: ConnectionDependencies,
        collisions: Sequence[str],
        refused: RefusedBy,
    ) -> None:
        self.is_on = managed.entry.enablement is ServerEnablement.ON
        self.connection = connection
        self.tracker = connection.tracker
        self.collisions = collisions
        self.refused = refused
        self._config = managed.config
        self._shared = shared
        self._allowances = shared.allowances
        self._hint = ""
        """Fix if MCP fails although a web server answers: healthy servers, too, may not know the request of a check."""

    async def command(self) -> str:
        """Check the program of a server without starting it."""
        from bot.mcp.transports.open import child_environment  # noqa: PLC0415 - it loads the MCP library

        process = self._config.transport
        assert isinstance(process, StdioTransport)

        def find_program() -> str | None:
            self._check_definition()
            if process.cwd is not None and not Path(process.cwd).is_dir():
                cause = _("The folder {folder} does not exist.", folder=process.cwd)
                raise CheckFailed(cause, _("create it or correct the cwd"))
            executable = shutil.which(process.command, path=child_environment(process)["PATH"])
            if executable is None and process.cwd is not None and os.sep in process.command:
                executable = shutil.which(str(Path(process.cwd, process.command)))
            return executable

        if executable := await asyncio.to_thread(find_program):
            return executable
        cause = _("{command} was not found, or cannot be executed.", command=process.command)
        raise CheckFailed(cause, _("install it, or correct the command"))

    def _check_definition(self) -> None:
        try:
            check_definition(self._config, self._allowances)
            if isinstance(self._config.transport, StdioTransport):
                check_paths(self._config, self._allowances.templates())
        except InvalidDefinition as unusable:
            raise CheckFailed(unusable.cause, unusable.fix) from unusable

    async def mcp(self) -> str:
        """Check that the server speaks MCP, and lists what it has. A server that is switched off is not connected."""
        if not self.is_on and self.tracker.status is not ServerStatus.CONNECTED:
            raise CheckSkipped(_("It is disconnected."))
        await self.connection.connect()
        if self.tracker.status is not ServerStatus.CONNECTED:
            silent = cause_and_fix(_("It did not answer in time."), _("raise its connect_timeout"))
            cause, fix = split_fix(self.tracker.problem or silent)
            if self._hint:
                fix = _("{fix}; or {other_fix}", fix=fix, other_fix=self._hint) if fix else self._hint
            raise CheckFailed(cause, fix)
        spoken = self._check_handshake()
        try:
            await self.connection.sync()
        except ServerTrouble as trouble:
            text = _("{detail}, but: {problem}", detail=spoken, problem=trouble.cause)
            raise CheckDoubtful(text, trouble.fix) from trouble
        return spoken

    def _check_handshake(self) -> str:
        known, wanted = self.tracker.synced.capabilities, self.tracker.config.protocol
        if known.protocol == PLAIN:
            text = _("It speaks {protocol} and not MCP, so it is contacted at the first call only.", protocol=PLAIN)
            raise CheckSkipped(text)
        older = known.handshake is not None and known.handshake.transport == HttpKind.SSE
        spoken = _("speaks MCP {version}", version=known.protocol)
        if older:
            spoken = _("speaks MCP {version} over HTTP+SSE", version=known.protocol)
        if known.server_version:
            spoken = _("{protocol}, version {version}", protocol=spoken, version=known.server_version)
        if wanted is Protocol.AUTO:
            return spoken
        if wanted == known.protocol:
            return _("{protocol}, as set", protocol=spoken)
        text = _("{protocol}, and its protocol is set to {version}", protocol=spoken, version=wanted)
        raise CheckDoubtful(text, _("set its protocol to {version} or auto", version=known.protocol))

    async def tools(self) -> str:
        """Check the tools: their number, and those that are left out or renamed, with the reason."""
        config, known = self.tracker.config, self.tracker.synced.capabilities
        tools, detail = known.tools, count_tools(known.tools)
        previews = (("preview", name) for name in config.preview.values())
        for setting, wanted in (("auto_context_tool", config.auto_context_tool), *previews):
            if wanted and all(tool.original_name != wanted for tool in tools):
                text = _("{tools}; there is no {tool}", tools=detail, tool=wanted)
                raise CheckDoubtful(text, _("correct its {setting}", setting=setting))
        if self.tracker.pinning.withheld_definitions:
            text = _withheld_text(detail, self.tracker)
            raise CheckDoubtful(text, _("use /mcp review {server}", server=config.name))
        if known.left_out:
            text = _(
                "{tools}; not offered: {reasons}", tools=detail, reasons=", ".join(map(str, known.left_out[:_NAMED]))
            )
            raise CheckDoubtful(text, _("correct them on the server, then sync"))
        if not tools and not (known.resources or known.templates or known.prompts):
            raise CheckDoubtful(_("It has no tools."), _("check that the server has any, then sync"))
        renamed = [tool for tool in tools if tool.name != f"{config.name}__{tool.original_name}"]
        if not renamed:
            return detail
        names = _list([_("{tool} as {name}", tool=tool.original_name, name=tool.name) for tool in renamed])
        return _("{tools}; offered under names that models take: {names}", tools=detail, names=names)


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


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    if len(names) <= _NAMED:
        return shown
    return ngettext("{names} and {n} more", "{names} and {n} more", len(names) - _NAMED, names=shown)


class NetworkProbes(ServerProbes):
    """Checks of a server at an address."""

    _host, _port = "", 0
    _addresses: Sequence[str] = ()
    _status = 0
    _asked_for = ""
    _refusal = ""

    @property
    def _endpoint(self) -> HttpTransport:
        assert isinstance(self._config.transport, HttpTransport)
        return self._config.transport

    @cached_property
    def _proxy(self) -> Proxy | None:
        find = find_proxy if self._config.from_file else self._allowances.proxy_for
        with suppress(SettingsError):  # which the request itself reports
            return find(self._endpoint.url)
        return None

    def _skip_behind_proxy(self) -> None:
        if self._proxy is not None:
            raise CheckSkipped(_("Requests go through the proxy of {variable}.", variable=self._proxy.variable))

    async def address(self) -> str:
        """Check that the URL is valid and allowed."""
        if not is_address(self._endpoint.url):
            raise CheckFailed(_("The url is not an http or https address."), _("write https://host/path"))
        self._check_definition()
        self._host, self._port = origin_of(self._endpoint.url)
        return public_address(self._endpoint.url)

    async def dns(self) -> str:
        """Check that the host name resolves to allowed addresses only."""
        host, port = self._host, self._port
        if self._config.from_file:
            self._skip_behind_proxy()
        try:
            if self._config.from_file:
                literal = parse_ip(host)
                self._addresses = [str(literal)] if literal is not None else await resolve_host(host, port)
            else:
                self._addresses = await resolve_allowed(host, port, self._allowances, self._shared.resolve)
        except InvalidDefinition as unusable:
            raise CheckFailed(unusable.cause, unusable.fix) from unusable
        except OSError as error:
            cause = _("{host} is not known: {reason}.", host=host, reason=error.strerror)
            raise CheckFailed(cause, _("correct the host, or look at the DNS here")) from error
        return _("{host} is {addresses}", host=host, addresses=", ".join(self._addresses[:3]))

    async def tcp(self) -> str:
        """Check that the port accepts connections."""
        self._skip_behind_proxy()
        text = ""
        for item in tuple(self._addresses):
            try:
                _reader, writer = await asyncio.open_connection(item, self._port)
            except OSError as error:
                text = error.strerror or type(error).__name__
                continue
            self._addresses = [item]
            await _close(writer)
            return _("{address} listens on port {port}", address=item, port=self._port)
        raise CheckFailed(
            _("No connection to port {port}: {reason}.", port=self._port, reason=text),
            _("check that the server is running, its port, and the firewall between"),
        )

    async def tls(self) -> str:
        """Check that the connection is encrypted and the certificate valid."""
        if urlsplit(self._endpoint.url).scheme == "http":
            raise CheckSkipped(_("The url begins with http://, so nothing is encrypted."))
        self._skip_behind_proxy()
        context = await asyncio.to_thread(httpx2.create_ssl_context)
        try:
            _reader, writer = await asyncio.open_connection(
                self._addresses[0],
                self._port,
                ssl=context,
                server_hostname=self._host,
                ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            )
        except ssl.SSLCertVerificationError as error:
            code = _SAME_PROBLEM.get(error.verify_code, error.verify_code)
            other = _("The certificate is not accepted: {reason}.", reason=error.verify_message)
            raise CheckFailed(*_CERTIFICATE_PROBLEMS.get(code, (other, _("replace it")))) from error
        except ssl.SSLError as error:
            why = error.reason.replace("_", " ").lower() if error.reason else _("no TLS")
            cause = _("The port does not speak TLS as it should: {reason}.", reason=why)
            raise CheckFailed(cause, _("check the port and the scheme")) from error
        except OSError as error:
            cause = _("TLS was refused: {reason}.", reason=error.strerror or _("the connection was closed"))
            raise CheckFailed(cause, _("check the port, and what stands in front of the server")) from error
        expires = (writer.get_extra_info("peercert") or {}).get("notAfter")
        left = None if expires is None else ssl.cert_time_to_seconds(expires) - time.time()
        await _close(writer)
        if left is not None and left < _SOON:
            days = round(left / 86_400)
            text = ngettext("The certificate expires in {n} day.", "The certificate expires in {n} days.", days)
            raise CheckDoubtful(text, _("renew it"))
        return _("the certificate fits the host")

    async def http(self) -> str:
        """Check that a web server answers, and its status."""
        from bot.mcp.transports.open import build_network  # noqa: PLC0415 - it loads the MCP library

        with record_request() as attempt:
            below = build_network(self._config, self._shared)
            async with (
                http_client(self._endpoint.headers, self._config.tool_timeout, below) as client,
                self._request(client) as response,
            ):
                headers = response.headers
        if attempt.failure and attempt.refusal:
            raise CheckFailed(*split_fix(attempt.refusal))
        if attempt.failure:
            cause = _("The request failed: {reason}.", reason=attempt.failure)
            raise CheckFailed(cause, attempt.fix or _("check the server's log"))
        self._status = attempt.status or 0
        self._refusal = attempt.refusal
        self._asked_for = headers.get("www-authenticate", "")
        return self._check_status(status_phrase(self._status), headers.get("location", ""))

    def _request(self, client: httpx2.AsyncClient) -> AbstractAsyncContextManager[httpx2.Response]:
        if self._endpoint.kind is HttpKind.SSE:
            return client.stream("GET", self._endpoint.url, headers={"accept": "text/event-stream"})
        question = {"jsonrpc": "2.0", "id": "doctor", "method": "ping"}
        accepted = {"accept": "application/json, text/event-stream"}
        return client.stream("POST", self._endpoint.url, json=question, headers=accepted)

    def _check_status(self, phrase: str, location: str) -> str:
        # The request is not an MCP message, so many healthy servers answer 400.
        text = _("a web server answers ({status})", status=phrase)
        match self._status:
            case 301 | 302 | 303 | 307 | 308:
                where = public_address(location)
                cause = _("The server answers {status} and points to {address}.", status=phrase, address=where)
                raise CheckFailed(cause, _("use that address instead"))
            case 404 | 405 if self._endpoint.kind is HttpKind.AUTO:
                text = _("a web server answers ({status}), as one of HTTP+SSE does", status=phrase)
            case 404 | 405 | 410:
                self._hint = _("correct the path of the url")
            case 429 | 500 | 501 | 502 | 503 | 504:
                self._hint = _("check the server's log")
        return text

    async def authentication(self) -> str:
        """Check that the server accepts the credentials."""
        sent = next((value for name, value in self._endpoint.headers.items() if name.lower() == "authorization"), "")
        bearer = self._shared.token_provider(self._config)
        kind = "Bearer" if bearer is not None and bearer.cache.access_token else _scheme(sent) if sent else ""
        header = _("an Authorization header of the kind {kind}", kind=kind) if kind else _("no Authorization header")
        if self._status not in (401, 403):
            return _("not refused; the bot sends {header}", header=header)
        if self._refusal:
            raise CheckFailed(*split_fix(self._refusal))
        cause = [
            _("The server answers {status}.", status=status_phrase(self._status)),
            *([_("It asks for {kind}.", kind=_scheme(self._asked_for))] if self._asked_for else []),
            _("The bot sends {header}.", header=header),
        ]
        fix = _(
            "check that the type of authentication is the one the server wants, that the secret is right and still "
            "valid, and the name and form of the header"
        )
        raise CheckFailed(" ".join(cause), fix)


def _scheme(header: str) -> str:
    word, space, _rest = header.strip().partition(" ")
    return word if space and word.isalpha() and len(word) <= 20 else _("of its own")


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(1.0):
            await writer.wait_closed()


# -------------------- what a server is set to, and has done


async def check_status(managed: ManagedServer) -> str:
    """Check the status before anything is tried."""
    state = managed.snapshot
    if managed.problem:
        raise CheckFailed(*split_fix(managed.problem))
    match state.status:
        case ServerStatus.DISABLED:
            raise CheckSkipped(_("It is disabled, so its tools are hidden."), _("enable it"))
        case ServerStatus.DISCONNECTED:
            raise CheckSkipped(_("It is disconnected, so its tools are hidden."), _("connect it"))
        case ServerStatus.PENDING:
            return _("pending: it connects at its first use")
        case ServerStatus.FAILED | ServerStatus.AUTH_REQUIRED:
            # The checks below find the current cause.
            cause, fix = split_fix(state.problem)
            raise CheckDoubtful(_("{status}: {problem}", status=state.status.label, problem=cause), fix)
    return str(state.status.label)


def secret_warnings(managed: ManagedServer) -> Warnings:
    """Yield a warning about weak secrets in the server's definition."""
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
    if warnings:
        hidden = _("It is hidden in results of this server, and nowhere else.")
        yield " ".join([*warnings[:_NAMED], hidden]), _("set a random one")


def collision_warnings(server: ServerProbes) -> Warnings:
    """Yield a warning if tools are not offered because other servers have tools of their names."""
    if server.collisions:
        reasons = "; ".join(map(str, server.collisions[:_NAMED]))
        detail = _("not offered because of their names: {reasons}", reasons=reasons)
        if (more := len(server.collisions) - _NAMED) > 0:
            detail = ngettext("{names}, and {n} more", "{names}, and {n} more", more, names=detail)
        yield detail, _("set tool_names of one of the two servers to prefixed, or rename it")


def session_warnings(server: ServerProbes) -> Warnings:
    """Yield a warning if conversations or users are to be apart at a server whose protocol has no sessions."""
    config, protocol = server.tracker.config, server.tracker.synced.capabilities.protocol
    from mcp.types.version import MODERN_PROTOCOL_VERSIONS  # noqa: PLC0415 - loaded with the first connection

    has_none = protocol == PLAIN or protocol in MODERN_PROTOCOL_VERSIONS
    if config.sessions is not SessionScope.SHARED and isinstance(config.transport, HttpTransport) and has_none:
        cause = _("{protocol} over HTTP has no sessions, so what the server keeps is shared by all.", protocol=protocol)
        fix = _(
            "set protocol to {version} if the server speaks that, too, or sessions to shared",
            version=Protocol.V2025_11_25,
        )
        yield cause, fix


def flow_warnings(server: ServerProbes) -> Warnings:
    """Yield doubtful information-flow settings of a server, each with its fix."""
    config, tools = server.tracker.config, server.tracker.synced.capabilities.tools
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


def _recipients(tool: Tool, recipients: Sequence[str]) -> Warnings:
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


def rejection_warnings(server: ServerProbes) -> Warnings:
    """Yield a warning about tools that models have rejected since this process started."""
    rejections = [
        _("{tool} by {model}: {reason}", tool=tool.name, model=model or _("the model"), reason=str(why).rstrip(".。"))
        for tool in server.tracker.synced.capabilities.tools
        for model, why in server.refused(tool).items()
    ]
    if rejections:
        shown = "; ".join(rejections[:_NAMED])
        if (more := len(rejections) - _NAMED) > 0:
            shown = ngettext("{refusals}; and {n} more", "{refusals}; and {n} more", more, refusals=shown)
        text = _("Services of models have refused tools of it: {refusals}.", refusals=shown)
        yield text, _("have the server corrected, or leave the tools out of the profile")


def never_refused(tool: Tool) -> Mapping[str, str]:  # noqa: ARG001 - see RefusedBy
    """Return no rejections, for a process without a model."""
    return {}


def elicitation_warnings(server: ServerProbes) -> Warnings:
    """Yield a warning about questions to users that the protocol of the connection does not have."""
    if server.tracker.asks_in_older_way:
        spoken = server.tracker.synced.capabilities.protocol
        text = _("It tried to ask a user during a call in a way that MCP {version} does not have.", version=spoken)
        yield text, ASK_FIX


def output_warnings(server: ServerProbes) -> Warnings:
    """Yield a warning about lines in standard output that are not messages."""
    if line := server.tracker.stray_lines.example:
        text = _(
            "It writes lines to its standard output that are not messages, more than 20 a minute, such as: {line}",
            line=line,
        )
        yield text, _("let it log to its standard error")


def log_warnings(server: ServerProbes) -> Warnings:
    """Yield the last warnings and errors that the server logged."""
    if last := server.tracker.server_log.last:
        yield _("It said: {lines}", lines="; ".join(f"{level}: {line}" for level, line in last)), ""


async def check_sync(server: ServerProbes) -> str:
    """Check the age of the capabilities. Those of a new connection have no time until they are stored, and those of a
    server that is switched off are not synced.
    """
    synced = server.tracker.synced
    if synced.at is None and server.tracker.status is ServerStatus.CONNECTED:
        return _("just now")
    if synced.at is None:
        raise CheckDoubtful(_("Its tools have not been loaded yet."), _("connect it, then sync"))
    age = max(time.time() - synced.at, 0.0)
    text = _("{status}, {span} ago", status=synced.status.label, span=_span(age))
    if synced.status is SyncStatus.SYNC_FAILED:
        cause, fix = split_fix(synced.problem)
        raise CheckDoubtful(_("{sync}: {problem}", sync=text, problem=cause), fix or _("sync again"))
    if age > _OLD and server.is_on:
        raise CheckDoubtful(text, _("sync, so that new tools are offered"))
    return text


async def check_calls(server: ServerProbes) -> str:
    """Check the duration of recent calls against the timeout."""
    connection = server.connection
    if connection.failures:
        failed = [
            _("{tool}, {span} ago: {problem}", tool=tool, span=_span(max(time.time() - at, 0.0)), problem=str(reason))
            for at, tool, reason in connection.failures
        ]
        text = _("the last that failed: {calls}", calls="; ".join(failed))
        raise CheckDoubtful(text, _("check the arguments and the server's log"))
    times = sorted(connection.durations)
    if not times:
        return _("none answered since this process started")
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
        raise CheckDoubtful(text, _("raise its tool_timeout, or make the server faster"))
    return text


def _span(seconds: float) -> str:
    if seconds < 120:
        return _("{seconds} s", seconds=f"{seconds:.0f}")
    if seconds < 7200:
        return _("{minutes} min", minutes=f"{seconds / 60:.0f}")
    return _("{hours} h", hours=f"{seconds / 3600:.0f}")


# -------------------- all checks

PROCESS_CHECKS: Sequence[tuple[str, Callable[[ServerProbes], Awaitable[str]]]] = (
    (pgettext_lazy("check", "command"), ServerProbes.command),
    ("MCP", ServerProbes.mcp),
    (pgettext_lazy("check", "tools"), ServerProbes.tools),
)
NETWORK_CHECKS: Sequence[tuple[str, Callable[[NetworkProbes], Awaitable[str]]]] = (
    (pgettext_lazy("check", "address"), NetworkProbes.address),
    ("DNS", NetworkProbes.dns),
    ("TCP", NetworkProbes.tcp),
    ("TLS", NetworkProbes.tls),
    ("HTTP", NetworkProbes.http),
    (pgettext_lazy("check", "authentication"), NetworkProbes.authentication),
    *PROCESS_CHECKS[1:],
)
WARNINGS: Sequence[tuple[str, Callable[[ServerProbes], Warnings]]] = (
    (pgettext_lazy("check", "names"), collision_warnings),
    (pgettext_lazy("check", "sessions"), session_warnings),
    (pgettext_lazy("check", "information flow"), flow_warnings),
    (pgettext_lazy("check", "models"), rejection_warnings),
    (pgettext_lazy("check", "questions"), elicitation_warnings),
    (pgettext_lazy("check", "output"), output_warnings),
    (pgettext_lazy("check", "its log"), log_warnings),
)
RESULTS: Sequence[tuple[str, Callable[[ServerProbes], Awaitable[str]]]] = (
    (pgettext_lazy("check", "sync"), check_sync),
    (pgettext_lazy("check", "calls"), check_calls),
)


async def diagnose(
    managed: ManagedServer, shared: ConnectionDependencies, collisions: Sequence[str], refused: RefusedBy
) -> AsyncGenerator[Check, None]:
    """Check a managed server: its status first, its recent results last. See ServerProbes for the arguments."""
    async with aclosing(_examine(managed, shared, collisions, refused)) as checks:
        async for check in checks:
            yield replace(check, detail=managed.redact.clean(check.detail), fix=managed.redact.clean(check.fix))


async def _examine(
    managed: ManagedServer, shared: ConnectionDependencies, collisions: Sequence[str], refused: RefusedBy
) -> AsyncGenerator[Check, None]:
    yield await run_check(pgettext_lazy("check", "standing"), partial(check_status, managed), timed=False)
    for text, fix in secret_warnings(managed):
        yield Check(pgettext_lazy("check", "secrets"), CheckStatus.DOUBTFUL, text, fix)
    if managed.connection is None:
        return
    rows: Sequence[tuple[str, Callable[[Any], Awaitable[str]]]] = PROCESS_CHECKS
    server = ServerProbes(managed, managed.connection, shared, collisions, refused)
    if isinstance(managed.config.transport, HttpTransport):
        rows, server = NETWORK_CHECKS, NetworkProbes(managed, managed.connection, shared, collisions, refused)
    # The MCP check has the server's own connect_timeout.
    limited = [(name, partial(probe, server), None if name == "MCP" else _CHECK_SECONDS) for name, probe in rows]
    async with aclosing(run_in_order(limited)) as checks:
        async for check in checks:
            yield check
    for name, warnings in WARNINGS:
        for text, fix in warnings(server):
            yield Check(name, CheckStatus.DOUBTFUL, text, str(fix))
    for name, probe in RESULTS:
        yield await run_check(name, partial(probe, server), timed=False)
