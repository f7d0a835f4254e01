"""Configuration of other agents for a gateway: the entries of their files, and a merge that keeps the rest.

A token is never part of an entry: each names the variable that has it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.app.gateway_client import TOKEN_VARIABLE, URL_VARIABLE
from bot.errors import CountersignError

_NAME = "countersign"
_MATCHER = f"Bash|PowerShell|Edit|Write|NotebookEdit|WebFetch|mcp__(?!{_NAME}__).*"
"""Tools of Claude Code with effects. Calls of our own server are judged there."""
_HOOK = "hook --wait 30m"
_HOOK_SECONDS = 1920
"""Limit of the client, above that of the hook, which then ends with a reason."""
_CALL_SECONDS = 3600
"""Limit of clients that count progress for nothing."""


@dataclass(frozen=True, slots=True)
class Addition:
    """The entries that one file of a client gets."""

    path: Path
    entries: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The entries in the syntax of the file."""
        if self.path.suffix == ".json":
            return f"{json.dumps(self.entries, indent=2)}\n"
        ((section, servers),) = self.entries.items()
        ((name, entry),) = servers.items()
        if self.path.suffix == ".yaml":
            return f"{section}:\n  {name}: {json.dumps(entry)}\n"
        return "\n".join((f"[{section}.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items()), ""))

    def write(self) -> bool:
        """Merge the entries into the file; False if it has them. The file before is kept beside it, with `.bak` at its
        name. Raises CountersignError if it cannot be read or changed with certainty.
        """
        try:
            before = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            document = self._parse(before)
            merged = _merge(document, self.entries)
            if merged == document:
                return False
            self._replace(before, self._insert(before, merged))
        except (OSError, ValueError, RecursionError) as error:
            fix = "add the entries by hand, as they are printed without --write"
            raise CountersignError(f"{self.path} is left as it is: {error}.", fix) from error
        return True

    def _parse(self, text: str) -> dict[str, Any]:
        """Return the document. Raises ValueError if the text is none of the file's syntax."""
        match self.path.suffix:
            case ".toml":
                document: Any = tomllib.loads(text)
            case ".yaml":
                import yaml  # type: ignore[import-untyped]  # noqa: PLC0415 - for one client

                try:
                    document = yaml.safe_load(text) or {}
                except yaml.YAMLError as error:
                    raise ValueError("it is not YAML") from error
            case _:
                document = json.loads(text or "{}")
        if not isinstance(document, dict):
            raise ValueError("it is not a list of settings by their names")  # noqa: TRY004 - one kind for the caller
        return document

    def _insert(self, before: str, merged: Mapping[str, Any]) -> str:
        """Return the text of the file with the entries. Only JSON, which has no comments, is written anew. Raises
        ValueError if the text would not be that of the merged document.
        """
        if self.path.suffix == ".json":
            return f"{json.dumps(merged, indent=2, ensure_ascii=False)}\n"
        section, _line, entry = self.text.partition("\n")
        head = re.search(rf"^{re.escape(section)}[ \t]*(?:#.*)?\n([ ]*)", before, re.MULTILINE)
        if head is None or self.path.suffix == ".toml":
            after = before + ("\n" if before and not before.endswith("\n") else "") + self.text
        else:
            after = f"{before[: head.start(1)]}{head[1] or '  '}{entry.lstrip()}{before[head.start(1) :]}"
        # A section of another form would be there twice.
        if self._parse(after) != merged or (head is None and section.rstrip(":") in self._parse(before)):
            raise ValueError(f"the place of {_NAME} in it is not known")
        return after

    def _replace(self, before: str, after: str) -> None:
        path = self.path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f"{path.name}.new")
        if before:
            shutil.copy2(path, path.with_name(f"{path.name}.bak"))
            shutil.copy2(path, new)  # with its rights
        new.write_text(after, encoding="utf-8")
        new.replace(path)


def _merge(document: Any, entries: Any) -> Any:
    """Return the document with the entries: objects merged, lists with what they lack, our older hooks replaced."""
    if isinstance(document, dict) and isinstance(entries, Mapping):
        return {**document, **{key: _merge(document.get(key), value) for key, value in entries.items()}}
    if isinstance(document, list) and isinstance(entries, list):
        return [*(item for item in document if item not in entries and not _is_our_hook(item)), *entries]
    return entries


def _is_our_hook(item: Any) -> bool:
    match item:
        case {"hooks": [{"command": str(command)}]}:
            return re.search(rf"({_NAME}|-m bot) hook\b", command) is not None
        case _:
            return False


def _claude_code(url: str, variable: str) -> tuple[Addition, ...]:
    command = f"{_NAME if shutil.which(_NAME) else shlex.join((sys.executable, '-m', 'bot'))} {_HOOK}"
    if variable != TOKEN_VARIABLE:
        command = f'{TOKEN_VARIABLE}="${variable}" {command}'
    hook = {"type": "command", "command": command, "timeout": _HOOK_SECONDS, "onFailure": "block"}
    settings = {"env": {URL_VARIABLE: url}, "hooks": {"PreToolUse": [{"matcher": _MATCHER, "hooks": [hook]}]}}
    return (
        Addition(Path(".mcp.json"), {"mcpServers": {_NAME: _http_server(f"{url}/mcp", variable)}}),
        Addition(Path(".claude/settings.json"), settings),
    )


def _http_server(url: str, token: str) -> dict[str, Any]:
    return {"type": "http", "url": url, "headers": {"Authorization": f"Bearer ${{{token}}}"}}


def permission_prompt(url: str, variable: str) -> str:
    """Return the command line of Claude Code that asks here for a permission instead of by the hook."""
    servers = {"mcpServers": {_NAME: _http_server(f"{url}/mcp/approvals", variable)}}
    options = f"--mcp-config {shlex.quote(json.dumps(servers))} --permission-prompt-tool mcp__{_NAME}__approve"
    return f"claude -p {options} PROMPT"


def _cursor(url: str, variable: str) -> tuple[Addition, ...]:
    server = {"url": f"{url}/mcp", "headers": {"Authorization": f"Bearer ${{env:{variable}}}"}}
    return (Addition(Path(".cursor/mcp.json"), {"mcpServers": {_NAME: server}}),)


def _vscode(url: str, _variable: str) -> tuple[Addition, ...]:
    """Return the entries of VS Code, which asks for the token once and keeps it."""
    token = {"id": f"{_NAME}-token", "type": "promptString", "description": "Token of Countersign", "password": True}
    server = _http_server(f"{url}/mcp", f"input:{token['id']}")
    return (Addition(Path(".vscode/mcp.json"), {"inputs": [token], "servers": {_NAME: server}}),)


def _goose(url: str, variable: str) -> tuple[Addition, ...]:
    extension = {
        "enabled": True,
        "type": "streamable_http",
        "name": _NAME,
        "description": "Tools with approvals",
        "uri": f"{url}/mcp",
        "env_keys": [variable],
        "headers": {"Authorization": f"Bearer ${{{variable}}}"},
        "timeout": _CALL_SECONDS,
    }
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return (Addition(folder / "goose/config.yaml", {"extensions": {_NAME: extension}}),)


def _codex(url: str, variable: str) -> tuple[Addition, ...]:
    server = {"url": f"{url}/mcp", "bearer_token_env_var": variable, "tool_timeout_sec": _CALL_SECONDS}
    folder = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    return (Addition(folder / "config.toml", {"mcp_servers": {_NAME: server}}),)


CLIENTS: Mapping[str, Callable[[str, str], tuple[Addition, ...]]] = {
    "claude-code": _claude_code,
    "cursor": _cursor,
    "vscode": _vscode,
    "goose": _goose,
    "codex": _codex,
}
"""Entries of each client, by the gateway's address and the variable of the token."""
