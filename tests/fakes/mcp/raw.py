"""A scripted MCP server on standard input and output, run as a program: `python tests/fakes/mcp/raw.py '<script>'`.

It uses no MCP library, so that it starts fast and can send messages that no correct server sends. The script is JSON:

    era        "modern" | "legacy"
    probe      "answer" | "exit" | "silence": its reaction to `server/discover`
    listings   successive listings of its tools; each is a list of pages, each page a `tools/list` result
    calls      tool name -> {"result": ...} | {"error": ...} | {"do": "silence" | "die" | "change" | "stderr" | "pid"}
                | {"do": "environment"}: it answers with its variables, interpreter and process
                | {"do": "note", "file": ...} | {"do": "large", "characters": ..., "id": "first" | "last" | "nowhere"};
                "change" sends its `notification`, if it has one, "note" appends the argument `label` to the file, which
                is kept, and "large" answers with a text of `characters` and puts the call's id at that place
                | {"do": "hang" | "twice" | "wrong id"}: it stops answering, answers twice, or answers another call
                | {"do": "slow", "seconds": ...}: it answers after these seconds
                | {"do": "progress", "steps": ..., "seconds": ..., "ends": true}: it reports these steps, these
                seconds apart, and then answers if `ends` is true
                | {"do": "write", "line": ...}: it writes this text as a line, with the call's id for ID
                | {"do": "together", "calls": ...}: it answers this number of calls in one batch, each
                with its tool's name
                | {"do": "ask"}: it asks the user by a request, and answers without waiting for the reply
                | {"do": "foreign"}: it answers a request that the client never sent, and then this one
                | {"do": "flood", "with": "progress" | "changes" | "junk" | "stderr" | "requests", "lines": ...}: it
                writes this number of such lines and then answers
    version    the only protocol version that it supports, whichever version the client requests
    junk       true: it begins with a line that is neither JSON nor UTF-8
    deaf       true: it ignores the end of its input
    stubborn   true: it ignores the signal to end
    pids       a file to which it appends its process id when it starts
    record     a file; each message it gets is appended to it as a line of JSON
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

script: dict[str, Any] = json.loads(sys.argv[1])
listings: list[list[Any]] = script.get("listings", [[{"tools": []}]])
listing = 0
held: list[dict[str, Any]] = []
"""Answers that wait until the batch is complete."""


def say(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def hear(message: dict[str, Any]) -> None:
    """Record a message and answer it if it is a request."""
    if script.get("record"):
        with Path(script["record"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(message) + "\n")
    if "id" not in message or "method" not in message:
        return
    match message["method"]:
        case "server/discover":
            probe(message["id"])
        case "initialize":
            capabilities = {"tools": {"listChanged": True}}
            info = {"name": "raw", "version": "0.9"}
            version = script.get("version") or message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
            say({"id": message["id"], "result": result})
        case "tools/list":
            page = int(message.get("params", {}).get("cursor") or 0)
            pages = listings[min(listing, len(listings) - 1)]
            say({"id": message["id"], "result": stamped_result(pages[min(page, len(pages) - 1)])})
        case "tools/call":
            called = message["params"]
            action = script.get("calls", {}).get(called["name"], {})
            if action.get("do") in MISDEEDS:
                MISDEEDS[action["do"]](message["id"], action, called.get("_meta", {}).get("progressToken"))
            else:
                run(message["id"], action, called)
        case method:
            say({"id": message["id"], "error": {"code": -32601, "message": "Method not found", "data": method}})


def probe(request_id: Any) -> None:
    """Answer `server/discover` as scripted."""
    if script.get("probe") == "exit":
        sys.exit(1)
    if script.get("probe") == "silence":
        return
    if script.get("era") == "legacy":
        say({"id": request_id, "error": {"code": -32601, "message": "Method not found"}})
    else:
        result = {"supportedVersions": [script.get("version", "2026-07-28")], "capabilities": {"tools": {}}}
        say({"id": request_id, "result": stamped_result(result)})


def stamped_result(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with the fields of the newest protocol."""
    if script.get("era") == "legacy":
        return result
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}


def run(request_id: Any, action: dict[str, Any], called: dict[str, Any]) -> None:
    """Run the script of a tool."""
    global listing  # noqa: PLW0603  # the program is its state
    if "result" in action:
        say({"id": request_id, "result": stamped_result(action["result"])})
    elif "error" in action:
        say({"id": request_id, "error": action["error"]})
    elif action.get("do") == "pid":
        say({"id": request_id, "result": stamped_result({"content": [{"type": "text", "text": str(os.getpid())}]})})
    elif action.get("do") == "note":
        say(
            {
                "id": request_id,
                "result": stamped_result({"content": [{"type": "text", "text": record_effect(action, called)}]}),
            }
        )
    elif action.get("do") == "large":
        large(request_id, action)
    elif action.get("do") == "together":
        together(request_id, action, called["name"])
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


