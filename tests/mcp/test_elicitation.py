"""Elicitations by real servers of both eras, and by scripted servers in rare cases."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bot.domain.conversations import Author
from bot.domain.elicitations import (
    CANCELLED,
    DECLINED,
    MOST_ROUNDS,
    ElicitationAction,
    ElicitationRequest,
    ElicitationResult,
    ElicitationResults,
    FormMode,
    UrlMode,
)
from bot.domain.servers import (
    CachedCapabilities,
    DesiredServer,
    Handshake,
    HttpKind,
    HttpTransport,
    Protocol,
    ServerCapabilities,
    ServerConfig,
    StdioTransport,
    SyncStatus,
    kind_of,
)
from bot.domain.tools import CallNeedsInput, ToolOutcome
from bot.errors import LostLease, ServerTrouble
from bot.examination import CheckStatus
from bot.mcp.config.checks import endpoint_fingerprint
from bot.mcp.toolbox import McpToolbox
from bot.ports import CallContext
from tests.fakes.mcp.endpoint import OK, FakeEndpoint, Message, Reaction, error, result
from tests.fakes.programs import listening, python
from tests.mcp.toolboxes import (
    ANA,
    LIMIT,
    call,
    call_with,
    error_text,
    raw,
    remote,
    running_toolbox,
    text,
    tool_by_name,
    tools_of,
    unsent_reason,
)

ROOT = Path(__file__).parents[2]
BEN = Author("console", "ben", "Ben")
THREE = ElicitationResult(ElicitationAction.ACCEPT, {"seats": 3, "where": "back"})
FORM = {"type": "object", "properties": {"sure": {"type": "boolean", "title": "Sure?", "default": True}}}
SECRET = "q7-hunter-Zk29vT4x"
ASKED: dict[str, Any] = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": FORM}}


def over_stdio(**fields: Any) -> ServerConfig:
    """Return the elicitation server as a child process."""
    return ServerConfig(
        "s", StdioTransport(python(), ("-m", "tests.fakes.mcp.elicitation_server", "stdio"), cwd=str(ROOT)), **fields
    )


@contextmanager
def serve_elicitations(transport: str) -> Iterator[str]:
    """Yield the address of the elicitation server."""
    with listening("tests.fakes.mcp.elicitation_server", transport) as (port, _):
        yield f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve_elicitations("http") as url:
        yield url


@pytest.fixture(scope="module")
def older_address() -> Iterator[str]:
    with serve_elicitations("sse") as url:
        yield url


def legacy(config: ServerConfig) -> DesiredServer:
    """Return a server with a stored handshake of the protocol before 2026."""
    handshake = Handshake(kind_of(config.transport), endpoint_fingerprint(config), time.time())
    return DesiredServer(
        config, synced=CachedCapabilities(SyncStatus.SYNCED, ServerCapabilities(handshake=handshake), 1.0)
    )


Servers = Callable[..., ServerConfig]


@pytest.fixture(params=["stdio", "http"])
def config(request: pytest.FixtureRequest, address: str) -> Servers:
    """Return the elicitation server, over each transport of both eras."""
    if request.param == "stdio":
        return over_stdio
    return lambda **fields: remote("s", address, **fields)


class Person:
    """A user who gives every elicitation the same reply. `asked` holds the elicitations."""

    def __init__(self, reply: ElicitationResult, author: Author = ANA, turn: str = "t1", thinks: float = 0.0) -> None:
        self.reply = reply
        self.asked: list[ElicitationRequest] = []
        self.context = CallContext(author, f"{turn}:1", elicit=self.elicit)
        self._thinks = thinks

    async def elicit(self, question: ElicitationRequest) -> ElicitationResult:
        self.asked.append(question)
        await asyncio.sleep(self._thinks)
        return self.reply


def asks(outcome: ToolOutcome) -> CallNeedsInput:
    assert isinstance(outcome, CallNeedsInput), outcome
    return outcome


@asynccontextmanager
async def ready(entry: ServerConfig | DesiredServer) -> AsyncIterator[McpToolbox]:
    """Yield a toolbox that has connected the server, so that all of its tools can be called."""
    async with running_toolbox(entry) as box:
        await box.connect("file:s")
        assert tools_of(box)
        yield box


def reply_context(asked: CallNeedsInput, reply: ElicitationResult) -> CallContext:
    """Return the context of the repeated call, with the same reply to all elicitations."""
    return CallContext(
        ANA, "t1:1", replies=ElicitationResults({question.key: reply for question in asked.questions}, asked.state)
    )


# since 2026


async def test_a_server_that_asks_back_is_told_the_answer_when_the_call_is_sent_again(config: Servers) -> None:
    async with ready(config()) as box:
        tool = tool_by_name(box, "book")
        asked = asks(await call_with(tool, box, CallContext(ANA, "t1:1"), day="Friday"))
        (question,) = asked.questions
        assert question.message == "How many seats on Friday?"
        assert isinstance(question.ask, FormMode)
        assert question.ask.schema["properties"]["seats"]["default"] == 2
        assert asked.state
        assert asked.state not in repr(asked)
        booked = text(await call_with(tool, box, reply_context(asked, THREE), day="Friday"))
    assert json.loads(booked.removeprefix("Friday: "))["data"] == {"seats": 3, "where": "back"}


@pytest.mark.parametrize("reply", [DECLINED, CANCELLED])
async def test_a_person_may_decline_or_choose_nothing(address: str, reply: ElicitationResult) -> None:
    async with ready(remote("s", address)) as box:
        tool = tool_by_name(box, "book")
        asked = asks(await call_with(tool, box, CallContext(ANA, "t1:1"), day="Friday"))
        said = text(await call_with(tool, box, reply_context(asked, reply), day="Friday"))
    assert json.loads(said.removeprefix("Friday: "))["action"] == reply.action


async def test_the_answer_may_come_after_a_restart(address: str) -> None:
    async with ready(remote("s", address)) as box:
        asked = asks(await call_with(tool_by_name(box, "book"), box, CallContext(ANA, "t1:1"), day="Friday"))
    async with ready(remote("s", address)) as box:
        assert '"seats":3' in text(
            await call_with(tool_by_name(box, "book"), box, reply_context(asked, THREE), day="Friday")
        )


async def outcomes(
    *answers: Mapping[str, Any], secret: str = "", replies: ElicitationResults | None = None
) -> tuple[ToolOutcome, list[Message]]:
    """Return the outcome of a call and its requests, when the server answers like this in turn, the last repeatedly."""
    async with FakeEndpoint() as endpoint:
        endpoint.speak_modern("t")

        def answer(message: Message) -> Reaction:
            n = endpoint.methods().count("tools/call")
            return result(message, dict(answers[min(n, len(answers)) - 1]))

        endpoint.on["tools/call"] = answer
        async with ready(DesiredServer(remote("s", endpoint.url), secrets=frozenset([secret]))) as box:
            outcome = await call_with(
                tool_by_name(box, "t"), box, CallContext(ANA, "t1:1", replies=replies), day="Friday"
            )
        return outcome, [message for _, message in endpoint.seen if message.get("method") == "tools/call"]


def input_request(*requests: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"resultType": "input_required", "inputRequests": {f"q{n}": each for n, each in enumerate(requests)}, **more}


async def test_the_servers_own_words_go_back_as_they_came_with_another_id() -> None:
    state = '{"where": "step 2",  "n": 1.0} \u200b'
    first, (sent,) = await outcomes(input_request(ASKED, requestState=state))
    assert asks(first).state == state
    _, (again,) = await outcomes(
        OK, replies=ElicitationResults({"q0": ElicitationResult(ElicitationAction.ACCEPT, {"sure": False})}, state)
    )
    assert again["params"]["requestState"] == state
    assert again["params"]["inputResponses"] == {"q0": {"action": "accept", "content": {"sure": False}}}
    assert again["params"]["arguments"] == sent["params"]["arguments"] == {"day": "Friday"}
    assert "inputResponses" not in sent["params"]
    assert "requestState" not in sent["params"]


async def test_a_server_that_gave_no_words_of_its_own_gets_none() -> None:
    first, _ = await outcomes(input_request(ASKED))
    assert asks(first).state is None
    _, (again,) = await outcomes(OK, replies=ElicitationResults({"q0": DECLINED}))
    assert "requestState" not in again["params"]
    assert again["params"]["inputResponses"] == {"q0": {"action": "decline"}}


async def test_a_server_that_wants_only_its_own_words_back_gets_them_at_once() -> None:
    outcome, sent = await outcomes({"resultType": "input_required", "requestState": "busy"}, OK)
    assert text(outcome) == "ok"
    assert [message["params"].get("requestState") for message in sent] == [None, "busy"]
    assert len({message["id"] for message in sent}) == 2


async def test_a_server_that_wants_them_for_ever_does_not_get_them_for_ever() -> None:
    outcome, sent = await outcomes({"resultType": "input_required", "requestState": "busy"})
    assert error_text(outcome) == "Server s asks for the same call again and again, and for nothing else."
    assert len(sent) == MOST_ROUNDS + 1


async def test_a_page_may_be_asked_for_and_a_question_without_a_mode_is_a_form() -> None:
    page = {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Sign", "url": "https://sign.example.com/1"},
    }
    outcome, _ = await outcomes(input_request(ASKED, page))
    form, link = asks(outcome).questions
    assert form == ElicitationRequest("q0", "Sure?", FormMode(FORM))
    assert link == ElicitationRequest("q1", "Sign", UrlMode("https://sign.example.com/1"))


def form(field: Any, message: str = "?") -> dict[str, Any]:
    schema = {"type": "object", "properties": {"f": field}}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def page(url: str) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": url}}


@pytest.mark.parametrize(
    ("requests", "what"),
    [
        ([ASKED] * 11, "11 answers at once"),
        ([form({"type": "string", "description": "x" * 33_000})], "more than 32768 characters"),
        ([form({"type": "string", "x": json.loads("[" * 70 + "]" * 70)})], "nested deeper than 64 levels"),
        ([form({"type": "object", "properties": {}})], "no texts, numbers, switches or choices"),
        ([form({"type": "array", "items": {"type": "string"}})], "no texts, numbers, switches or choices"),
        ([form({"type": "string", "enum": [{"a": 1}]})], "no texts, numbers, switches or choices"),
        ([form({"oneOf": [{"const": ["a"], "title": "A"}]})], "no texts, numbers, switches or choices"),
        ([form("text")], "no texts, numbers, switches or choices"),
        ([page("https://a.example.com/" + "x" * 2_000)], "more than 2000 characters"),
        ([page(f"https://a.example.com/?t={SECRET}")], "an address that contains a secret"),
        ([form({"type": "string", "enum": [SECRET, "b"]})], "contains a secret of the server"),
        ([form({"type": "string", "description": f"not {SECRET}"})], "contains a secret of the server"),
    ],
)
async def test_a_question_that_cannot_be_shown_is_refused(requests: list[dict[str, Any]], what: str) -> None:
    outcome, _ = await outcomes(input_request(*requests), secret=SECRET)
    assert what in error_text(outcome)


async def test_a_question_is_shown_without_hidden_characters_and_secrets() -> None:
    field = {
        "type": "string",
        "title": "Pick\u200b one",
        "enum": ["a", "b"],
        "enumNames": ["A\u202e", "B"],
        "default": "b",
    }
    outcome, _ = await outcomes(input_request(form(field, f"Say\u202e {SECRET} {'x' * 3_000}")), secret=SECRET)
    (question,) = asks(outcome).questions
    assert question.message.startswith("Say *** xxx")
    assert len(question.message) == 2_000
    assert isinstance(question.ask, FormMode)
    shown = question.ask.schema["properties"]["f"]
    assert shown == {"type": "string", "title": "Pick one", "enum": ["a", "b"], "enumNames": ["A", "B"], "default": "b"}


async def test_no_user_is_asked_during_a_read_of_a_resource(endpoint: FakeEndpoint) -> None:
    endpoint.speak_modern("t")
    endpoint.on["resources/read"] = lambda m: result(m, input_request(ASKED))
    async with ready(remote("s", endpoint.url)) as box:
        with pytest.raises(ServerTrouble, match="only when they call a tool"):
            await box.read_resource("file:s", "note://plan")


# before 2026


@pytest.fixture(params=["stdio", "http", "sse"])
def older(request: pytest.FixtureRequest, address: str, older_address: str) -> Callable[..., DesiredServer]:
    """Return the elicitation server, over each transport of the era before 2026."""

    def entry(**fields: Any) -> DesiredServer:
        match request.param:
            case "stdio":
                return legacy(over_stdio(**fields))
            case "http":
                return legacy(remote("s", address, **fields))
            case _:
                transport = HttpTransport(older_address, kind=HttpKind.SSE)
                return legacy(ServerConfig("s", transport, **fields))

    return entry


Older = Callable[..., DesiredServer]


async def test_the_asker_of_a_call_is_asked_while_it_runs(older: Older) -> None:
    person = Person(THREE)
    async with ready(older()) as box:
        assert box.servers()[0].protocol == "2025-11-25"
        answer = json.loads(text(await call_with(tool_by_name(box, "ask"), box, person.context, message="How many?")))
    assert answer["data"] == {"seats": 3, "where": "back"}
    (question,) = person.asked
    assert question.message == "How many?"
    assert isinstance(question.ask, FormMode)
    assert question.ask.schema["properties"]["where"]["enum"] == ["front", "back"]


async def test_a_page_may_be_asked_for_in_the_middle_of_a_call(older: Older) -> None:
    person = Person(ElicitationResult(ElicitationAction.ACCEPT))
    async with ready(older()) as box:
        said = text(await call_with(tool_by_name(box, "visit"), box, person.context, url="https://sign.example.com/1"))
    assert said == "accept"
    assert [each.ask for each in person.asked] == [UrlMode("https://sign.example.com/1")]


async def test_a_person_may_think_for_longer_than_the_call_may_take(address: str) -> None:
    person = Person(THREE, thinks=1.2)
    async with ready(legacy(remote("s", address, tool_timeout=1.0, tool_timeout_max=1.0))) as box:
        answer = json.loads(text(await call_with(tool_by_name(box, "ask"), box, person.context, message="?")))
    assert answer["action"] == "accept"


async def test_a_call_that_ends_while_a_person_thinks_asks_them_no_more(older: Older) -> None:
    begun, withdrawn = asyncio.Event(), asyncio.Event()

    async def elicit(_question: ElicitationRequest) -> ElicitationResult:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return CANCELLED

    async with ready(older()) as box:
        context = CallContext(ANA, "t1:1", elicit=elicit)
        calling = asyncio.create_task(call_with(tool_by_name(box, "ask"), box, context, message="?"))
        async with asyncio.timeout(LIMIT):
            await begun.wait()
            calling.cancel()
            await withdrawn.wait()
        # The connection is as good as before.
        assert "accept" in text(await call_with(tool_by_name(box, "ask"), box, Person(THREE).context, message="?"))


async def test_if_asking_fails_the_server_gets_a_cancellation(older: Older) -> None:
    async def elicit(_question: ElicitationRequest) -> ElicitationResult:
        raise LostLease("another process has it")

    async with ready(older()) as box:
        context = CallContext(ANA, "t1:1", elicit=elicit)
        answer = json.loads(text(await call_with(tool_by_name(box, "ask"), box, context, message="?")))
    assert answer["action"] == "cancel"


async def test_over_http_each_of_two_people_is_asked_about_their_own_call(address: str) -> None:
    people = [Person(THREE, ANA, "t1", thinks=0.3), Person(DECLINED, BEN, "t2", thinks=0.3)]
    async with ready(legacy(remote("s", address))) as box:
        tool = tool_by_name(box, "ask")
        answers = await asyncio.gather(
            *(call_with(tool, box, user.context, message=user.context.author.id) for user in people)
        )
    assert [json.loads(text(answer))["action"] for answer in answers] == ["accept", "decline"]
    assert [[question.message for question in user.asked] for user in people] == [["ana"], ["ben"]]


async def test_over_a_pipe_ambiguous_questions_are_refused_and_calls_run_one_at_a_time() -> None:
    people = [Person(THREE, ANA, "t1"), Person(THREE, BEN, "t2")]
    async with ready(legacy(over_stdio(tool_timeout=5.0))) as box:
        tool = tool_by_name(box, "ask")

        async def both() -> list[str]:
            calls = (call_with(tool, box, user.context, message=user.context.author.id, pause=0.2) for user in people)
            return [json.loads(text(each))["action"] for each in await asyncio.gather(*calls)]

        first = await both()
        assert "cancel" in first
        for person in people:
            # Each user is asked about their own call only.
            assert {question.message for question in person.asked} <= {person.context.author.id}
        assert await both() == ["accept", "accept"]
        assert [[question.message for question in user.asked][-1] for user in people] == ["ana", "ben"]
        async with asyncio.timeout(LIMIT):
            thinking = asyncio.Event()

            async def elicit(_question: ElicitationRequest) -> ElicitationResult:
                thinking.set()
                return await Person(THREE, thinks=0.5).elicit(_question)

            slow = asyncio.create_task(call_with(tool, box, CallContext(ANA, "t3:1", elicit=elicit), message="?"))
            await thinking.wait()
            late = CallContext(BEN, "t4:1", deadline=0.1)
            assert (
                unsent_reason(await call_with(tool, box, late, message="?"))
                == "Server s is busy: a call to it is under way."
            )
            await slow


async def test_one_call_may_ask_twice_at_once(older: Older) -> None:
    person = Person(THREE, thinks=0.05)
    async with ready(older()) as box:
        assert text(await call_with(tool_by_name(box, "together"), box, person.context)) == "accept,accept"


async def test_answers_are_not_in_the_log(address: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    contents: list[dict[str, Any]] = [{"seats": 8_713_355}, {"seats": ["8713355"]}, {"seats": {"n": 8_713_355}}]
    for servers in (remote("s", address), legacy(remote("s", address))):
        async with ready(servers) as box:
            for content in contents:
                reply = ElicitationResult(ElicitationAction.ACCEPT, content)
                asked = await call_with(tool_by_name(box, "book"), box, Person(reply).context, day="Friday")
                if isinstance(asked, CallNeedsInput):
                    await call_with(tool_by_name(box, "book"), box, reply_context(asked, reply), day="Friday")
    ours = [record for record in caplog.records if record.name.startswith("bot.")]
    assert [each.getMessage() for each in ours if "8713355" in each.getMessage()] == []
    assert any(each.name.startswith("bot.mcp.toolbox.mcp") for each in ours)


async def test_a_server_without_mcp_asks_nothing_back(endpoint: FakeEndpoint) -> None:
    endpoint.on["orders/list"] = lambda m: result(m, input_request(ASKED, requestState="x"))
    config = ServerConfig("s", HttpTransport(endpoint.url, kind=HttpKind.JSONRPC))
    async with ready(config) as box:
        (tool,) = tools_of(box)
        said = text(await call_with(tool, box, Person(THREE).context, method="orders/list"))
    assert json.loads(said)["requestState"] == "x"


# pages that must be visited first


async def test_a_page_that_must_be_visited_first_is_asked_for_and_then_the_call_is_made_again() -> None:
    async with ready(legacy(over_stdio())) as box:
        tool = tool_by_name(box, "pay")
        asked = asks(await call_with(tool, box, CallContext(ANA, "t1:1")))
        assert asked == CallNeedsInput(
            (ElicitationRequest("pay-1", "Pay first.", UrlMode("https://pay.example.com/1")),)
        )
        assert (
            text(await call_with(tool, box, reply_context(asked, ElicitationResult(ElicitationAction.ACCEPT))))
            == "paid, call 2"
        )


@pytest.mark.parametrize(("reply", "did"), [(DECLINED, "declined to"), (CANCELLED, "did not")])
async def test_a_call_whose_page_was_not_visited_is_not_sent(
    endpoint: FakeEndpoint, reply: ElicitationResult, did: str
) -> None:
    endpoint.speak_legacy("t")
    async with ready(remote("s", endpoint.url)) as box:
        context = CallContext(ANA, "t1:1", replies=ElicitationResults({"pay-1": reply}))
        said = error_text(await call_with(tool_by_name(box, "t"), box, context))
    assert said == f"Server s wants the person to visit a page first, and they {did}. Nothing was done."
    assert "tools/call" not in endpoint.methods()


@pytest.mark.parametrize(
    "data",
    [None, {}, {"elicitations": []}, {"elicitations": [{"mode": "url"}]}, {"elicitations": "https://pay.example.com"}],
)
async def test_a_server_that_wants_a_page_visited_and_does_not_say_which_has_failed(
    endpoint: FakeEndpoint, data: Any
) -> None:
    endpoint.speak_legacy("t")
    endpoint.on["tools/call"] = lambda m: error(m, -32042, "Visit it", data)
    async with ready(remote("s", endpoint.url)) as box:
        assert "Visit it" in error_text(await call_with(tool_by_name(box, "t"), box, CallContext(ANA, "t1:1")))


async def test_pages_that_have_one_name_or_none_are_told_apart(endpoint: FakeEndpoint) -> None:
    pages = [
        {"mode": "url", "message": "?", "url": f"https://pay.example.com/{n}", "elicitationId": "p"} for n in (1, 2)
    ]
    endpoint.speak_legacy("t")
    endpoint.on["tools/call"] = lambda m: error(m, -32042, "Visit it", {"elicitations": pages})
    async with ready(remote("s", endpoint.url)) as box:
        asked = asks(await call_with(tool_by_name(box, "t"), box, CallContext(ANA, "t1:1")))
    assert [question.key for question in asked.questions] == ["1", "2"]


async def test_both_kinds_of_questions_are_declared_and_nothing_else(endpoint: FakeEndpoint) -> None:
    endpoint.speak_legacy("t")
    async with ready(remote("s", endpoint.url)):
        pass
    hello = next(message for _, message in endpoint.seen if message["method"] == "initialize")
    assert hello["params"]["capabilities"] == {"elicitation": {"form": {}, "url": {}}}


async def test_a_server_that_can_only_ask_in_the_older_way_says_so_to_the_doctor_and_asks_with_a_set_protocol(
    config: Servers,
) -> None:
    person = Person(THREE)
    async with ready(config()) as box:
        assert "no back-channel" in error_text(
            await call_with(tool_by_name(box, "ask"), box, person.context, message="?")
        )
        [check] = [check async for check in box.diagnose("file:s") if check.name == "questions"]
    assert check.finding is CheckStatus.DOUBTFUL
    assert check.detail == "It tried to ask a user during a call in a way that MCP 2026-07-28 does not have."
    assert check.fix == "set its protocol to 2025-11-25"
    for protocol in (Protocol.V2025_11_25, Protocol.V2025_06_18):
        async with ready(config(protocol=protocol)) as box:
            answer = json.loads(text(await call_with(tool_by_name(box, "ask"), box, person.context, message="?")))
            assert answer["data"] == {"seats": 3, "where": "back"}
            assert [check async for check in box.diagnose("file:s") if check.name == "questions"] == []


async def test_a_question_that_the_newest_protocol_does_not_have_is_seen_over_a_pipe() -> None:
    listing = [[{"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}]]
    async with ready(raw(script={"listings": listing, "calls": {"t": {"do": "ask"}}})) as box:
        assert text(await call(tool_by_name(box, "t"), box)) == "done"
        checks = [check.name async for check in box.diagnose("file:s")]
    assert "questions" in checks
