"""Checks of the language models by `countersign doctor`, with cause and fix."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from bot.app.model_checks import examine_models
from bot.app.operator_files import read_operator_files
from bot.examination import Check, CheckStatus
from bot.settings import read_settings
from tests.fakes.llm import Call, FakeLanguageModel, Models, Reply, Say, Silence, Status
from tests.fakes.llm_script import Api

KEY = "sk-test-0123456789abcdef"
CALLED = Say(calls=(Call("note_word", {"word": "ready"}),))
AS_TEXT = '<tool_call>{"name": "note_word", "arguments": {"word": "ready"}}</tool_call>'
PROVIDERS: list[tuple[Api, str]] = [("openai", "openai"), ("responses", "openai"), ("anthropic", "anthropic")]
WELL, DOUBTFUL, BROKEN = CheckStatus.WELL, CheckStatus.DOUBTFUL, CheckStatus.BROKEN


async def check_models(**environment: str) -> list[Check]:
    settings = read_settings(**environment)
    return [check async for check in examine_models(settings, read_operator_files(settings))]


async def report_on(service: FakeLanguageModel, name: str, **environment: str) -> list[Check]:
    """Run the doctor on a model at a compatible server."""
    address = {"openai_base_url": service.base_url, "anthropic_base_url": service.base_url}
    keys = {"openai_api_key": KEY, "anthropic_api_key": KEY}
    checks = await check_models(**{**keys, **address, "bot_model": name, **environment})
    assert (checks[0].name, checks[0].finding) == ("configured", WELL)
    assert KEY not in str(checks)
    return checks


async def of_service(service: FakeLanguageModel, name: str, **environment: str) -> Check:
    """Return the line of the report about the model's service."""
    service.script(CALLED)
    asked = len(service.requests)
    checks = await report_on(service, name, **environment)
    check, *trial = [check for check in checks if check.name.startswith(name)]
    is_there = check.finding is not BROKEN
    assert (len(trial), len(service.requests) - asked) == (is_there, is_there), "only a model that is there is tried"
    return check


async def trial_of(service: FakeLanguageModel, name: str) -> Check:
    """Return the line of the report about the trial of a tool call."""
    *_, check = await report_on(service, name)
    assert check.name == f"{name} tool call"
    assert service.requests[0].tool_names == ("note_word",)
    return check


async def test_the_demo_needs_no_service() -> None:
    configured, demo = await check_models()
    assert (configured.name, configured.finding, configured.detail) == ("configured", WELL, "demo")
    assert (demo.name, demo.finding, demo.detail) == ("demo", WELL, "It needs no service.")


async def test_a_mistake_in_the_settings_is_all_there_is_to_say() -> None:
    [check] = await check_models(bot_model="demo, olama:small")
    assert (check.name, check.finding) == ("configured", BROKEN)
    assert "Did you mean ollama?" in check.detail
    assert check.fix


OLD = Models("anthropic", {"old": 1_000, "older": 1_000}, retires={"old": "2027-02-01T00:00:00Z", "older": ""})
VLLM = Models("vllm", {"qwen3-8b": 1})
UNABLE = Models("openai", {}, instead=Status(403, "Missing scopes: api.model.read"))
KEYED = Models("openai", {"small": 1}, key="another")
LOADING = Models("vllm", {}, instead=Status(503, "Loading the model."))
LOADED = "if questions fail, have it loaded there, or name one that it has, such as qwen3-8b"
ANOTHER_ADDRESS = "if questions fail, correct the address in {}_BASE_URL, which mostly ends {} /v1"


