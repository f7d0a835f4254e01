"""The JSON in which sign-ins by OAuth are kept before they are encrypted, and back."""

from __future__ import annotations

import dataclasses
import json

from bot.domain.conversations import Author, ConversationKey
from bot.domain.sign_ins import PendingSignIn, Registration, SignIn, SignInKey
from bot.storage.codec import Body

_VERSION = 1


def encode_sign_in(sign_in: SignIn) -> str:
    """A sign-in as it is kept. Which version it is, is not in it."""
    return json.dumps({"v": _VERSION, **_fields(sign_in)})


def decode_sign_in(body: str, version: int) -> SignIn:
    """A sign-in as it was. Raises what `records.UNREADABLE` says."""
    return _sign_in(_read(body), version)


def encode_pending(under_way: PendingSignIn) -> str:
    """What is needed when somebody comes back."""
    by = under_way.by
    return json.dumps(
        {
            "v": _VERSION,
            "key": [under_way.key.server_id, under_way.key.person],
            "by": [by.platform, by.id, by.name],
            "conversation": str(under_way.conversation),
            "sign_in": _fields(under_way.sign_in) | {"version": under_way.sign_in.version},
            "verifier": under_way.verifier,
            "redirect_uri": under_way.redirect_uri,
        }
    )


def read_under_way(body: str, expires_at: float) -> PendingSignIn:
    """The same as it was. Raises what `records.UNREADABLE` says."""
    read = _read(body)
    return PendingSignIn(
        SignInKey(*read["key"]),
        Author(*read["by"]),
        ConversationKey.parse(read["conversation"]),
        _sign_in(read["sign_in"], read["sign_in"]["version"]),
        read["verifier"],
        read["redirect_uri"],
        expires_at,
    )


def _fields(sign_in: SignIn) -> Body:
    fields = dataclasses.asdict(dataclasses.replace(sign_in, endpoints=dict(sign_in.endpoints)))
    del fields["version"]
    return fields


def _read(body: str) -> Body:
    read: Body = json.loads(body)
    if read["v"] != _VERSION:
        raise ValueError(f"a body of version {read['v']}")
    return read


def _sign_in(read: Body, version: int) -> SignIn:
    known = {each.name for each in dataclasses.fields(SignIn)}
    values = {name: value for name, value in read.items() if name in known}
    return SignIn(**{**values, "registration": Registration(**read["registration"]), "version": version})