def together(request_id: Any, action: dict[str, Any], name: str) -> None:
    """Answer all calls in one batch when the last of them has arrived."""
    held.append({"jsonrpc": "2.0", "id": request_id, "result": {"content": [{"type": "text", "text": name}]}})
    if len(held) == action["calls"]:
        sys.stdout.write(json.dumps(held) + "\n")
        sys.stdout.flush()
        held.clear()


def large(request_id: Any, action: dict[str, Any]) -> None:
    """Answer with a long text and the id before or after the result; libraries do both."""
    result = {"result": stamped_result({"content": [{"type": "text", "text": "x" * action["characters"]}]})}
    identity = {"id": request_id}
    message = {"first": {**identity, **result}, "last": {**result, **identity}, "nowhere": result}
    say(message[action.get("id", "first")])


def hang(_id: Any, _action: dict[str, Any], _token: Any) -> None:
    """Stop reading and answering."""
    while True:
        time.sleep(60)


def answer(request_id: Any, _action: dict[str, Any] | None = None, _token: Any = None) -> None:
    """Answer with the text "done"."""
    say({"id": request_id, "result": stamped_result({"content": [{"type": "text", "text": "done"}]})})


def tell_environment(request_id: Any, _action: dict[str, Any], _token: Any) -> None:
    """Answer with the environment, the interpreter and the process id."""
    seen = {"environment": dict(os.environ), "python": sys.executable, "pid": os.getpid()}
    say({"id": request_id, "result": stamped_result({"content": [{"type": "text", "text": json.dumps(seen)}]})})


def answer_late(request_id: Any, action: dict[str, Any], _token: Any) -> None:
    """Answer after the scripted seconds."""
    time.sleep(action["seconds"])
    answer(request_id)


def write(request_id: Any, action: dict[str, Any], _token: Any) -> None:
    """Write the output of the script."""
    sys.stdout.write(action["line"].replace("ID", str(request_id)) + "\n")
    sys.stdout.flush()


def answer_foreign(request_id: Any, _action: dict[str, Any], _token: Any) -> None:
    """Answer a request that the client never sent, and then this one."""
    answer(f"no-{request_id}")
    answer(request_id)


def ask(request_id: Any, _action: dict[str, Any], _token: Any) -> None:
    """Ask the user as in the older protocol, and answer."""
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
    say({"id": "ask", "method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": schema}})
    answer(request_id)


def answer_twice(request_id: Any, _action: dict[str, Any], _token: Any) -> None:
    """Answer twice."""
    answer(request_id)
    answer(request_id)


def answer_another(request_id: Any, _action: dict[str, Any], _token: Any) -> None:
    """Answer two calls that the client never sent, but not this one."""
    for other in (int(request_id) + 1_000, f"no-{request_id}"):
        answer(other)


def progress(request_id: Any, action: dict[str, Any], token: Any) -> None:
    """Report the progress of each step; answer after the last unless `ends` is false."""
    for step in range(1, action["steps"] + 1):
        time.sleep(action["seconds"])
        say({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
    if action.get("ends", True):
        answer(request_id)


def flood(request_id: Any, action: dict[str, Any], token: Any) -> None:
    """Write many lines of the scripted kind, then answer."""
    for n in range(action["lines"]):
        match action["with"]:
            case "progress":
                say({"method": "notifications/progress", "params": {"progressToken": token, "progress": n}})
            case "changes":
                say({"method": "notifications/tools/list_changed"})
            case "junk":
                sys.stdout.write(f"DEBUG line {n}\n")
            case "stderr":
                sys.stderr.write(f"DEBUG line {n}\n")
            case "requests":
                say({"id": f"flood-{n}", "method": "ping"})
    answer(request_id)


MISDEEDS = {
    "hang": hang,
    "slow": answer_late,
    "twice": answer_twice,
    "wrong id": answer_another,
    "progress": progress,
    "flood": flood,
    "write": write,
    "foreign": answer_foreign,
    "ask": ask,
    "environment": tell_environment,
}


def record_effect(action: dict[str, Any], called: dict[str, Any]) -> str:
    """Record an effect on disk, which survives this program, and return its text."""
    arguments = called.get("arguments", {})
    with Path(action["file"]).open("a", encoding="utf-8") as file:
        file.write(f"{arguments['label']}\n")
        file.flush()
        os.fsync(file.fileno())
    return f"recorded {arguments['label']}"


if script.get("pids"):
    with Path(script["pids"]).open("a", encoding="utf-8") as pids:
        pids.write(f"{os.getpid()}\n")
if script.get("stubborn"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if script.get("junk"):
    sys.stdout.buffer.write(b"Welcome \xff\n")
for line in sys.stdin:
    hear(json.loads(line))
while script.get("deaf"):
    time.sleep(1)
