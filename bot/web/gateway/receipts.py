"""Receipts of approvals: signed texts (JWS, Ed25519) that an executor checks without asking.

A receipt proves a decision about exact arguments for one executor, its audience. It does not prove that the call ran:
an executor refuses a `jti` that it has seen before. A new key signs after ROTATION_SECONDS, and the public part of an
old one is shown as long as its receipts count.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import rfc8785
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bot.domain.gateway import ReceiptKey
from bot.errors import CountersignError
from bot.i18n import gettext_lazy
from bot.ports import ReceiptKeyStore

RECEIPT_SECONDS = 24 * 3600.0
ROTATION_SECONDS = 90 * 24 * 3600.0
_ALGORITHM = "EdDSA"
_CLAIMS = ("iss", "sub", "aud", "jti", "iat", "exp", "server", "tool", "arguments_sha256", "decision", "deciders")


def digest_arguments(arguments: Any) -> str:
    """Return the SHA-256 of a value's RFC 8785 JSON, in hexadecimal. Raises ValueError for a value without one."""
    return hashlib.sha256(rfc8785.dumps(arguments)).hexdigest()


class Receipts:
    """Receipts of this installation, which `issuer` names. `clock` is in epoch seconds."""

    def __init__(self, keys: ReceiptKeyStore, issuer: str, clock: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._issuer = issuer
        self._clock = clock

    async def issue(self, claims: Mapping[str, Any], decided_at: float) -> str:
        """Return the receipt of a decision. Repeating it gives the same claims. Raises SecretUnavailable."""
        import jwt  # noqa: PLC0415 - loads with the first receipt

        key = await self._signing_key()
        private = jwt.PyJWK(json.loads(await self._keys.open_private(key.number)), _ALGORITHM)
        times = {"iat": int(decided_at), "exp": int(decided_at + RECEIPT_SECONDS)}
        header = {"kid": json.loads(key.public)["kid"]}
        return jwt.encode({"iss": self._issuer, **claims, **times}, private, _ALGORITHM, header)

    async def public_keys(self) -> dict[str, Any]:
        """Return the keys of receipts that count, as a JWK set. The first receipt makes the first one."""
        keys = await self._keys.keys()
        ends = [*(later.created_at + RECEIPT_SECONDS for later in keys[1:]), float("inf")]
        now = self._clock()
        return {"keys": [json.loads(key.public) for key, end in zip(keys, ends, strict=True) if now <= end]}

    async def rotate(self) -> ReceiptKey:
        """Return a new key, which signs from now on. Of concurrent calls, the first one makes it."""
        keys = await self._keys.keys()
        number = keys[-1].number + 1 if keys else 1
        return await self._keys.add(number, *_new_key())

    async def _signing_key(self) -> ReceiptKey:
        keys = await self._keys.keys()
        return keys[-1] if keys and self._clock() < keys[-1].created_at + ROTATION_SECONDS else await self.rotate()


def keys_route(receipts: Receipts) -> Route:
    """Return the route of the public keys, which takes no token."""

    async def show(_request: Request) -> Response:
        return JSONResponse(await receipts.public_keys())

    return Route("/.well-known/jwks.json", show)


def _new_key() -> tuple[str, str]:
    """Return the public and the private JWK of a new key. Its id is the thumbprint of RFC 7638."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415 - as above
    from jwt.algorithms import OKPAlgorithm  # noqa: PLC0415 - as above

    private: dict[str, Any] = OKPAlgorithm.to_jwk(Ed25519PrivateKey.generate(), as_dict=True)
    public = {name: private[name] for name in ("crv", "kty", "x")}
    head = {"kid": digest_arguments(public), "alg": _ALGORITHM, "use": "sig"}
    return json.dumps({**public, **head}), json.dumps({**private, **head})


def verify_receipt(
    receipt: str, keys: Mapping[str, Any], audience: str | None, arguments: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the claims of a receipt that one of the `keys` (a JWK set) has signed: for this audience, about these
    arguments, unless they are None. Raises CountersignError.
    """
    import jwt  # noqa: PLC0415 - as above

    try:
        found = jwt.PyJWKSet.from_dict(dict(keys))[jwt.get_unverified_header(receipt).get("kid", "")]
        claims: dict[str, Any] = jwt.decode(
            receipt,
            found,
            algorithms=[_ALGORITHM],
            audience=audience,
            options={"require": list(_CLAIMS), "verify_aud": audience is not None},
        )
        is_same = arguments is None or digest_arguments(dict(arguments)) == claims["arguments_sha256"]
    except (jwt.PyJWTError, KeyError, ValueError) as error:
        raise CountersignError(
            gettext_lazy(
                "The receipt does not count: {reason}.", reason=str(error).rstrip(".") or type(error).__name__
            ),
            gettext_lazy("ask for a new approval, and check the audience and the address of the keys"),
        ) from None
    if not is_same:
        raise CountersignError(
            gettext_lazy("The receipt is about other arguments."),
            gettext_lazy("run the call with the arguments as approved"),
        )
    return claims