@pytest.mark.parametrize(
    ("models", "name", "finding", "detail", "fix"),
    [
        (Models("litellm", {"house": 1}), "openai:house", WELL, "without CONTEXT_TOKENS it is taken for 128,000", ""),
        (OLD, "anthropic:old", DOUBTFUL, "has it until 2027-02-01.", "name a newer one in BOT_MODEL by then"),
        (OLD, "anthropic:older", BROKEN, "has retired it", "name a newer one in BOT_MODEL"),
        (VLLM, "openai:qwen-8b", DOUBTFUL, "does not list it among its 1 model.", LOADED),
        (VLLM, "anthropic:qwen-8b", DOUBTFUL, "does not list it among its 1 model.", LOADED),
        (
            Models("openai", {"small": 1}, key="another"),
            "openai:small",
            BROKEN,
            "accept the key (401)",
            "OPENAI_API_KEY",
        ),
        (None, "openai:small", DOUBTFUL, "could not be asked", ANOTHER_ADDRESS.format("OPENAI", "with")),
        (None, "anthropic:small", DOUBTFUL, "could not be asked", ANOTHER_ADDRESS.format("ANTHROPIC", "before")),
        (UNABLE, "openai:small", DOUBTFUL, "(403): Missing scopes: api.model.read.", "it may answer all the same"),
        (LOADING, "openai:small", BROKEN, "(503): Loading the model.", ""),
    ],
)
async def test_what_a_service_says_of_a_model(
    models: Models | None, name: str, finding: CheckStatus, detail: str, fix: str
) -> None:
    protocol: Api = "anthropic" if name.startswith("anthropic") else "openai"
    with FakeLanguageModel(protocol, models=models) as service:
        check = await of_service(service, name)
    assert (check.name, check.finding) == (name, finding)
    assert detail in check.detail
    assert fix in check.fix


async def test_a_model_that_is_there_is_told_with_its_window() -> None:
    with FakeLanguageModel("anthropic", models=Models("anthropic", {"house": 400_000})) as service:
        check = await of_service(service, "anthropic:house")
        assert (check.name, check.finding) == ("anthropic:house", WELL)
        assert check.detail.endswith(" has it. Its window has 400,000 tokens.")
        assert check.seconds is not None
        smaller = await of_service(service, "anthropic:house", context_tokens="anthropic:*=150000")
        assert smaller.detail.endswith(" has it. CONTEXT_TOKENS gives it a window of 150,000 tokens.")
        larger = await of_service(service, "anthropic:house", context_tokens="500000")
        assert larger.finding is DOUBTFUL
        assert larger.detail.endswith("with a window of 400,000 tokens. CONTEXT_TOKENS says 500,000.")
        assert "no more than that" in larger.fix


@pytest.mark.parametrize(
    ("listed", "like"), [({"qwen3:8b": 1, "llama4": 1}, ", such as qwen3:8b"), ({}, "")], ids=["others", "none"]
)
async def test_the_list_of_a_provider_is_complete(
    listed: dict[str, int], like: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeLanguageModel("openai", models=Models("ollama", listed)) as service:
        monkeypatch.setenv("OLLAMA_BASE_URL", service.base_url)
        check = await of_service(service, "ollama:qwen3")
    assert (check.finding, check.fix) == (BROKEN, f"have it loaded there, or name one that it has{like}")


async def test_each_of_several_models_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        FakeLanguageModel("openai", models=Models("vllm", {"small": 8_000})) as vllm,
        FakeLanguageModel(
            "openai", models=Models("ollama", {"qwen3:latest": 4_096}, running={"qwen3:latest"})
        ) as ollama,
    ):
        monkeypatch.setenv("OLLAMA_BASE_URL", ollama.base_url)
        vllm.script(CALLED)
        ollama.script(Say("Ready."))
        checks = await check_models(openai_base_url=vllm.base_url, bot_model="openai:smal, ollama:qwen3, demo")
    assert [(check.name, check.finding) for check in checks] == [
        ("configured", WELL),
        ("openai:smal", DOUBTFUL),
        ("openai:smal tool call", WELL),
        ("ollama:qwen3", WELL),
        ("ollama:qwen3 tool call", DOUBTFUL),
        ("demo", WELL),
    ]
    assert "Its window has 4,096 tokens." in checks[3].detail


