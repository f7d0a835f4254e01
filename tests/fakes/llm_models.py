"""The models of a fake service, in the shapes of different vendors: `GET /v1/models` and similar routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

from tests.fakes.llm_script import Status

Kind = Literal["openai", "anthropic", "vllm", "ollama", "litellm", "openrouter"]

Told = Status | dict[str, Any]
_PATH = "/v1/models"
_CREATED = 1_800_000_000
NO_ROUTE = Status(404, body='{"detail":"Not Found"}')
"""FastAPI's, which vLLM and LiteLLM are made with."""


@dataclass
class Models:
    """The models of a service of this kind, with the sizes of their windows. `key` is the only one it takes, if any;
    those in `running` are loaded (Ollama); `retires` is when some go, empty for one that has gone.
    """

    kind: Kind
    windows: dict[str, int]
    key: str = ""
    running: set[str] = field(default_factory=set)
    retires: dict[str, str] = field(default_factory=dict)
    instead: Status | None = None

    def answer(self, path: str, headers: Mapping[str, str]) -> Told:
        """Return the response to a request."""
        given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        if self.instead is not None:
            return self.instead
        open_to_all = self.kind == "openrouter" and path == _PATH
        if self.key not in ("", given) and not open_to_all:
            return self._wrong_key(given)
        return self._at(path)

    def _at(self, path: str) -> Told:
        name = unquote(path.removeprefix(f"{_PATH}/"))
        match self.kind, path:
            case _, "/v1/models":
                return self._list()
            case "ollama", "/api/ps":
                return {"models": [self._loaded_model(name) for name in sorted(self.running)]}
            case "openrouter", "/v1/key":
                return {"data": {"label": "sk-or-…", "usage": 0, "limit": None}}
            case (("openai" | "anthropic" | "ollama"), _) if name != path:
                return self._model(name) if name in self.windows else self._unknown(name)
            case _:
                return NO_ROUTE

    def _list(self) -> dict[str, Any]:
        entries = [self._model(name) for name in self.windows]
        match self.kind:
            case "anthropic":
                ends = {"first_id": next(iter(self.windows), None), "last_id": next(reversed(self.windows), None)}
                return {"data": entries, "has_more": False, **ends}
            case "ollama":
                return {"object": "list", "data": entries or None}
            case "openrouter":
                return {"data": entries, "links": {"next": None}, "total_count": len(entries)}
            case _:
                return {"object": "list", "data": entries}

    def _model(self, name: str) -> dict[str, Any]:
        window, until = self.windows[name], self.retires.get(name)
        plain = {"id": name, "object": "model", "created": _CREATED, "owned_by": self.kind}
        match self.kind:
            case "anthropic":
                lifecycle = "active" if until is None else "deprecated" if until else "retired"
                return {
                    "type": "model",
                    "id": name,
                    "display_name": name.title(),
                    "created_at": "2026-02-01T00:00:00Z",
                    "capabilities": {"image_input": {"supported": True}, "pdf_input": {"supported": True}},
                    "max_input_tokens": window,
                    "max_tokens": 64_000,
                    "lifecycle": lifecycle,
                    "deprecated_at": None if until is None else "2026-09-01T00:00:00Z",
                    "retires_at": until or None,
                    "line": None,
                }
            case "vllm":
                return {**plain, "root": name, "parent": None, "max_model_len": window, "permission": []}
            case "ollama":
                return {**plain, "owned_by": "library"}
            case "openrouter":
                return {
                    "id": name,
                    "canonical_slug": name,
                    "name": name.title(),
                    "created": _CREATED,
                    "context_length": window,
                    "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
                    "top_provider": {"context_length": window, "max_completion_tokens": None, "is_moderated": False},
                    "supported_parameters": ["max_tokens", "tools"],
                }
            case "openai":
                return {**plain, "owned_by": "system", "shutdown_date": until}
            case _:
                return plain

    def _loaded_model(self, name: str) -> dict[str, Any]:
        size = {"size": 5_137_025_024, "size_vram": 5_137_025_024, "context_length": self.windows[name]}
        return {"name": name, "model": name, "digest": "a80c4f17acd5", "expires_at": "2026-11-22T12:00:00Z", **size}

    def _unknown(self, name: str) -> Status:
        if self.kind == "openai":
            said = f"The model '{name}' does not exist or you do not have access to it."
            return Status(404, said, "invalid_request_error", "model_not_found", "model")
        if self.kind == "anthropic":
            return Status(404, f"model: {name}", "not_found_error")
        return Status(404, f"model '{name}' not found", "api_error")

    def _wrong_key(self, given: str) -> Status:
        match self.kind:
            case "anthropic":
                return Status(401, "invalid x-api-key", "authentication_error")
            case "openrouter":
                return Status(401, body='{"error":{"message":"User not found.","code":401}}')
            case "vllm":
                return Status(401, body='{"error":"Unauthorized"}')
            case _:
                said = f"Incorrect API key provided: {given[:3]}***. You can find your API key in your account."
                return Status(401, said, "invalid_request_error", "invalid_api_key")
