"""Redaction of a secret from the texts of its own server, and from the log."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bot.domain.messages import TextPart
from bot.domain.servers import DesiredServer, ServerEnablement, ServerStatus
from bot.domain.tools import CallReturned, ToolOutcome
from bot.examination import CheckStatus
from bot.mcp.config.checks import AllowedTargets
from bot.mcp.redaction import KnownSecrets, Redaction, Secret
from bot.mcp.toolbox import McpToolbox
from tests.fakes.mcp.endpoint import FakeEndpoint, Message, Reaction, error, result
from tests.mcp.toolboxes import call, raw, remote, running_toolbox, tool_by_name, until

STRONG = "Zk29vT4x-q7Lm"
OTHERS = "Wb83nR5y-p2Kd"
MASTER = "Hs64jF1c-v9Xa"


def echoing(endpoint: FakeEndpoint) -> None:
    """Script tools that echo their argument, in a schema and a result with words that may also be stored secrets."""
    schema = {"type": "object", "properties": {"project": {"type": "string"}, "text": {"type": "string"}}}
    tools = [{"name": name, "description": "About a project.", "inputSchema": schema} for name in ("create_issue", "t")]
    endpoint.speak_modern("t")
    endpoint.on["tools/list"] = lambda m: result(m, {"tools": tools})

    def answer(message: Message) -> Reaction:
        said = message["params"]["arguments"].get("text", "")
        content = [{"type": "text", "text": said}]
        return result(message, {"content": content, "structuredContent": {"project": said, STRONG[:5]: 1}})

    endpoint.on["tools/call"] = answer


def status(box: McpToolbox, server: str = "s") -> ServerStatus:
    return next(state.status for state in box.servers() if state.config.name == server)


def result_text(outcome: ToolOutcome) -> str:
    assert isinstance(outcome, CallReturned)
    return "\n".join(part.text for part in outcome.result.parts if isinstance(part, TextPart))


async def test_words_that_an_admin_stores_change_nothing_of_other_servers_nor_of_any_name() -> None:
    async with FakeEndpoint() as theirs, FakeEndpoint() as ours:
        echoing(theirs)
        echoing(ours)
        words = frozenset(("project", "create_issue", "properties"))
        evil = DesiredServer(remote("evil", theirs.url), secrets=words)
        async with running_toolbox(evil, remote("ours", ours.url)) as box:
            await until(lambda: status(box, "ours") is ServerStatus.CONNECTED)
            await until(lambda: status(box, "evil") is ServerStatus.CONNECTED)
            offered = {tool.name: tool for tool in (await box.offer()).tools}
            said = await call(offered["ours__t"], box, text="the project of create_issue")
    for name in ("ours__create_issue", "evil__create_issue"):
        assert "project" in offered[name].input_schema["properties"]
        assert offered[name].description == "About a project."
    assert "***" not in result_text(said)
    assert isinstance(said, CallReturned)
    assert said.result.structured == {"project": "the project of create_issue", STRONG[:5]: 1}


async def test_a_result_tells_nothing_of_the_secrets_of_others() -> None:
    """A result returns three thousand guesses unchanged."""
    guesses = " ".join([*(f"guess-{n}" for n in range(3_000)), MASTER, OTHERS, STRONG])
    known = KnownSecrets([MASTER])
    async with FakeEndpoint() as theirs, FakeEndpoint() as ours:
        echoing(theirs)
        echoing(ours)
        other = DesiredServer(remote("other", theirs.url), secrets=frozenset([OTHERS]))
        mine = DesiredServer(remote("mine", ours.url), secrets=frozenset([STRONG]))
        async with running_toolbox(other, mine, secrets=known) as box:
            await until(lambda: status(box, "mine") is ServerStatus.CONNECTED)
            offered = {tool.name: tool for tool in (await box.offer()).tools}
            said = result_text(await call(offered["mine__t"], box, text=guesses))
            assert known(f"{MASTER} {OTHERS} {STRONG}") == "*** *** ***"
    assert said.startswith(guesses.replace(STRONG, "***"))


async def test_an_error_of_a_server_tells_nothing_of_the_secrets_of_others(endpoint: FakeEndpoint) -> None:
    known = KnownSecrets([MASTER])
    echoing(endpoint)
    endpoint.on["tools/call"] = lambda m: error(m, -32000, f"no {MASTER} {STRONG}")
    entry = DesiredServer(remote("s", endpoint.url), secrets=frozenset([STRONG]))
    async with running_toolbox(entry, secrets=known) as box:
        await until(lambda: status(box) is ServerStatus.CONNECTED)
        assert result_text(await call(tool_by_name(box, "t"), box)) == f"Error calling MCP server: no {MASTER} ***"


async def test_a_secret_that_is_replaced_or_deleted_is_forgotten_at_once(endpoint: FakeEndpoint) -> None:
    known = KnownSecrets()
    echoing(endpoint)

    def entry(*secrets: str) -> DesiredServer:
        headers = {f"X-Key-{n}": each for n, each in enumerate(secrets)}
        return DesiredServer(remote("s", endpoint.url, headers), secrets=frozenset(secrets))

    async def echo_secrets() -> str:
        await until(lambda: status(box) is ServerStatus.CONNECTED)
        return result_text(await call(tool_by_name(box, "t"), box, text=f"{STRONG} {OTHERS}")).partition("\n")[0]

    async with running_toolbox(entry(STRONG), secrets=known) as box:
        assert await echo_secrets() == f"*** {OTHERS}"
        await box.reconcile([entry(OTHERS)])
        assert await echo_secrets() == f"{STRONG} ***"
        await until(lambda: known(STRONG) == STRONG)
        assert known(OTHERS) == "***"
        await box.reconcile([entry()])
        assert await echo_secrets() == f"{STRONG} {OTHERS}"
        await until(lambda: known(OTHERS) == OTHERS)
        await box.reconcile([entry(STRONG)])
        await box.reconcile([DesiredServer(remote("s", endpoint.url), ServerEnablement.DISABLED)])
        await until(lambda: known(STRONG) == STRONG)


async def test_a_secret_that_is_easy_to_guess_is_named_by_the_doctor_and_hidden_in_its_own_results_alone(
    endpoint: FakeEndpoint,
) -> None:
    known = KnownSecrets()
    echoing(endpoint)
    entry = DesiredServer(remote("s", endpoint.url, {"X-Key": "project"}), secrets=frozenset(["project"]))
    async with running_toolbox(entry, secrets=known) as box:
        await until(lambda: status(box) is ServerStatus.CONNECTED)
        said = await call(tool_by_name(box, "t"), box, text="a project")
        [weak] = [check async for check in box.diagnose("file:s") if check.name == "secrets"]
        assert known("the project") == "the project"
        assert not box.secret_spans("file:s", "the project")
    assert isinstance(said, CallReturned)
    assert said.result.structured == {"project": "a ***", STRONG[:5]: 1}
    assert weak.finding is CheckStatus.DOUBTFUL
    assert "header X-Key is a word" in weak.detail


async def test_a_file_or_an_address_that_a_server_is_told_is_no_secret_that_could_be_guessed() -> None:
    told = {"NOTES_FILE": "data/notes.json", "MODE": "project"}
    entry = DesiredServer(raw(env=told, script={}), secrets=frozenset(told.values()))
    async with running_toolbox(entry) as box:
        [weak] = [check async for check in box.diagnose("file:s") if check.name == "secrets"]
    assert weak.detail.startswith("Its variable MODE is a word, or a few words in a row. It is hidden")


async def test_a_plain_header_of_an_admins_server_is_no_secret_of_it(endpoint: FakeEndpoint) -> None:
    echoing(endpoint)
    plain = replace(remote("s", endpoint.url, {"X-Team": "project"}), id="id-1")
    async with running_toolbox(plain, allowances=AllowedTargets(hosts=frozenset(("127.0.0.1",)))) as box:
        await until(lambda: status(box) is ServerStatus.CONNECTED)
        tool = box.capabilities("id-1").tools[1]
        assert result_text(await call(tool, box, text="a project")).startswith("a project")
        assert not [check async for check in box.diagnose("id-1") if check.name == "secrets"]


async def test_a_card_can_ask_where_the_secrets_of_the_called_server_are(endpoint: FakeEndpoint) -> None:
    entries = (
        DesiredServer(remote("s", endpoint.url, {"Authorization": f"Bearer {STRONG}"}), secrets=frozenset([STRONG])),
        DesiredServer(remote("other", endpoint.url), secrets=frozenset([OTHERS])),
    )
    async with running_toolbox(*entries) as box:
        line = f"curl -H '{STRONG}' {OTHERS} {STRONG}"
        spans = box.secret_spans("file:s", line)
        assert not box.secret_spans("file:gone", line)
    assert [line[span.start : span.end] for span in spans] == [STRONG, STRONG]
    assert {span.label for span in spans} == {"header Authorization"}


def test_json_in_a_text_stays_json_with_its_keys() -> None:
    redact = Redaction([Secret("project"), Secret("93740281736514")])
    said = json.dumps({"project": "a project", "id": 93740281736514, "n": [1, True, None, 2.5]}, indent=1)
    assert json.loads(redact.json_text(said)) == {"project": "a ***", "id": "***", "n": [1, True, None, 2.5]}
    assert redact.json_text('{"project": 1') == '{"***": 1'
    assert redact.json_text(' {"a":  1}') == ' {"a":  1}'


@pytest.mark.parametrize(
    "around",
    [
        '{"big": 1e400, "least": -1E-400, "text": "%s"}',
        '{"not a number": NaN, "text": "%s", "endless": -Infinity}',
        '[0.12345678901234567890, 123456789012345678901234567890, 1.50, -0, "%s"]',
        '{"a" :  [ ],\n\t"\\u00e9\\/\\n\\ud83d\\ude00 \\ud800": "\\u00e9 \\ud83d\\ude00 \\ud800 %s \\/ \\"\\u007b"} ',
        '{"twice": 1, "twice": 2, "{": "}", "text": "\\\\%s\\\\"}',
        '[{"%s \\u0041": {"inner": 1}}]',
    ],
)
def test_json_in_a_text_stays_the_same_in_every_character_outside_of_the_secret(around: str) -> None:
    redact = Redaction([Secret(STRONG)])
    assert redact.json_text(around.replace("%s", STRONG)) == around.replace("%s", "***")


@pytest.mark.parametrize("secret", ['p"a\\ss/w\u00f6rd 1', "\U0001f600kT4wQ2x/9vB7"])
@pytest.mark.parametrize("slash", ["/", "\\/"])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_an_escaped_secret_in_json_leaves_nothing_of_itself(secret: str, slash: str, *, ascii_only: bool) -> None:
    literal = json.dumps(secret, ensure_ascii=ascii_only).replace("/", slash)
    assert (
        Redaction([Secret(secret)]).json_text(f'{{"a": {literal}, "b": "\\u00e9"}}') == '{"a": "***", "b": "\\u00e9"}'
    )


def test_keys_of_json_in_a_text_stay_apart_in_their_object() -> None:
    redact = Redaction([Secret(STRONG), Secret(OTHERS)])
    said = f'[{{"{STRONG}": {{"{STRONG}": 1}}, "{OTHERS}": 2}}, {{"{STRONG}": 3}}]'
    assert redact.json_text(said) == '[{"***": {"***": 1}, "*** 2": 2}, {"***": 3}]'


def test_a_key_of_a_result_is_hidden_only_for_a_strong_secret_and_none_is_lost() -> None:
    redact = Redaction([Secret("project"), Secret(STRONG)])
    value: dict[str, Any] = {"project": "x", STRONG: 1, f"x{STRONG}": 2, "***": 3}
    assert redact.json(value) == {"project": "x", "***": 1, "x***": 2, "*** 2": 3}


@pytest.mark.parametrize("text_with", ["{}", "<{}>", "a{}{}b"])
def test_secrets_that_overlap_leave_nothing_of_each_other(text_with: str) -> None:
    redact = Redaction([Secret("abcd-Zk29vT4x"), Secret("Zk29vT4x-efgh")])
    shown = redact(text_with.replace("{}", "abcd-Zk29vT4x-efgh"))
    assert shown == text_with.replace("{}", "***")


@pytest.mark.parametrize(("line", "shown"), [("Zk29vT4xq7Lm83nR", "***"), ("Zk29vT4xq7Lm83n", "Zk29vT4xq7Lm83n")])
def test_a_line_of_a_secret_of_several_lines_is_redacted_from_sixteen_characters_on(line: str, shown: str) -> None:
    redact = Redaction([Secret(f"-----BEGIN KEY-----\n{line}\nWb83nR5yp2KdHs64jF1cv9Xa\n-----END KEY-----")])
    assert redact(f"the line {line} alone") == f"the line {shown} alone"


@pytest.mark.parametrize(
    "disguised",
    [
        *("Zk2\u200b9vT4x-q7Lm", "Z\u2060k29v\u00adT4x\ufe0f-q\u202e7Lm", "Zk29v\U000e0041T4x-q7L\x00m"),
        *(
            "\uff3a\uff4b\uff12\uff19vT4x\uff0dq7Lm",
            "\U0001d5ed\U0001d5f8\u2082\u2079vT4x-q7Lm",
            "Z\u0332k\u033229vT4x-q7Lm",
        ),
        *("Zk29v\nT4x-\t q7\u00a0Lm", "Z k 2 9 v T 4 x - q 7 L m", "Zk29\x1b[0mvT4x-q7Lm", "Zk29\x1b]0;t\x07vT4x-q7Lm"),
        "Zk29%76T4x-q7Lm".replace("%76", "v\u3164"),
        "Z\u2800k29vT4x-q7Lm",
        *("".join(f"%{ord(letter):02x}" for letter in STRONG), "Zk29%2576T4x%252Dq7Lm", "Zk29vT4x%E2%80%8B-q7Lm"),
        *("".join(f"&#{ord(letter)};" for letter in STRONG), "Zk29&#X76;T4x&amp;#45;q7Lm", "Zk29v&shy;T4x-<wbr/>q7Lm"),
        *("".join(f"\\u{ord(letter):04x}" for letter in STRONG), "Zk29\\x76T4x\\-q7Lm", "Zk29v\\\\r\\\\nT4x-q7Lm"),
    ],
)
def test_a_secret_in_disguise_is_redacted_everywhere(disguised: str) -> None:
    known = KnownSecrets()
    redact = known.open(DesiredServer(remote("s", "http://127.0.0.1"), secrets=frozenset((STRONG,))))
    for before, after in (("", ""), ("a \u65e5\u672c\uff08" * 99, "\u65e5\u672c ok")):
        text = f"{before}{disguised}{after}"
        assert redact(text) == redact.json([text])[0] == known(text) == f"{before}***{after}"
        assert redact.json_text(json.dumps({"a": text}, ensure_ascii=True)) == json.dumps({"a": f"{before}***{after}"})
        assert redact.found_in({"a": text})


def test_a_word_that_is_a_secret_is_found_in_disguise_but_not_across_words() -> None:
    redact = Redaction([Secret("project"), Secret("\u3072\u307f\u3064\u306e\u3053\u3068\u3070")])
    assert redact("pro\u200bject \uff50roject pro ject") == "*** *** pro ject"
    assert redact("\u3072\u307f\u200b\u3064\u306e\u3053\u3068\u3070") == "***"
