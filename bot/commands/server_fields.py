"""Parsers of single fields of a server's definition. Each raises ValueError with a sentence for the user."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from bot.commands.text_format import closest_match, sentences
from bot.commands.token_detection import known_token, looks_like_token, plain_warning
from bot.domain.flows import Sends, Words
from bot.domain.secrets import SecretReference
from bot.domain.server_files import transport_kind
from bot.domain.servers import (
    LAST_FALLBACK,
    MOST_CONNECT_RETRIES,
    MOST_SESSIONS,
    OUTPUT_LIMITS,
    AuthenticationKind,
    Protocol,
    SessionScope,
    ToolNaming,
    is_reserved_header,
)
from bot.i18n import _, gettext_lazy

TRANSPORTS = ("streamable_http", "stdio", "auto", "sse", "jsonrpc_http")
PROTOCOLS = tuple(protocol.value for protocol in Protocol)
KINDS = tuple(kind.value for kind in AuthenticationKind)
YES, NO = "yes", "no"
DEFAULT = "default"
"""Value of a field that follows a setting of the bot."""
BY_HINTS = "hints"
"""Value that leaves the decision to the server's hints."""
WORDS = (BY_HINTS, *(word.value for word in Words))
SENDS = (BY_HINTS, *(value.value for value in Sends))
LONGEST = {"title": 255, "description": 500, "url": 2048, "command": 2000, "client_id": 512, "scope": 1000}
LONGEST_SECONDS = 3600.0
LONGEST_INSTRUCTION = 4000
LONGEST_GROUP = 40
NO_ADDRESS = gettext_lazy("That is no http or https address. Write https://host/path.")
REFERENCE = gettext_lazy("Write env:NAME or file:/absolute/path: where the secret is, never the secret itself.")
_Choice = TypeVar("_Choice", bound=StrEnum)
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""Characters of a scope (RFC 6749, 3.3)."""
_SECRET_QUERY = re.compile(r"(?i)key|token|secret|password|passwd|auth|sig(nature)?$|credential")


def slug_of(title: str) -> str:
    """Return a slug from a title; empty if the title has no usable characters."""
    return re.sub(r"[^a-z0-9]+", "-", title.strip().lower()).strip("-")[:64].strip("-")


def is_slug(text: str) -> bool:
    """Return True for at most 64 lower-case letters, digits and dashes."""
    return bool(_SLUG.fullmatch(text))


def read_slug(text: str) -> str:
    """Parse a slug."""
    if not is_slug(text):
        raise ValueError(_("Lower-case letters, digits and dashes, at most 64 of them."))
    return text


def _read_text(longest: int, text: str) -> str:
    """Parse visible text of at most `longest` characters."""
    if len(text) > longest:
        raise ValueError(_("At most {limit} characters, and this has {count}.", limit=longest, count=len(text)))
    if not text.replace("\n", "").replace("\t", "").isprintable():
        raise ValueError(_("There are characters in it that cannot be seen."))
    return text


def _misread(text: str, wanted: str) -> ValueError:
    """Return the error of a value, which may be repeated because it is no secret."""
    return ValueError(_("{value} is not valid. {wanted}", value=f"{text[:40]!r}", wanted=wanted) if text else wanted)


def _choose(text: str, choices: Collection[str]) -> str:
    """Return a text that is one of the choices. Raises ValueError with the nearest one."""
    if text in choices:
        return text
    near = closest_match(text, choices)
    one_of = _("One of: {choices}.", choices=", ".join(choices))
    raise _misread(text, sentences(one_of, _("Did you mean {name}?", name=near) if near else ""))


def read_transport(text: str) -> str:
    """Parse one of TRANSPORTS, by any of its names."""
    return _choose(transport_kind(text), TRANSPORTS)


def read_sign_in(text: str) -> AuthenticationKind:
    """Parse a type of authentication."""
    return AuthenticationKind(_choose(text.lower().replace("-", "_") or "none", KINDS))


def read_header(text: str) -> str:
    """Parse the name of a header; it may be empty."""
    if text and not HEADER_NAME.fullmatch(text):
        raise ValueError(_("That is no name of a header."))
    check_header(text)
    return text


def check_header(name: str) -> None:
    """Raise ValueError if a server cannot have this header."""
    if is_reserved_header(name):
        raise ValueError(_("This header names a host or is set by the connection itself. Use another one."))


def read_client_id(text: str) -> str:
    """Parse an OAuth client id; it may be empty."""
    if len(text) > LONGEST["client_id"] or not (text.isascii() and text.isprintable()):
        raise ValueError(_("That is no client id. Copy it from where the bot was registered."))
    if known_token(text):
        raise ValueError(plain_warning())
    return text


def read_scope(text: str) -> str:
    """Parse scopes separated by blanks; the text may be empty."""
    names = _read_text(LONGEST["scope"], text).split()
    if not all(map(_SCOPE.fullmatch, names)):
        raise ValueError(_("Names of scopes with blanks between, such as: read write."))
    return " ".join(dict.fromkeys(names))


def read_reference(text: str) -> SecretReference:
    """Parse a reference to a secret; a secret in clear text is rejected."""
    if looks_like_token(text):
        raise ValueError(plain_warning())
    try:
        return SecretReference.parse(text)
    except ValueError:
        raise ValueError(REFERENCE) from None


def read_switch(text: str) -> bool:
    """Parse a yes or no."""
    match text.lower():
        case "yes" | "on" | "true" | "y":
            return True
        case "no" | "off" | "false" | "n" | "":
            return False
        case _:
            raise _misread(text, _("yes or no."))


def read_seconds(text: str) -> float:
    """Parse a time limit into seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= LONGEST_SECONDS:
        wanted = _("A number of seconds, more than 0 and at most {limit}.", limit=f"{LONGEST_SECONDS:g}")
        raise _misread(text, wanted)
    return seconds


