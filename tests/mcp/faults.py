"""Faults of MCP servers, one row each: the outcome of a call with its exact text, and the state of the server
afterwards.

`test_faults` checks the rows against the toolbox. The servers are in `faulty_servers`.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from bot.domain.servers import ServerStatus
from bot.domain.tools import CallNotSent, CallOutcomeUnknown, CallReturned, ToolOutcome
from bot.mcp.errors import LARGEST_ANSWER
from tests.fakes.mcp.endpoint import Answer, Endless, HangUp, Silence, error, result
from tests.mcp.faulty_servers import (
    BOTH,
    DONE,
    SOUND,
    Serving,
    busy,
    endpoint,
    forgetful,
    mute,
    nested_schema,
    offering,
    open_dying_endpoint,
    process,
    refusing,
    says,
    stream,
    tool_definition,
    writing,
)


class Afterwards(Enum):
    """State of a server after the call."""

    KEPT = "on the connection that it was on"
    ANEW = "on another connection"
    AWAY = "nowhere"
    PAUSED = "on the connection that it was on, and left alone for a minute"


@dataclass(frozen=True, slots=True)
class Fault:
    """A faulty server, called `bad`, and the outcome of a call of its tool `badly`.

    `offers` are its tools. `left_out` is the doctor's problem with them, empty if it has none. `deadline` is the
    timeout of the call in seconds, for faults of timing. `sent` counts the calls that the server receives.
    """

    name: str
    served: Serving
    words: str = DONE
    kind: type[ToolOutcome] = CallReturned
    afterwards: Afterwards = Afterwards.KEPT
    offers: tuple[str, ...] = ("badly", "well")
    left_out: str = ""
    deadline: float | None = None
    sent: int = 1


def unknown(name: str, served: Serving, words: str, **fields: Any) -> Fault:
    """Return a fault after which the outcome of the call is unknown."""
    return Fault(name, served, words, CallOutcomeUnknown, **fields)


@dataclass(frozen=True, slots=True)
class Useless:
    """A server with a fault that makes it unusable, its status, and the text of its problem."""

    name: str
    served: Serving
    status: ServerStatus
    words: str


NOW, LATER = "Thu, 26 Nov 2026 10:00:00 GMT", "Thu, 26 Nov 2026 10:01:30 GMT"
NO_SESSION = "Bad Request: No valid session ID provided"
NOT_INITIALIZED = "Bad Request: Server not initialized"
UNKNOWN = "Session not found"
ANEW, AWAY, PAUSED = Afterwards.ANEW, Afterwards.AWAY, Afterwards.PAUSED


JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
HTML = Answer(200, b"<h1>Hello</h1>", {"content-type": "text/html"})
ELSEWHERE = Answer(307, b"", {"location": "http://127.0.0.1:9/"})
BOMB = Answer(200, gzip.compress(b" " * (2 * LARGEST_ANSWER)), {"content-encoding": "gzip"})
CUT_EVENT = Answer(200, b"data: {", {"content-type": "text/event-stream", "content-length": "1000"})
NO_EVENT = Answer(200, b": nothing\n\n", {"content-type": "text/event-stream"})
A_CALL_TO_A_MODEL = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}
ASKS = {"resultType": "input_required", "requestState": "s", "inputRequests": {"q": A_CALL_TO_A_MODEL}}
TELEPATHY = {**SOUND, "resultType": "telepathy"}
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}

LOST_SESSIONS = {
    "404": Answer(404),
    "410": Answer(410),
    "400 as the TypeScript SDK's examples": Answer(
        400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": NO_SESSION}}
    ),
    "400 with -32001": Answer(400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": UNKNOWN}}),
    "400 of a server that has restarted": Answer(
        400, {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": NOT_INITIALIZED}}
    ),
    "400 with a text": Answer(400, b"Invalid or missing session ID", {"content-type": "text/plain"}),
    "400 with another JSON": Answer(400, {"error": "Session not found"}),
}
LATE = "Server bad did not answer within 0.5 s."
LOST = "The connection to server bad was lost before it answered."
BROKE = "The connection to server bad broke before it answered: "
UNREADABLE = "The call was sent to server bad, but its answer could not be read."
SAMPLING = "Server bad asks for a text by the language model (sampling), which is switched off here."
FAILED = "Error calling MCP server: "
REFUSED = f"{FAILED}MCP server request failed: "
GONE = BROKE + "the server closed the connection."
HEADERS = " Fix: check the headers of server bad."
URL = " Fix: check the url of server bad, and that its transport is the right one."
MAY_HAVE_ARRIVED = "MCP server request failed: 500 Internal Server Error. The call may have arrived."
NOT_IN_MCP = "Server bad took the call, but did not answer in MCP. The call may have run."
NOT_MCP = "Fix: check that it is an MCP server."
ANOTHER_ADDRESS = (
    f"{FAILED}Redirect to http://127.0.0.1:9/ not followed; use that URL as the endpoint if it is the intended server"
)

ANSWERED = '{"jsonrpc":"2.0","id":ID,'
CONTENT = '"content":[{"type":"text","text":"done"}]'
RESULT = f'"result":{{{CONTENT}}}'
VERY_DEEP = '{"properties":{"a":' * 3_000 + "{}" + "}}" * 3_000
DEEP = "[" * 3_000 + "]" * 3_000
NULL = "Server bad answered, but the result in its answer is null."
NO_OBJECT = "Server bad answered, but the result in its answer is no object."
NO_RESULT = "Server bad answered, but its answer has neither a result nor an error."
NO_ID = "Server bad answered, but its answer does not say which request it is for."
NO_JSON = "Server bad answered, but its answer is not JSON."
TOO_DEEP = "Server bad answered, but its answer is nested too deeply."
ANOTHER = "Server bad answered, but its answer is for another request."
NOT_RPC = "Server bad answered, but its answer is not JSON-RPC 2.0."

TOOLS = [
    Fault("ok", process()),
    Fault("badtool", process(tools=[{"inputSchema": {}}, 5, *BOTH]), left_out="2 without a name"),
    Fault("nullschema", process(tools=[tool_definition("badly", inputSchema=None), tool_definition("well")])),
    Fault("notype", process(tools=[tool_definition("badly", inputSchema={"properties": {}}), tool_definition("well")])),
    Fault(
        "outschema",
        process(
            says(structuredContent={"n": "x"}), [tool_definition("badly", outputSchema=NUMBER), tool_definition("well")]
        ),
        '{"n": "x"}\n(This does not fit what the tool says it returns: n: "x" is not of type "integer".)',
    ),
    Fault(
        "outschema_notype", process(tools=[tool_definition("badly", outputSchema={"n": 1}), tool_definition("well")])
    ),
    Fault("badannot", process(tools=[tool_definition("badly", annotations={"readOnlyHint": "yes"}), *BOTH[1:]])),
    Fault("dup", process(tools=[*BOTH, tool_definition("badly", description="B")]), left_out="a second bad__badly"),
    Fault(
        "weirdname",
        process(tools=[*BOTH, tool_definition("w\u00eb\u0456rd name!"), tool_definition("x" * 200)]),
        offers=("badly", "well", "w\u00eb\u0456rd name!", "x" * 200),
    ),
    Fault(
        "loopcursor",
        process(listings=[[{"tools": BOTH, "nextCursor": "0"}]]),
        left_out="a second bad__badly, a second bad__well",
    ),
    Fault(
        "deep schema",
        process(tools=[tool_definition("deep", inputSchema=nested_schema(400)), *BOTH]),
        left_out="deep: its arguments are nested too deeply",
    ),
    Fault(
        "very deep schema, HTTP",
        offering(f'[{{"name":"deep","inputSchema":{VERY_DEEP}}},{{"name":"badly"}},{{"name":"well"}}]'),
        left_out="deep: its arguments are nested too deeply",
    ),
    Fault("deep output schema", process(tools=[tool_definition("badly", outputSchema=nested_schema(400)), *BOTH[1:]])),
    Fault(
        "listchanged",
        process(
            {"do": "change"}, era="legacy", listings=[[{"tools": BOTH}], [{"tools": [*BOTH, tool_definition("new")]}]]
        ),
        "",
        left_out="1 not offered, because no admin has reviewed it yet",
    ),
]

ANSWERS = [
    Fault("unknowncontent", process(says({"type": "hologram"})), "[Unsupported content: hologram]"),
    Fault("noContent", process({"result": {}}), ""),
    unknown("no sense", process({"result": {"resultType": 5}}), UNREADABLE),
    unknown("unknown resultType", process({"result": TELEPATHY}), UNREADABLE),
    Fault("input_required", process({"result": ASKS}), SAMPLING),
    Fault("protocol error", process({"error": {"code": -32603, "message": "No disk"}}), FAILED + "No disk"),
    unknown("wrongid", process({"do": "wrong id"}), LATE, deadline=0.5),
    Fault("twice", process({"do": "twice"})),
    Fault("progress", process({"do": "progress", "steps": 3, "seconds": 0.01})),
    unknown(
        "progress for ever",
        process({"do": "progress", "steps": 10_000, "seconds": 0.02}),
        LATE,
        afterwards=ANEW,
        deadline=0.5,
    ),
    Fault("flood of progress", process({"do": "flood", "with": "progress", "lines": 2_000})),
    Fault("flood of changes", process({"do": "flood", "with": "changes", "lines": 2_000})),
    Fault("flood of requests", process({"do": "flood", "with": "requests", "lines": 1_000})),
    Fault("flood of log", process({"do": "flood", "with": "stderr", "lines": 20_000})),
    Fault("flood of junk", process({"do": "flood", "with": "junk", "lines": 5_000})),
    Fault("junk", process(junk=True)),
    unknown(
        "huge",
        process({"do": "large", "characters": LARGEST_ANSWER + 1}),
        "Server bad answered, but its answer has more than 8 MB.",
    ),
    unknown(
        "huge, to nobody",
        process({"do": "large", "characters": LARGEST_ANSWER + 1, "id": "nowhere"}),
        LOST,
        afterwards=ANEW,
    ),
]

LIVES = [
    Fault("slow", process({"do": "slow", "seconds": 0.3})),
    unknown("silence", process({"do": "silence"}), LATE, deadline=0.5),
    unknown("hang", process({"do": "hang"}), LATE, afterwards=ANEW, deadline=0.5),
    unknown("die", process({"do": "die"}), LOST, afterwards=ANEW),
    unknown("die with many words", process({"do": "stderr"}), LOST, afterwards=ANEW),
    Fault("stubborn", process(stubborn=True, deaf=True)),
    Fault("exit_on_probe", process(era="legacy", probe="exit")),
    Fault("silent_probe", process(era="legacy", probe="silence", connect_timeout=2.0)),
]

STATUSES = [
    Fault("HTTP 400", endpoint(Answer(400)), f"{REFUSED}400 Bad Request"),
    Fault("HTTP 401", endpoint(Answer(401)), f"{REFUSED}401 Unauthorized.{HEADERS}"),
    Fault("HTTP 403", endpoint(Answer(403)), f"{REFUSED}403 Forbidden.{HEADERS}"),
    Fault("HTTP 404", endpoint(Answer(404)), f"{REFUSED}404 Not Found.{URL}"),
    Fault("HTTP 405", endpoint(Answer(405)), f"{REFUSED}405 Method Not Allowed.{URL}"),
    Fault("HTTP 409", endpoint(Answer(409)), f"{REFUSED}409 Conflict"),
    Fault("HTTP 410", endpoint(Answer(410)), f"{REFUSED}410 Gone.{URL}"),
    Fault("HTTP 429", endpoint(Answer(429)), f"{REFUSED}429 Too Many Requests"),
    Fault("HTTP 429, a short pause", busy(Answer(429, headers={"retry-after": "0"})), sent=2),
    Fault(
        "HTTP 429, a long pause",
        busy(Answer(429, headers={"retry-after": "60"})),
        f"{REFUSED}429 Too Many Requests. It asks to wait 60 s.",
        afterwards=PAUSED,
    ),
    Fault(
        "HTTP 503, a long pause",
        busy(Answer(503, headers={"retry-after": "60"})),
        f"{REFUSED}503 Service Unavailable. It asks to wait 60 s.",
        afterwards=PAUSED,
    ),
    Fault(
        "HTTP 429, an error of MCP",
        endpoint(lambda m: replace(error(m, -32000, "Slow down.", status=429), headers={"retry-after": "60"})),
        f"{FAILED}Slow down. It asks to wait 60 s.",
        afterwards=PAUSED,
    ),
    Fault(
        "HTTP 503, until a time",
        busy(Answer(503, headers={"retry-after": LATER, "date": NOW})),
        f"{REFUSED}503 Service Unavailable. It asks to wait 90 s.",
        afterwards=PAUSED,
    ),
    unknown("HTTP 500", endpoint(Answer(500)), MAY_HAVE_ARRIVED),
    unknown("HTTP 500, a page", endpoint(replace(HTML, status=500)), MAY_HAVE_ARRIVED),
    Fault("HTTP 500, an error of MCP", endpoint(lambda m: error(m, -32603, "No disk", status=500)), f"{FAILED}No disk"),
    unknown(
        "HTTP 502", endpoint(Answer(502)), "MCP server request failed: 502 Bad Gateway. The call may have arrived."
    ),
    Fault("HTTP 503", endpoint(Answer(503)), f"{REFUSED}503 Service Unavailable"),
    unknown(
        "HTTP 504", endpoint(Answer(504)), "MCP server request failed: 504 Gateway Timeout. The call may have arrived."
    ),
    Fault("HTTP redirect", endpoint(ELSEWHERE), ANOTHER_ADDRESS),
    *(
        Fault(f"HTTP session lost, {name}", forgetful(said), afterwards=ANEW, sent=2)
        for name, said in LOST_SESSIONS.items()
    ),
    Fault(
        "HTTP 400 after the effect",
        endpoint(lambda m: error(m, -32000, "Sent, but the browser session expired", status=400), legacy=True),
        f"{FAILED}Sent, but the browser session expired",
    ),
    Fault(
        "HTTP 400 about a session of the tool",
        endpoint(lambda m: error(m, -32602, "Invalid session_id for table bookings", status=400), legacy=True),
        f"{FAILED}Invalid session_id for table bookings",
    ),
    Fault(
        "HTTP session 404, always",
        endpoint(Answer(404), legacy=True),
        "Server bad has forgotten the session.",
        afterwards=ANEW,
        kind=CallNotSent,
        sent=2,
    ),
]

BODIES = [
    unknown("HTTP a page", endpoint(HTML), NOT_IN_MCP),
    unknown("HTTP a text", endpoint(Answer(200, b"ok", {"content-type": "text/plain"})), NOT_IN_MCP),
    unknown("HTTP no type", endpoint(Answer(200, b"ok", {"content-type": ""})), NOT_IN_MCP),
    unknown("HTTP 202", endpoint(Answer(202)), NOT_IN_MCP),
    unknown("HTTP 204", endpoint(Answer(204, headers={"content-type": ""})), NOT_IN_MCP),
    unknown("HTTP no JSON", endpoint(Answer(200, b"{")), NO_JSON),
    unknown("HTTP silence", endpoint(Silence()), LATE, deadline=0.5),
    unknown("HTTP hang up", endpoint(HangUp()), GONE),
    unknown(
        "HTTP cut",
        endpoint(Answer(200, {"content": []}, cut=5)),
        BROKE + "the answer broke off.",
    ),
    unknown(
        "HTTP stream cut",
        endpoint(CUT_EVENT),
        BROKE + "the answer broke off.",
    ),
    unknown("HTTP stream without the answer", endpoint(NO_EVENT), LOST),
    unknown(
        "HTTP endless header",
        endpoint(Endless(JSON + b"x-padding: ", b"x" * 65_536)),
        BROKE + "the answer is not valid HTTP.",
    ),
    unknown(
        "HTTP endless headers",
        endpoint(Endless(JSON, b"x-padding: 1\r\n" * 1000)),
        BROKE + "the answer is not valid HTTP.",
    ),
    unknown(
        "HTTP trickle", endpoint(Endless(JSON + b"content-length: 100000\r\n\r\n", b" ", 0.05)), LATE, deadline=0.5
    ),
    unknown("HTTP stream of nothing", endpoint(Endless(EVENTS + b"\r\n", b": here\n\n", 0.05)), LATE, deadline=0.5),
    unknown(
        "HTTP endless body",
        endpoint(Endless(JSON + b"\r\n", b" " * 1_048_576)),
        BROKE + "its answer has more than 8 MB.",
    ),
    unknown(
        "HTTP endless event",
        endpoint(Endless(EVENTS + b"\r\ndata: ", b"x" * 1_048_576)),
        "Server bad answered, but its answer has more than 8 MB.",
    ),
    unknown("HTTP bomb", endpoint(BOMB), BROKE + "its answer is compressed, though it was asked not to."),
    unknown("HTTP unknown resultType", endpoint(lambda m: result(m, TELEPATHY)), UNREADABLE),
    Fault("HTTP input_required", endpoint(lambda m: result(m, ASKS)), SAMPLING),
    Fault(
        "HTTP header mismatch",
        endpoint(lambda m: error(m, -32020, "Header mismatch", status=400)),
        "Server bad has changed the tool badly.",
        kind=CallNotSent,
        sent=2,
    ),
    Fault(
        "HTTP capability missing",
        endpoint(lambda m: error(m, -32021, "Missing required client capability", status=400)),
        f"{FAILED}Missing required client capability",
    ),
    unknown("HTTP killed", open_dying_endpoint, GONE, afterwards=AWAY),
    unknown("SSE cut", stream(None), LOST, afterwards=ANEW),
    unknown("SSE POST 500", stream(Answer(500)), MAY_HAVE_ARRIVED),
    unknown("SSE POST hang up", stream(HangUp()), GONE),
    unknown("SSE wrong id", stream(lambda m: result({**m, "id": 4711}, SOUND)), LATE, deadline=0.5),
]

READ: dict[str, tuple[str, str]] = {
    "a lone surrogate": (
        f'{ANSWERED}"result":{{"content":[{{"type":"text","text":"a\\ud83d b\\udc00 \\\\ud83d \\ud83d\\ude00"}}]}}}}',
        "a\ufffd b\ufffd \\ud83d \U0001f600",
    ),
    "a lone surrogate in structured content": (
        f'{ANSWERED}"result":{{{CONTENT},"structuredContent":{{"k\\udfff":["\\ud800"]}}}}}}',
        'done\n{"k\ufffd": ["\ufffd"]}',
    ),
    "a raw control character": (f'{ANSWERED}"result":{{"content":[{{"type":"text","text":"a\tb"}}]}}}}', "a\tb"),
    "a result beside a null error": (f'{ANSWERED}{RESULT},"error":null}}', DONE),
    "an error beside a null result": (
        f'{ANSWERED}"result":null,"error":{{"code":-32603,"message":"No disk"}}}}',
        FAILED + "No disk",
    ),
    "a text as the code": (
        f'{ANSWERED}"error":{{"code":"RATE_LIMITED","message":"Too many"}}}}',
        FAILED + "Too many (RATE_LIMITED)",
    ),
    "a fraction as the code": (f'{ANSWERED}"error":{{"code":4.29,"message":"Too many"}}}}', FAILED + "Too many (4.29)"),
    "data of an error": (
        f'{ANSWERED}"error":{{"code":7,"message":"Too many","data":{{"retryAfter":30,"quota":"a\\u200bb"}}}}}}',
        FAILED + 'Too many - {"retryAfter": 30, "quota": "ab"}',
    ),
    "a text as the content": (f'{ANSWERED}"result":{{"content":"done"}}}}', DONE),
    "one block as the content": (f'{ANSWERED}"result":{{"content":{{"type":"text","text":"done"}}}}}}', DONE),
    "texts as blocks": (f'{ANSWERED}"result":{{"content":["a","b"]}}}}', "a\nb"),
    "null as the content": (f'{ANSWERED}"result":{{"content":null}}}}', ""),
    "no code": (f'{ANSWERED}"error":{{"message":"Too many"}}}}', FAILED + "Too many"),
    "no message": (f'{ANSWERED}"error":{{"code":7}}}}', FAILED + "no reason given"),
    "an object as the message": (
        f'{ANSWERED}"error":{{"code":7,"message":{{"en":"Too many"}}}}}}',
        FAILED + '{"en": "Too many"}',
    ),
    "a text as the error": (f'{ANSWERED}"error":"No disk"}}', FAILED + "No disk"),
    "a fraction as the id": (f'{{"jsonrpc":"2.0","id":ID.0,{RESULT}}}', DONE),
    "a text as the id": (f'{{"jsonrpc":"2.0","id":"ID",{RESULT}}}', DONE),
    "another version": (f'{{"jsonrpc":"1.0","id":ID,{RESULT}}}', DONE),
    "a number as the version": (f'{{"jsonrpc":2.0,"id":ID,{RESULT}}}', DONE),
    "the method in the answer": (f'{ANSWERED}"method":"tools/call",{RESULT}}}', DONE),
    "a byte order mark": (f"\ufeff{ANSWERED}{RESULT}}}", DONE),
    "two messages in one": (
        f'{{"jsonrpc":"2.0","method":"notifications/message","params":{{}}}}{ANSWERED}{RESULT}}}',
        DONE,
    ),
    "words after the message": (f"{ANSWERED}{RESULT}}} in 3 ms", DONE),
    "a batch": (f'[{{"jsonrpc":"2.0","method":"notifications/message","params":{{}}}},{ANSWERED}{RESULT}}}]', DONE),
    "a batch of one": (f"[{ANSWERED}{RESULT}}}]", DONE),
    "a batch with other answers": (
        f'[{{"jsonrpc":"2.0","id":9999,{RESULT}}},7,{ANSWERED}{RESULT}}},{{"jsonrpc":"2.0","id":9998,"result":null}}]',
        DONE,
    ),
    "blanks in the id": (f'{{"jsonrpc":"2.0","id":" ID ",{RESULT}}}', DONE),
    "a text that is dumped twice": (
        '"{\\"jsonrpc\\":\\"2.0\\",\\"id\\":ID,\\"result\\":{\\"content\\":\\"done\\"}}"',
        DONE,
    ),
    "a NUL before the message": (f"\0{ANSWERED}{RESULT}}}", DONE),
    "a batch in a batch": (f"[[{ANSWERED}{RESULT}}}]]", DONE),
    "null as the resultType": (f'{ANSWERED}"result":{{{CONTENT},"resultType":null}}}}', DONE),
    "a number as _meta": (f'{ANSWERED}"result":{{{CONTENT},"_meta":5}}}}', DONE),
    "a text as isError": (f'{ANSWERED}"result":{{{CONTENT},"isError":"true"}}}}', DONE),
    "a null text": (
        f'{ANSWERED}"result":{{"content":[{{"type":"text","text":null}}]}}}}',
        "[Unsupported content: text]",
    ),
    "a null block": (f'{ANSWERED}"result":{{"content":[null]}}}}', "[Unsupported content: NoneType]"),
    "numbers that are none": (
        f'{ANSWERED}"result":{{"content":[],"structuredContent":{{"a":NaN,"b":1e999}}}}}}',
        '{"a": "NaN", "b": "Infinity"}',
    ),
    "a very long number": (
        f'{ANSWERED}"result":{{"content":[],"structuredContent":{{"a":{"9" * 5000}}}}}}}',
        f'{{"a": "{"9" * 5000}"}}',
    ),
    "as deep as can be read": (
        f'{ANSWERED}"result":{{"content":[],"structuredContent":{{"a":{"[" * 190}{"]" * 190}}}}}}}',
        f'{{"a": {"[" * 190}{"]" * 190}}}',
    ),
    "pages to visit that are none": (
        f'{ANSWERED}"error":{{"code":-32042,"message":"Pay","data":{{"elicitations":[5,null]}}}}}}',
        FAILED + 'Pay - {"elicitations": [5, null]}',
    ),
    "a list as the error": (f'{ANSWERED}"error":["a","b"]}}', FAILED + '["a", "b"]'),
    "an error and a result": (f'{ANSWERED}{RESULT},"error":{{"code":1,"message":"No disk"}}}}', FAILED + "No disk"),
    "deep data of an error": (
        f'{ANSWERED}"error":{{"code":1,"message":"No disk","data":{DEEP}}}}}',
        f"{FAILED}No disk - {'[' * 198}null{']' * 198}",
    ),
}
"""Answers that the MCP library cannot parse, and the text of the result, which is the same on every transport."""
UNREAD_ANSWERS: dict[str, tuple[str, str]] = {
    "a null result": (f'{ANSWERED}"result":null}}', NULL),
    "a text as a result": (f'{ANSWERED}"result":"done"}}', NO_OBJECT),
    "a list as a result": (f'{ANSWERED}"result":[{{{CONTENT}}}]}}', NO_OBJECT),
    "neither result nor error": (f'{ANSWERED}"resutl":{{}}}}', NO_RESULT),
    "only a null error": (f'{ANSWERED}"error":null}}', NO_RESULT),
    "questions that are none": (
        f'{ANSWERED}"result":{{"resultType":"input_required","inputRequests":[1]}}}}',
        UNREADABLE,
    ),
    "no version": (f'{{"id":ID,{RESULT}}}', NOT_RPC),
    "the words of a program that prints": (
        "{'jsonrpc': '2.0', 'id': ID, 'result': {'content': [], 'isError': False}}",
        NO_JSON,
    ),
    "a comma too many": (f'{ANSWERED}"result":{{"content":[]}},}}', NO_JSON),
    "half of the answer": (f'{ANSWERED}"result":{{"content":[', NO_JSON),
    "single quotes": (f"{ANSWERED}\"result\":{{'content':[]}}}}", NO_JSON),
    "the id behind what is no JSON": ('{"result":{"content":undefined},"jsonrpc":"2.0","id":ID}', NO_JSON),
    "deep": (f'{ANSWERED}"result":{{{CONTENT},"structuredContent":{{"deep":{DEEP}}}}}}}', TOO_DEEP),
    "deep, dumped twice": (
        f'"{{\\"jsonrpc\\":\\"2.0\\",\\"id\\":ID,\\"result\\":{{\\"a\\":{"[" * 700}{"]" * 700}}}}}"',
        TOO_DEEP,
    ),
    "deep, the id behind it": (
        f'{{"result":{{"structuredContent":{{"deep":{DEEP}}}}},"id":ID,"jsonrpc":"2.0"}}',
        TOO_DEEP,
    ),
}
"""Answers whose outcome is unknown, and the reason."""

WITHOUT_ID = {
    "no id": f'{{"jsonrpc":"2.0",{RESULT}}}',
    "null as the id": f'{{"jsonrpc":"2.0","id":null,{RESULT}}}',
    "a list as the id": f'{{"jsonrpc":"2.0","id":[ID],{RESULT}}}',
}
"""Answers without a valid id. Over streamable HTTP the request identifies the call; elsewhere it is the only waiting
call.
"""
UNREAD = '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}'
FOREIGN = {"badly": f'{{"jsonrpc":"2.0","id":4711,{RESULT}}}'}


def odd_answers(transport: str) -> dict[str, tuple[str, type[ToolOutcome], str]]:
    """Return the answers that the library cannot parse, with the outcome of a call, by their names."""
    belongs = transport in ("HTTP", "events")
    without_id = (CallReturned, DONE) if belongs else (CallOutcomeUnknown, NO_ID)
    unread = (
        (CallReturned, FAILED + "Parse error")
        if belongs
        else (CallOutcomeUnknown, f"{NO_ID.removesuffix('.')}: Parse error.")
    )
    return {
        **{name: (line, CallReturned, words) for name, (line, words) in READ.items()},
        **{name: (line, CallOutcomeUnknown, words) for name, (line, words) in UNREAD_ANSWERS.items()},
        **{name: (line, *without_id) for name, line in WITHOUT_ID.items()},
        "an error without an id": (UNREAD, *unread),
    }


OTHERS = [
    unknown("HTTP wrong id", writing(FOREIGN, "HTTP"), ANOTHER),
    unknown("HTTP wrong id in a stream", writing(FOREIGN, "events"), LOST),
    unknown("HTTP an object that is no message", endpoint(Answer(200, {"ok": True})), NOT_RPC),
    unknown("HTTP a result that is no message", endpoint(Answer(200, {"result": SOUND})), NOT_RPC),
    unknown("HTTP an empty body", endpoint(Answer(200, b"")), NO_JSON),
    Fault(
        "HTTP 400 with a text as the code",
        endpoint(Answer(400, {"jsonrpc": "2.0", "error": {"code": "E", "message": "No disk"}})),
        f"{FAILED}No disk (E)",
    ),
]

FAULTS = [*TOOLS, *ANSWERS, *LIVES, *STATUSES, *BODIES, *OTHERS]

USELESS = [
    Useless(
        "badver",
        process(version="2099-01-01"),
        ServerStatus.FAILED,
        "Server bad speaks a version of MCP that is not known here: 2099-01-01. Fix: update one of the two.",
    ),
    Useless(
        "badver, older protocol",
        process(era="legacy", version="1999-01-01"),
        ServerStatus.FAILED,
        "Server bad speaks a version of MCP that is not known here: 1999-01-01. Fix: update one of the two.",
    ),
    Useless(
        "mute",
        mute,
        ServerStatus.FAILED,
        "Server bad did not answer within 0.5 s. "
        "Fix: check that it speaks MCP on its standard output, or raise its connect_timeout.",
    ),
    Useless(
        "HTTP 401",
        refusing(Answer(401)),
        ServerStatus.AUTH_REQUIRED,
        "MCP server request failed: 401 Unauthorized. Fix: check the headers of server bad.",
    ),
    Useless(
        "HTTP 500",
        refusing(Answer(500)),
        ServerStatus.FAILED,
        "Server bad: MCP server request failed: 500 Internal Server Error. Fix: check its log.",
    ),
    Useless(
        "HTTP 503, a pause",
        refusing(Answer(503, headers={"retry-after": "60"})),
        ServerStatus.FAILED,
        "Server bad: MCP server request failed: 503 Service Unavailable. It asks to wait 60 s. Fix: check its log.",
    ),
    Useless(
        "HTTP a page",
        refusing(HTML),
        ServerStatus.FAILED,
        f"Server bad could not be used: {FAILED}Unexpected content type: text/html. {NOT_MCP}",
    ),
    Useless(
        "HTTP redirect",
        refusing(ELSEWHERE),
        ServerStatus.FAILED,
        f"Server bad could not be used: {ANOTHER_ADDRESS}. {NOT_MCP}",
    ),
]
