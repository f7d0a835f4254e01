"""A scripted MCP server on standard input and output, run as a program: `python tests/fakes/mcp_raw.py '<script>'`.

It uses no MCP library, so it starts fast and can say what a well-behaved server never would. The script is JSON:

    era        "modern" | "legacy"
    probe      "answer" | "exit" | "silence": what it does with `server/discover`
    listings   successive listings of its tools; each is a list of pages, each page a `tools/list` result
    calls      tool name -> {"result": ...} | {"error": ...} | {"do": "silence" | "die" | "change" | "stderr" | "pid"}
                | {"do": "note", "file": ...}; "change" may say which `notification` it sends, "note" appends the
                argument `label` to the file, for good
    junk       true: it begins with a line that is neither JSON nor UTF-8
    deaf       true: it ignores the end of its input
    pids       a file to which it appends its process id when it starts
    record     a file; each message it gets is appended to it as a line of JSON
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

script: dict[str, Any] = json.loads(sys.argv[1])
listings: list[list[Any]] = script.get("listings", [[{"tools": []}]])
listing = 0


def say(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def hear(message: dict[str, Any]) -> None:
    """Record a message and answer it if it is a request."""
    if script.get("record"):
        with Path(script["record"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")
    if "id" not in message:
        return
    match message["method"]:
        case "server/discover":
            probe(message["id"])
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "raw", "version": "0.9"}
            result = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
            say({"id": message["id"], "result": result})
        case "tools/list":
            page = int(message.get("params", {}).get("cursor") or 0)
            pages = listings[min(listing, len(listings) - 1)]
            say({"id": message["id"], "result": stamped(pages[min(page, len(pages) - 1)])})
        case "tools/call":
            called = message["params"]
            run(message["id"], script.get("calls", {}).get(called["name"], {}), called.get("arguments", {}))
        case method:
            say({"id": message["id"], "error": {"code": -32601, "message": "Method not found", "data": method}})


def probe(request_id: Any) -> None:
    """Answer, or not, the question which era this is."""
    if script.get("probe") == "exit":
        sys.exit(1)
    if script.get("probe") == "silence":
        return
    if script.get("era") == "legacy":
        say({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
    else:
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        say({"id": request_id, "result": stamped(result)})


def stamped(result: dict[str, Any]) -> dict[str, Any]:
    """A result with what the newest protocol wants on it."""
    if script.get("era") == "legacy":
        return result
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}


def run(request_id: Any, action: dict[str, Any], arguments: dict[str, Any]) -> None:
    """Do what the script says about a tool."""
    global listing  # noqa: PLW0603  # the program is its state
    if "result" in action:
        say({"id": request_id, "result": stamped(action["result"])})
    elif "error" in action:
        say({"id": request_id, "error": action["error"]})
    elif action.get("do") == "pid":
        say({"id": request_id, "result": stamped({"content": [{"type": "text", "text": str(os.getpid())}]})})
    elif action.get("do") == "note":
        say({"id": request_id, "result": stamped({"content": [{"type": "text", "text": noted(action, arguments)}]})})
    elif action.get("do") == "die":
        os._exit(1)
    elif action.get("do") == "change":
        listing += 1
        say({"method": action.get("notification", "notifications/tools/list_changed")})
        say({"id": request_id, "result": {"content": []}})
    elif action.get("do") == "stderr":
        sys.stderr.write("x" * 10_000 + "\nthe last line\n")
        sys.stderr.flush()
        os._exit(1)


def noted(action: dict[str, Any], arguments: dict[str, Any]) -> str:
    """Do something that can be counted afterwards, whatever happens to this program; what it says of it."""
    with Path(action["file"]).open("a", encoding="utf-8") as file:
        file.write(f"{arguments['label']}\n")
        file.flush()
        os.fsync(file.fileno())
    return f"recorded {arguments['label']}"


if script.get("pids"):
    with Path(script["pids"]).open("a", encoding="utf-8") as pids:
        pids.write(f"{os.getpid()}\n")
if script.get("junk"):
    sys.stdout.buffer.write(b"Welcome \xff\n")
for line in sys.stdin:
    hear(json.loads(line))
while script.get("deaf"):
    time.sleep(1)