def read_seconds_or_none(text: str) -> float | None:
    """Parse a time limit; empty or `default` is None."""
    return None if text.lower() in ("", "default") else read_seconds(text)


def read_fallback_group(text: str) -> str:
    """Parse the name of a group of servers; empty or `none` is no group."""
    if text.lower() in ("", "none"):
        return ""
    if len(text) > LONGEST_GROUP or not is_slug(text):
        raise ValueError(_("Lower-case letters, digits and dashes, at most {limit}. Or: none.", limit=LONGEST_GROUP))
    return text


def read_switch_or_none(text: str) -> bool | None:
    """Parse a yes or no; empty or `default` is None."""
    return None if text.lower() in ("", "default") else read_switch(text)


def _read_number(least: int, most: int, text: str) -> int:
    """Parse a whole number from `least` to `most`."""
    if not (re.fullmatch(r"[0-9]{1,9}", text) and least <= int(text) <= most):
        raise _misread(text, _("A whole number from {least} to {most}.", least=least, most=most))
    return int(text)


def read_times(text: str) -> dict[str, float]:
    """Parse time limits of single tools, one per line."""
    times: dict[str, float] = {}
    if text.lower() == "none":
        return times
    for line in filter(None, map(str.strip, text.splitlines())):
        tool, _equals, seconds = line.rpartition("=")
        if not tool.strip():
            raise ValueError(_("Such as export=120: a tool by the name its server gives it, and seconds. Or: none."))
        times[tool.strip()] = read_seconds(seconds.strip())
    return times


def read_previews(text: str) -> dict[str, str]:
    """Parse the tools that show what a call is about, one per line; a name alone is for all tools."""
    if text.lower() == "none":
        return {}
    lines = (line.rpartition("=") for line in text.splitlines())
    return {tool.strip() or "*": preview.strip() for tool, _equals, preview in lines if preview.strip()}


def read_tool_recipients(text: str) -> dict[str, tuple[str, ...]]:
    """Parse the recipient arguments of single tools, one tool per line."""
    recipients = {}
    for tool, value in _by_tool(text, "send=to,cc"):
        recipients[tool] = tuple(filter(None, map(str.strip, value.split(","))))
        if not recipients[tool]:
            raise ValueError(_("Which arguments of {tool}? Such as send=to,cc.", tool=tool))
    return recipients


def _choice_or(default: _Choice) -> Callable[[str], _Choice]:
    """Return the parser of a choice; empty is the default."""
    return lambda text: type(default)(_choose(text.lower() or default, tuple(type(default))))


def _choice_or_none(choices: type[_Choice]) -> Callable[[str], _Choice | None]:
    """Return the parser of a choice; empty or `hints` is None, which leaves it to the server's hints."""
    return lambda text: None if text.lower() in ("", BY_HINTS) else choices(_choose(text.lower(), tuple(choices)))


