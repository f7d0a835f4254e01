"""An OpenID Connect issuer on a loopback port in the test's own event loop, with real keys.

`browser` acts as a user who agrees. The issuer is strict: it checks PKCE, client authentication and the redirect
address. The test sets its faults and the claims of its user.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.fakes.oauth import serve_app

CLIENT_ID = "console-of-the-tests"
CLIENT_SECRET = "the-clients-own-secret-of-the-tests"
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


@dataclass
class FakeIssuer:
    """`async with FakeIssuer() as issuer`: it is at `issuer.url`."""

    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "u-1", "name": "Ana"})
    """Claims of the user, also in place of those that the issuer makes. None leaves a claim out."""
    userinfo: dict[str, Any] = field(default_factory=dict)
    """Claims that are not in the ID token."""
    key: Any = RSA_KEY
    key_id: str | None = "first"
    algorithm: str = "RS256"
    published: dict[str, Any] = field(default_factory=dict)
    """Further fields of the published key."""
    stolen_key: Any = None
    """The key that signs, if it is not the published one."""
    says_issuer: str = ""
    sends_issuer: str | None = "its own"
    """Issuer in the redirect with the code; None leaves it out."""
    error: str = ""
    refuses: tuple[int, dict[str, Any]] | None = None
    """Status and body of the answer to the request for tokens."""
    document: dict[str, Any] = field(default_factory=dict)
    padding: int = 0
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path, and form or query, of each request."""
    url: str = ""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> Self:
        routes = [
            Route("/.well-known/openid-configuration", self._document),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Route("/keys", self._keys),
            Route("/userinfo", self._userinfo),
        ]
        port = await self._stack.enter_async_context(serve_app(Starlette(routes=routes), lifespan="off"))
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop serving."""
        await self._stack.aclose()

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a bot whose users sign in here."""
        return {"oidc_issuer": self.url, "oidc_client_id": CLIENT_ID, "oidc_client_secret": CLIENT_SECRET}

    def count(self, path: str) -> int:
        """Number of requests for a path."""
        return [asked for asked, _form in self.asked].count(path)

    async def browser(self, address: str) -> str:
        """Follow a link and agree; return the address of the redirect, without its host."""
        async with httpx2.AsyncClient() as client:
            answer = await client.get(address)
        assert answer.status_code == 302, answer.text
        parts = urlsplit(answer.headers["location"])
        return f"{parts.path}?{parts.query}"

    def rotate(self, key_id: str) -> None:
        """Sign with another key from now on, an elliptic one."""
        self.key, self.key_id, self.algorithm = ec.generate_private_key(ec.SECP256R1()), key_id, "ES256"

    # ------------------------------------------------------------------ routes

    async def _document(self, _: Request) -> Response:
        self.asked.append(("/.well-known/openid-configuration", {}))
        document = {
            "issuer": self.says_issuer or self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "authorization_response_iss_parameter_supported": self.sends_issuer is not None,
            **self.document,
            "x": "x" * self.padding,
        }
        return JSONResponse({name: value for name, value in document.items() if value is not None})

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        self.asked.append(("/authorize", query))
        wanted = {"response_type": "code", "client_id": CLIENT_ID, "code_challenge_method": "S256"}
        if not wanted.items() <= query.items() or "openid" not in query["scope"].split():
            return JSONResponse({"error": "invalid_request"}, 400)
        back = {"state": query["state"]}
        if self.sends_issuer is not None:
            back["iss"] = self.url if self.sends_issuer == "its own" else self.sends_issuer
        if self.error:
            back["error"] = self.error
        else:
            back["code"] = f"code-{secrets.token_urlsafe(24)}"
            self._codes[back["code"]] = query
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(back)}", 302)

    async def _token(self, request: Request) -> Response:
        form = {key: str(value) for key, value in (await request.form()).items()}
        self.asked.append(("/token", form))
        if self.refuses is not None:
            return JSONResponse(self.refuses[1], self.refuses[0])
        basic = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return JSONResponse({"error": "invalid_client"}, 401)
        begun = self._codes.pop(form.get("code", ""), {})
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if begun.get("code_challenge") != proof or begun.get("redirect_uri") != form.get("redirect_uri"):
            return JSONResponse({"error": "invalid_grant"}, 400)
        tokens = {"access_token": "access-of-the-tests", "token_type": "Bearer", "id_token": self._id_token(begun)}
        return JSONResponse(tokens)

    def _id_token(self, begun: dict[str, str]) -> str:
        now = int(time.time())
        made = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + 300, "nonce": begun["nonce"]}
        claims = {name: value for name, value in {**made, **self.claims}.items() if value is not None}
        headers = {"kid": self.key_id} if self.key_id is not None else {}
        return jwt.encode(claims, self.stolen_key or self.key, self.algorithm, headers)

    async def _keys(self, _: Request) -> Response:
        self.asked.append(("/keys", {}))
        return JSONResponse({"keys": [{**_public(self.key), "kid": self.key_id, "use": "sig", **self.published}]})

    async def _userinfo(self, request: Request) -> Response:
        self.asked.append(("/userinfo", {}))
        if request.headers.get("authorization") != "Bearer access-of-the-tests":
            return JSONResponse({"error": "invalid_token"}, 401)
        return JSONResponse({"sub": self.claims.get("sub"), **self.userinfo})


def _public(key: PrivateKeyTypes) -> dict[str, Any]:
    if isinstance(key, rsa.RSAPrivateKey):
        text = RSAAlgorithm.to_jwk(key.public_key())
    else:
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        text = ECAlgorithm.to_jwk(key.public_key())
    described: dict[str, Any] = json.loads(text) if isinstance(text, str) else text
    return {name: value for name, value in described.items() if name != "key_ops"}
