"""An MCP server with OAuth and its authorization server, each on a loopback port in the test's own event loop.

`browser` acts as a user who agrees to all requests. Both servers are strict: they check PKCE, client authentication,
redirect address, resource and audience by the specifications. The test sets their faults.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import secrets
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import httpx2
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

_LIMIT = 15.0
_SECRET_METHODS = ("client_secret_basic", "client_secret_post")


@dataclass
class Token:
    """Rights of an access token."""

    client: str
    resource: str
    scope: str
    expires_at: float | None


@dataclass
class FakeOAuth:
    """`async with FakeOAuth() as oauth`: the MCP server is at `oauth.url`."""

    clock: Callable[[], float] = time.time
    life: float | None = 3600.0
    """Lifetime of access tokens in seconds; None leaves it out of the response."""
    scopes: tuple[str, ...] | None = None
    """Scopes that the resource declares."""
    wants: str = ""
    """The scope in its challenge."""
    needs: dict[str, str] = field(default_factory=dict)
    """The scope that calls of a tool need."""
    server_scopes: tuple[str, ...] | None = None
    proof: list[str] | None = field(default_factory=lambda: ["S256"])
    methods: list[str] | None = field(default_factory=lambda: ["client_secret_basic", "client_secret_post", "none"])
    says_issuer: str = ""
    """The issuer in the metadata, if it is not the real one."""
    says_resource: str = ""
    signed_in_at: str = ""
    """The authorization server that the resource names, if it is not the one beside it."""
    sends_issuer: str | None = "its own"
    """Issuer in the redirect with the code; None leaves it out."""
    advertises_issuer: bool = True
    registers: bool = True
    refuses_to_register: tuple[int, bytes, str] | None = None
    """Status, body and content type."""
    described_clients: bool = False
    """True if the address of a client's description is taken for its id."""
    denies: bool = False
    token_type: object = "Bearer"
    refresh_tokens: bool = True
    refuses: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """Status and body for a grant."""
    elsewhere: str = ""
    """Target of redirects of requests for metadata of the authorization server."""
    padding: int = 0
    """Bytes more in that metadata."""
    endpoints: dict[str, str] = field(default_factory=dict)
    """Metadata of its own."""
    challenges: bool = True
    """The resource names its metadata when it refuses."""
    asked: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    """Path, form or query, and headers of each request to the authorization server."""
    carried: list[str] = field(default_factory=list)
    """The Authorization headers that came to the resource."""
    clients: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Secret and method, by id."""
    redirects: dict[str, list[str]] = field(default_factory=dict)
    """Redirect addresses of clients that have registered themselves."""
    tokens: dict[str, Token] = field(default_factory=dict)
    held: dict[str, asyncio.Event] = field(default_factory=dict)
    """A grant waits for this before it is answered."""
    issuer: str = ""
    url: str = ""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _refresh: dict[str, Token] = field(default_factory=dict)
    _present: Counter[str] = field(default_factory=Counter)
    _met: dict[str, asyncio.Event] = field(default_factory=dict)
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> Self:
        server = Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/register", self._register, methods=["POST"]),
                Route("/revoke", self._revoke, methods=["POST"]),
            ]
        )
        port = await self._stack.enter_async_context(serve_app(server, lifespan="off"))
        self.issuer = f"http://127.0.0.1:{port}"
        app = self._mcp().streamable_http_app()
        app.routes.insert(0, Route("/.well-known/oauth-protected-resource/mcp", self._resource_metadata))
        port = await self._stack.enter_async_context(serve_app(_Guarded(app, self), lifespan="on"))
        self.url = f"http://127.0.0.1:{port}/mcp"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def grants(self, kind: str) -> int:
        """Number of requests for this grant."""
        return sum(path == "/token" and form.get("grant_type") == kind for path, form, _ in self.asked)

    def forms(self, path: str) -> list[dict[str, str]]:
        """Return the forms of the requests to this path of the authorization server."""
        return [form for asked, form, _ in self.asked if asked == path]

    def expire(self) -> None:
        """Revoke all access tokens before their stated expiry."""
        self.tokens.clear()

    def end(self) -> None:
        """Revoke all access and refresh tokens."""
        self.tokens.clear()
        self._refresh.clear()

    async def browser(self, address: str) -> dict[str, str]:
        """Follow a link and agree; return the parameters of the redirect, and its path under `to`."""
        async with httpx2.AsyncClient() as client:
            answer = await client.get(address)
        assert answer.status_code == 302, answer.text
        where = urlsplit(answer.headers["location"])
        return {name: values[0] for name, values in parse_qs(where.query).items()} | {"to": where.path}

    # ------------------------------------------------------------------ the resource

    def _mcp(self) -> MCPServer:
        server = MCPServer("guarded", log_level="ERROR")

        @server.tool(annotations=ToolAnnotations(read_only_hint=True))
        def echo(text: str) -> str:
            """Say it again."""
            return text

        @server.tool()
        async def meet(place: str, people: int) -> str:
            """Wait until so many callers are there at the same moment."""
            self._present[place] += 1
            everybody = self._met.setdefault(place, asyncio.Event())
            if self._present[place] == people:
                everybody.set()
            async with asyncio.timeout(_LIMIT):
                await everybody.wait()
            return "met"

        return server

    def refusal(self, authorization: str, tool: str) -> Response | None:
        """Return the reason why a request is refused."""
        self.carried.append(authorization)
        token = self.tokens.get(authorization.removeprefix("Bearer "))
        described = f"{self.url.removesuffix('/mcp')}/.well-known/oauth-protected-resource/mcp"
        where = f'resource_metadata="{described}"' if self.challenges else 'realm="x"'
        if token is None or token.resource != (self.says_resource or self.url) or self._over(token):
            wants = f', scope="{self.wants}"' if self.wants else ""
            return Response("no", 401, {"WWW-Authenticate": f"Bearer {where}{wants}"})
        if (needed := self.needs.get(tool)) and needed not in token.scope.split():
            said = f'Bearer error="insufficient_scope", scope="{needed}", {where}'
            return Response("no", 403, {"WWW-Authenticate": said})
        return None

    def _over(self, token: Token) -> bool:
        return token.expires_at is not None and self.clock() >= token.expires_at

    async def _resource_metadata(self, _: Request) -> Response:
        scopes = {} if self.scopes is None else {"scopes_supported": list(self.scopes)}
        where = {
            "resource": self.says_resource or self.url,
            "authorization_servers": [self.signed_in_at or self.issuer],
        }
        return JSONResponse({**where, **scopes})

    # ------------------------------------------------------------------ the authorization server

    async def _metadata(self, _: Request) -> Response:
        if self.elsewhere:
            return RedirectResponse(self.elsewhere)
        said: dict[str, Any] = {
            "issuer": self.says_issuer or self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": self.proof,
            "token_endpoint_auth_methods_supported": self.methods,
            "scopes_supported": None if self.server_scopes is None else list(self.server_scopes),
            "authorization_response_iss_parameter_supported": self.advertises_issuer,
            "client_id_metadata_document_supported": self.described_clients,
            "registration_endpoint": f"{self.issuer}/register" if self.registers else None,
            **self.endpoints,
        }
        kept = {key: value for key, value in said.items() if value is not None}
        return JSONResponse({**kept, "x": "x" * self.padding})

    async def _register(self, request: Request) -> Response:
        wanted = await request.json()
        self.asked.append(("/register", {key: str(value) for key, value in wanted.items()}, dict(request.headers)))
        if self.refuses_to_register is not None:
            status, body, kind = self.refuses_to_register
            return Response(body, status, {"content-type": kind})
        name = f"client-{len(self.clients) + 1}"
        method = wanted.get("token_endpoint_auth_method", "client_secret_basic")
        secret = f"secret-of-{name}-{secrets.token_urlsafe(24)}" if method in _SECRET_METHODS else ""
        self.clients[name] = (secret, method)
        self.redirects[name] = list(wanted["redirect_uris"])
        given = {**wanted, "client_id": name, **({"client_secret": secret} if secret else {})}
        return JSONResponse(given, 201)

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        self.asked.append(("/authorize", query, dict(request.headers)))
        known = query["client_id"] in self.clients or self.described_clients
        known = known and query["redirect_uri"] in self.redirects.get(query["client_id"], [query["redirect_uri"]])
        if not known or query.get("response_type") != "code" or query.get("code_challenge_method") != "S256":
            return JSONResponse({"error": "invalid_request"}, 400)
        back: dict[str, str] = {"state": query["state"]}
        if self.sends_issuer is not None:
            back["iss"] = self.issuer if self.sends_issuer == "its own" else self.sends_issuer
        if self.denies:
            back["error"] = "access_denied"
        else:
            back["code"] = secrets.token_urlsafe(24)
            self._codes[back["code"]] = query
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(back)}", 302)

    async def _token(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        self.asked.append(("/token", form, dict(request.headers)))
        kind = form["grant_type"]
        if (event := self.held.get(kind)) is not None:
            async with asyncio.timeout(_LIMIT):
                await event.wait()
        if kind in self.refuses:
            status, body = self.refuses[kind]
            return JSONResponse(body, status) if isinstance(body, dict) else Response(body, status)
        if (client := self._client(form, request.headers.get("authorization", ""))) is None:
            return JSONResponse({"error": "invalid_client"}, 401)
        granted = self._grant_token(kind, form, client)
        return JSONResponse({"error": "invalid_grant"}, 400) if granted is None else JSONResponse(self._issue(granted))

    def _client(self, form: Mapping[str, str], authorization: str) -> str | None:
        """Return the client that asks, if it is authenticated."""
        if authorization:
            name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
            shown = (unquote(name), unquote(secret), "client_secret_basic")
        else:
            shown = (form.get("client_id", ""), form.get("client_secret", ""), "client_secret_post")
        name, secret, method = shown
        if name.startswith("https://") and self.described_clients and not secret:
            return name
        if name not in self.clients:
            return None
        wanted, how = self.clients[name]
        fits = (not secret and method == "client_secret_post") if how == "none" else (secret, method) == (wanted, how)
        return name if fits else None

    def _grant_token(self, kind: str, form: Mapping[str, str], client: str) -> Token | None:
        resource = form.get("resource", "")
        expires = None if self.life is None else self.clock() + self.life
        match kind:
            case "authorization_code":
                begun = self._codes.pop(form.get("code", ""), {})
                digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
                proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                same = all(begun.get(name) == form.get(name) for name in ("redirect_uri", "resource"))
                if not same or begun.get("code_challenge") != proof or begun.get("client_id") != client:
                    return None
                return Token(client, resource, begun.get("scope", ""), expires)
            case "refresh_token":
                before = self._refresh.pop(form.get("refresh_token", ""), None)
                if before is None or before.client != client or before.resource != resource:
                    return None
                return Token(client, resource, before.scope, expires)
            case "client_credentials":
                return Token(client, resource, form.get("scope", ""), expires)
            case _:
                return None

    def _issue(self, granted: Token) -> dict[str, Any]:
        name = f"access-{secrets.token_urlsafe(24)}"
        self.tokens[name] = granted
        given: dict[str, Any] = {"access_token": name, "token_type": self.token_type, "scope": granted.scope}
        if self.life is not None:
            given["expires_in"] = self.life
        if self.refresh_tokens:
            given["refresh_token"] = f"refresh-{secrets.token_urlsafe(24)}"
            self._refresh[given["refresh_token"]] = granted
        return given

    async def _revoke(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        self.asked.append(("/revoke", form, dict(request.headers)))
        if self._refresh.pop(form["token"], None) is not None:
            self.tokens.clear()
        return Response(status_code=200)


class _Guarded:
    """The resource behind its check of tokens."""

    def __init__(self, app: ASGIApp, oauth: FakeOAuth) -> None:
        self._app = app
        self._oauth = oauth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
            refusal = self._oauth.refusal(headers.get("authorization", ""), headers.get("mcp-name", ""))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _Server(uvicorn.Server):
    """Leaves signals to the tests."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@contextlib.asynccontextmanager
async def serve_app(app: ASGIApp | Callable[..., Awaitable[None]], *, lifespan: Any) -> AsyncIterator[int]:
    """Serve on a loopback port while the block runs; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan=lifespan, ws="none", timeout_graceful_shutdown=1
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve([listening]), name="fake oauth")
        try:
            async with asyncio.timeout(_LIMIT):
                while not server.started:
                    await asyncio.sleep(0.01)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await asyncio.wait({serving})