def _choice_by_tool(choices: type[_Choice], example: str) -> Callable[[str], dict[str, _Choice]]:
    """Return the parser of choices for single tools, one per line."""
    return lambda text: {
        tool: choices(_choose(value.lower(), tuple(choices))) for tool, value in _by_tool(text, example)
    }


def _by_tool(text: str, example: str) -> list[tuple[str, str]]:
    """Return pairs of tool and value, one per line; `none` is an empty list."""
    if text.lower() == "none":
        return []
    pairs = []
    for line in filter(None, map(str.strip, text.splitlines())):
        tool, _equals, value = line.rpartition("=")
        if not tool.strip():
            raise ValueError(
                _("Such as {example}, with the name that the server gives the tool. Or: none.", example=example)
            )
        pairs.append((tool.strip(), value.strip()))
    return pairs


def read_folder(text: str) -> str:
    """Parse an absolute path; it may be empty."""
    if text and not (text.startswith("/") and text.isprintable()):
        raise ValueError(_("An absolute path, such as /srv/files."))
    return text


def read_command_line(text: str) -> tuple[str, ...]:
    """Parse a command line into a program and its arguments."""
    try:
        return tuple(shlex.split(_read_text(LONGEST["command"], text)))
    except ValueError as error:
        if "quotation" in str(error) or "escaped" in str(error):
            raise ValueError(_("A quotation mark has no partner.")) from None
        raise


def read_address(text: str) -> str:
    """Parse an http or https address without credentials."""
    _read_text(LONGEST["url"], text)
    if not text:
        return ""
    try:
        address = urlsplit(text)
        usable = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in text):
        raise ValueError(NO_ADDRESS)
    if address.username or address.password:
        raise ValueError(_("A user name or password in an address would be kept readable. Use sign-in basic instead."))
    if any(_SECRET_QUERY.search(name) and value for name, value in parse_qsl(address.query)):
        raise ValueError(_("A key in an address would be kept readable. Use sign-in header or api_key instead."))
    if looks_like_token(text):
        raise ValueError(plain_warning())
    return text


CONFIG_READERS: Mapping[str, Callable[[str], Any]] = {
    "name": read_slug,
    "title": partial(_read_text, LONGEST["title"]),
    "description": partial(_read_text, LONGEST["description"]),
    "system_instruction": partial(_read_text, LONGEST_INSTRUCTION),
    "response_instruction": partial(_read_text, LONGEST_INSTRUCTION),
    "auto_context_tool": partial(_read_text, LONGEST_INSTRUCTION),
    "protocol": _choice_or(Protocol.AUTO),
    "connect_timeout": read_seconds_or_none,
    "list_timeout": read_seconds,
    "tool_timeout": read_seconds,
    "tool_timeout_max": read_seconds,
    "tool_timeouts": read_times,
    "preview": read_previews,
    "reconnect": read_switch_or_none,
    "connect_retries": partial(_read_number, 0, MOST_CONNECT_RETRIES),
    "output_limit": partial(_read_number, *OUTPUT_LIMITS),
    "fallback_group": read_fallback_group,
    "fallback_order": partial(_read_number, 1, LAST_FALLBACK),
    "tool_names": _choice_or(ToolNaming.PREFIXED),
    "sessions": _choice_or(SessionScope.SHARED),
    "max_sessions": partial(_read_number, 1, MOST_SESSIONS),
    "session_idle_timeout": read_seconds_or_none,
    "auto_connect": read_switch,
    "trusted": read_switch,
    "use_instructions": read_switch,
}
"""Parsers of the fields that are fields of `ServerConfig` under the same name."""
FLOW_READERS: Mapping[str, Callable[[str], Any]] = {
    "words": _choice_or_none(Words),
    "sends": _choice_or_none(Sends),
    "tool_words": _choice_by_tool(Words, "inbox=strangers"),
    "tool_sends": _choice_by_tool(Sends, "send=world"),
    "tool_recipients": read_tool_recipients,
}
"""Parsers of the fields that are fields of `ServerFlows` under the same name."""


def field_text(value: object) -> str:
    """Return a value of a definition as the text of its field, which the field's parser reads back."""
    match value:
        case None:
            return ""
        case bool():
            return YES if value else NO
        case float():
            return f"{value:g}"
        case tuple():
            return ",".join(value)
        case Mapping():
            return "\n".join(f"{tool}={field_text(item)}" for tool, item in value.items())
        case _:
            return str(value)
