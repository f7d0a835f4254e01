"""The list of models of a service, and the window of a model in it.

The vendors are asked about the one model, compatible servers for their list, because many have nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from urllib.parse import quote

from bot.domain.completions import Capabilities
from bot.i18n import gettext_lazy
from bot.llm.hosted_model import HostedConfig, HostedModel, VendorClient, WireFormat
from bot.llm.models import Availability, Available, NotListed, NotReported, Retired
from bot.llm.provider_service import ErrorKind, ProviderError, classify
from bot.llm.reply_draft import ReplyDraft

LOOK_UP_SECONDS = 10.0
_WINDOWS = ("max_input_tokens", "max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")
"""In this order: Anthropic; vLLM and SGLang; OpenRouter, Together, and Ollama's list of running models; Groq; Mistral;
llama.cpp.
"""
_OUTPUTS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "output_token_limit", "outputTokenLimit")
"""OpenRouter and Groq; LiteLLM and others; Anthropic; Gemini."""
_LARGEST_WINDOW = 100_000_000
"""Tokens. A larger reported window is ignored."""
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class ModelListPaths:
    """Paths of a service, added to its address. `key` is the path that checks the key, for a service with a public list
    of models. `running` replaces the address from `/v1` on: the list of running models with the windows that they were
    started with. `windows` is True if one of the lists may contain the size of a window.
    """

    models: str = "/models"
    key: str = ""
    running: str = ""
    windows: bool = True


class ListedModel(HostedModel):
    """A hosted model that its service lists."""

    def __init__(self, paths: ModelListPaths, *of_model: Any, **more: Any) -> None:
        super().__init__(*of_model, **more)
        self._paths = paths

    @property
    def service_name(self) -> str:
        """Display name of the service."""
        return self._service.name

    @property
    def tells_window(self) -> bool:
        """True if the service may report the size of the model's window."""
        return self._paths.windows

    async def look_up(self) -> Availability:
        """Ask the service. Raises ModelUnavailable if it cannot be reached, ModelBarred if it rejects the key or does
        not know the model.
        """
        async with self._asking():
            return await self._look_up()

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        await self._client.open()  # no time of the service
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                with self._client.map_errors(()):
                    if self._paths.key:
                        await self._fetch(self._paths.key, self._service.own_address)
                    yield
        except TimeoutError as error:
            raise self._service.silence_error(LOOK_UP_SECONDS) from error

    async def model_names(self) -> Sequence[str]:
        """Return the names of the models, as far as the first page goes. Raises the errors of `look_up`."""
        async with self._asking():
            listing = await self._fetch(self._paths.models, strict=False)
        data = listing.get("data") if isinstance(listing, Mapping) else listing
        return [entry["id"] for entry in _entries(data) if isinstance(entry.get("id"), str)]

    async def _look_up(self) -> Availability:
        if self._service.own_address:
            path = f"{self._paths.models}/{quote(self._service.model, safe=':@')}"
            entry = await self._fetch(path, strict=True)
            return entry if isinstance(entry, NotReported) else _parse_entry(entry)
        listing = await self._fetch(self._paths.models, strict=False)
        if isinstance(listing, NotReported):
            return listing
        availability = _in_list(listing, self._service.model)
        if self._paths.running and availability == Available():
            root = self._service.address.rstrip("/").removesuffix("/v1")
            running = await self._fetch(f"{root}{self._paths.running}", strict=False)
            models = running.get("models") if isinstance(running, Mapping) else None
            return replace(
                availability, window=_window(next(_named_entries(self._service.model, _entries(models), "model"), {}))
            )
        return availability

    async def _fetch(self, path: str, strict: bool) -> Any:
        """Return the JSON at a path, or NotReported if the service does not have the path. If the path is documented
        (`strict`), its absence is an error.
        """
        try:
            return await self._client.get(path)
        except ValueError:
            return NotReported(gettext_lazy("what it sent is not a list of models"))
        except Exception as error:
            provider_error = self._client.read_error(error)
            if provider_error is None or _is_final(provider_error, strict=strict):
                raise
            return NotReported(
                "" if provider_error.status == _NOT_FOUND else self._service.error_from(provider_error).cause
            )