@pytest.mark.parametrize(
    ("environment", "name", "text"),
    [
        ({"bot_model": "demo, ollama:small"}, "order", "ollama:small will never be asked"),
        ({"context_tokens": "qwen3=32768, demo=9000, 8000"}, "windows", "'qwen3'"),
        ({"context_tokens": "8000, demo=9000"}, "windows", "'demo' never counts: one before it fits as well."),
    ],
    ids=["behind the demo", "no model", "an earlier window"],
)
async def test_settings_without_an_effect_are_doubtful(environment: dict[str, str], name: str, text: str) -> None:
    checks = await check_models(**environment)
    assert [(check.name, check.finding) for check in checks[:2]] == [("configured", WELL), (name, DOUBTFUL)]
    assert text in checks[1].detail
    assert [check.name for check in await check_models(context_tokens="demo=9000, 8000")] == ["configured", "demo"]


async def test_names_from_a_service_are_told_on_one_line_and_not_at_any_length() -> None:
    names = {"qwen3-8b\x1b[2J\n✓ model": 1, "qwen3-" + "8" * 50_000: 1}
    with FakeLanguageModel("openai", models=Models("vllm", names)) as service:
        check = await of_service(service, "openai:qwen3")
    assert check.fix.isprintable()
    assert len(check.fix) < 400


@pytest.fixture(params=PROVIDERS, ids=[api for api, _ in PROVIDERS])
def spoken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Api, str]:
    """A protocol, and a model that is asked in it."""
    api, provider = request.param
    monkeypatch.setenv("OPENAI_API", "responses" if api == "responses" else "chat")
    return api, f"{provider}:small"


ANSWERED = "It answered a trial without calling the tool that it was asked for."
MADE = "use a model that is made for tool calls"
NO_TOOLS = (Status(400, "small does not support tools"), Say("Ready."))


@pytest.mark.parametrize(
    ("replies", "finding", "detail", "fixes"),
    [
        ([CALLED], WELL, "It called the tool of a trial properly.", ()),
        (
            [Say(AS_TEXT)],
            DOUBTFUL,
            "It wrote a trial call as text, because its service does not parse it.",
            ("--enable-auto-tool-choice --tool-call-parser NAME", "llama.cpp with --jinja"),
        ),
        ([Say("Ready.")], DOUBTFUL, ANSWERED, (MADE,)),
        ([Say(calls=(Call("other", {}),))], DOUBTFUL, ANSWERED, (MADE,)),
        (
            NO_TOOLS,
            DOUBTFUL,
            "Its service refuses tools: it answers without them.",
            ("use another model, or start vLLM with --enable-auto-tool-choice",),
        ),
        ([Status(402)], BROKEN, "A trial of a tool call failed: .*wants to be paid first .402.*", ("",)),
        ([Status(429)], DOUBTFUL, "A trial of a tool call failed: .*is asked too much .429.*", ("",)),
    ],
)
async def test_a_trial_of_a_tool_call(
    spoken: tuple[Api, str], replies: Sequence[Reply], finding: CheckStatus, detail: str, fixes: Sequence[str]
) -> None:
    with FakeLanguageModel(spoken[0], *replies) as service:
        check = await trial_of(service, spoken[1])
    assert check.finding is finding
    assert re.fullmatch(detail, check.detail)
    assert bool(check.fix) is (finding is not WELL)
    assert all(fix in check.fix for fix in fixes)
    assert finding is not WELL or len(service.requests) == 1


async def test_a_trial_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.app.model_checks.TRIAL_SECONDS", 0.3)
    with FakeLanguageModel("openai", Silence()) as service:
        check = await trial_of(service, "openai:small")
    assert (check.finding, check.detail) == (DOUBTFUL, "It did not answer a trial within 0.3 seconds.")
    assert "loads the model" in check.fix
