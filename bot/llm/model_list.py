"""The models that a service has, as it lists them: whether one of them is ours, and how large its window is.

Called through `hosted_model`, by the doctor and once or twice by `context_window`. The vendors are asked about the one
model; compatible servers for their list, since many have nothing else. Their shapes are alike, their fields are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol
from urllib.parse import quote

from bot.llm.error_classification import ErrorKind, ProviderError, classify
from bot.llm.model_availability import Available, NotListed, NotReported, Retired, Standing
from bot.llm.provider_service import Service

LOOK_UP_SECONDS = 10.0
_WINDOWS = ("max_input_tokens", "max_model_len", "context_length", "context_window", "max_context_length")
"""In this order: Anthropic; vLLM and SGLang; OpenRouter, Together, and Ollama's list of running models; Groq; Mistral.
"""
_LARGEST_WINDOW = 100_000_000
"""Tokens. A larger reported window is ignored."""
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Places:
    """Paths of a service, added to its address. `key` is the path that checks the key, for a service with a public list
    of models. `running` replaces the address from `/v1` on: the list of running models with the windows that they were
    started with. `windows` is True if one of the lists may contain the size of a window.
    """

    models: str = "/models"
    key: str = ""
    running: str = ""
    windows: bool = True


class ModelListClient(Protocol):
    """A vendor's client."""

    async def get(self, path: str) -> Any:
        """Return the JSON at the path. Raises the vendor's errors, and ValueError for anything else."""

    def complaint(self, error: Exception) -> ProviderError | None:
        """Return the service's error, or None if `error` is not an answer of the service."""

    def translated(self, tools: Sequence[str]) -> AbstractContextManager[None]:
        """Turns the vendor's errors into those of `bot.errors`. `tools` are the names of those on offer."""


class ModelList:
    """The service's models, and where it tells of them."""

    def __init__(self, service: Service, client: ModelListClient, places: Places) -> None:
        self._service = service
        self._client = client
        self._places = places

    @property
    def reports_window(self) -> bool:
        """True if the service may report the size of the model's window."""
        return self._places.windows

    async def look_up(self) -> Standing:
        """Ask the service. Raises ModelUnavailable if it cannot be reached, ModelBarred if it rejects the key or does
        not know the model.
        """
        try:
            async with asyncio.timeout(LOOK_UP_SECONDS):
                with self._client.translated(()):
                    return await self._look_up()
        except TimeoutError as error:
            raise self._service.silent(LOOK_UP_SECONDS) from error

    async def _look_up(self) -> Standing:
        if self._places.key:
            await self._got(self._places.key, self._service.own_address)
        if self._service.own_address:
            path = f"{self._places.models}/{quote(self._service.model, safe=':@')}"
            found = await self._got(path, strict=True)
            return found if isinstance(found, NotReported) else _standing(found)
        found = await self._got(self._places.models, strict=False)
        if isinstance(found, NotReported):
            return found
        standing = _in_list(found, self._service.model)
        if self._places.running and standing == Available():
            return replace(standing, window=await self._window_of_running())
        return standing

    async def _got(self, path: str, strict: bool) -> Any:
        """Return the JSON at a path. Raises Unsaid if the service does not have the path, unless its paths are known
        (`strict`).
        """
        try:
            return await self._client.get(path)
        except ValueError:
            return NotReported("what it sent is not a list of models")
        except Exception as error:
            complaint = self._client.complaint(error)
            if complaint is None or _is_final(complaint, strict=strict):
                raise
            return NotReported("" if complaint.status == _NOT_FOUND else self._service.refused(complaint).cause)

    async def _window_of_running(self) -> int | None:
        """Return the window of a model that runs already, which depends on the options that it was started with."""
        root = self._service.address.rstrip("/").removesuffix("/v1")
        found = await self._got(f"{root}{self._places.running}", strict=False)
        models = found.get("models") if isinstance(found, Mapping) else None
        return _window(next(_called(self._service.model, _entries(models), "model"), {}))


def _is_final(complaint: ProviderError, *, strict: bool) -> bool:
    """Return True if a completion would fail alike. A key may allow completions but not lists (403)."""
    match classify(complaint):
        case ErrorKind.KEY:
            return complaint.status != 403
        case ErrorKind.MODEL:
            return strict
        case problem:
            return problem in (ErrorKind.CREDIT, ErrorKind.BUSY, ErrorKind.OUT_OF_ORDER, ErrorKind.MOVED)


def _in_list(found: Any, model: str) -> Standing:
    data = found.get("data", ()) if isinstance(found, Mapping) else found
    if data is None:  # Ollama without a model
        return NotListed(())
    if not isinstance(data, list):
        return NotReported("what it sent is not a list of models")
    entries = _entries(data)
    entry = next(_called(model, entries, "id"), None)
    if entry is not None:
        return _standing(entry)
    if isinstance(found, Mapping) and (found.get("has_more") or _next_page(found)):
        return NotReported("its list is longer than one page, and the model is not on the first")
    return NotListed(tuple(entry["id"] for entry in entries if isinstance(entry.get("id"), str)))


def _next_page(found: Mapping[str, Any]) -> bool:
    links = found.get("links")
    return isinstance(links, Mapping) and bool(links.get("next"))


def _entries(data: Any) -> list[Mapping[str, Any]]:
    return [each for each in data if isinstance(each, Mapping)] if isinstance(data, list) else []


def _called(model: str, entries: Sequence[Mapping[str, Any]], key: str) -> Iterator[Mapping[str, Any]]:
    """The entries of the model, those of the very name first. Ollama adds `:latest` to a name without a tag, OpenRouter
    takes `:online` and the like behind one, and LiteLLM may list patterns.
    """
    same: tuple[Callable[[str], bool], ...] = (
        lambda name: name == model,
        lambda name: name == f"{model}:latest",
        lambda name: "/" in name and name == model.rpartition(":")[0],
        lambda name: "*" in name and fnmatchcase(model, name),
    )
    for fits in same:
        yield from (entry for entry in entries if isinstance(entry.get(key), str) and fits(entry[key]))


def _standing(entry: Any) -> Standing:
    if not isinstance(entry, Mapping):
        return NotReported("what it sent is not a model")
    if entry.get("lifecycle") == "retired":
        return Retired()
    until = entry.get("retires_at") or entry.get("shutdown_date") or entry.get("expiration_date")
    return Available(_window(entry), until[:10] if isinstance(until, str) else "")


def _window(entry: Mapping[str, Any]) -> int | None:
    """Return the size of the window in tokens. OpenRouter also names the window of the host that it asks first."""
    top = entry.get("top_provider")
    places = (entry, top) if isinstance(top, Mapping) else (entry,)
    found = [place.get(name) for place in places for name in _WINDOWS]
    sizes = [
        size for size in found if isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _LARGEST_WINDOW
    ]
    return min(sizes) if sizes else None