def listed_model(
    config: HostedConfig,
    client: VendorClient,
    protocol: tuple[Callable[..., dict[str, Any]], Callable[[str], ReplyDraft]],
    capabilities: Capabilities,
    paths: ModelListPaths,
    *,
    passed_over: frozenset[bytes] = frozenset(),
) -> ListedModel:
    """Return the model of a configuration. `protocol` writes the body of a request, and begins the draft of a reply."""
    service, (body, draft) = client.service, protocol
    own = {"own_address": service.own_address, "by": service.writer, "reasoning": config.reasoning}
    wire_format = WireFormat(partial(body, config.model, **own), partial(draft, service.writer), passed_over)
    return ListedModel(paths, capabilities, client, wire_format, learns_images=config.images is None)


def _is_final(provider_error: ProviderError, *, strict: bool) -> bool:
    """Return True if a completion would fail alike. A key may allow completions but not lists (403)."""
    match classify(provider_error):
        case ErrorKind.KEY:
            return provider_error.status != 403
        case ErrorKind.MODEL:
            return strict
        case kind:
            return kind in (ErrorKind.CREDIT, ErrorKind.BUSY, ErrorKind.OUT_OF_ORDER, ErrorKind.MOVED)


def _in_list(listing: Any, model: str) -> Availability:
    data = listing.get("data", ()) if isinstance(listing, Mapping) else listing
    if data is None:  # Ollama without a model
        return NotListed(())
    if not isinstance(data, list):
        return NotReported(gettext_lazy("what it sent is not a list of models"))
    entries = _entries(data)
    entry = next(_named_entries(model, entries, "id"), None)
    if entry is not None:
        return _parse_entry(entry)
    links = listing.get("links") if isinstance(listing, Mapping) else None
    has_next = isinstance(links, Mapping) and bool(links.get("next"))
    if isinstance(listing, Mapping) and (listing.get("has_more") or has_next):
        return NotReported(gettext_lazy("its list is longer than one page, and the model is not on the first"))
    return NotListed(tuple(entry["id"] for entry in entries if isinstance(entry.get("id"), str)))


def _entries(data: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in data if isinstance(entry, Mapping)] if isinstance(data, list) else []


def _named_entries(model: str, entries: Sequence[Mapping[str, Any]], key: str) -> Iterator[Mapping[str, Any]]:
    """Return the entries of the model, exact names first. Ollama adds `:latest` to a name without a tag, OpenRouter
    allows suffixes such as `:online`, and LiteLLM may list patterns.
    """
    same: tuple[Callable[[str], bool], ...] = (
        lambda name: name == model,
        lambda name: name == f"{model}:latest",
        lambda name: "/" in name and name == model.rpartition(":")[0],
        lambda name: "*" in name and fnmatchcase(model, name),
    )
    for fits in same:
        yield from (entry for entry in entries if isinstance(entry.get(key), str) and fits(entry[key]))


def _parse_entry(entry: Any) -> Availability:
    if not isinstance(entry, Mapping):
        return NotReported(gettext_lazy("what it sent is not a model"))
    if entry.get("lifecycle") == "retired":
        return Retired()
    until = entry.get("retires_at") or entry.get("shutdown_date") or entry.get("expiration_date")
    output = _smallest(entry, _OUTPUTS)
    return Available(_window(entry), until[:10] if isinstance(until, str) else "", output)


def _window(entry: Mapping[str, Any]) -> int | None:
    return _smallest(entry, _WINDOWS)


def _smallest(entry: Mapping[str, Any], names: Sequence[str]) -> int | None:
    """Return the smallest of these numbers of tokens. OpenRouter also names those of the host that it asks first, and
    LiteLLM those of its own list.
    """
    inner = (entry.get("top_provider"), entry.get("model_info"), entry.get("limits"), entry.get("meta"))
    sources = (entry, *(source for source in inner if isinstance(source, Mapping)))
    numbers = [source.get(name) for source in sources for name in names]
    sizes = [
        size for size in numbers if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _LARGEST_WINDOW
    ]
    return min(sizes) if sizes else None
