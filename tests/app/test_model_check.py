"""Checks of the language models by `countersign doctor`, with cause and fix."""

from __future__ import annotations

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


async def found(**environment: str) -> list[Check]:
    settings = read_settings(**environment)
    return [check async for check in examine_models(settings, read_operator_files(settings))]


async def report_on(service: FakeLanguageModel, name: str, **environment: str) -> list[Check]:
    """Run the doctor on a model at a compatible server."""
    address = {"openai_base_url": service.base_url, "anthropic_base_url": service.base_url}
    keys = {"openai_api_key": KEY, "anthropic_api_key": KEY}
    checks = await found(**{**keys, **address, "bot_model": name, **environment})
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
    configured, demo = await found()
    assert (configured.name, configured.finding, configured.detail) == ("configured", WELL, "demo")
    assert (demo.name, demo.finding, demo.detail) == ("demo", WELL, "It needs no service.")


async def test_a_mistake_in_the_settings_is_all_there_is_to_say() -> None:
    [check] = await found(bot_model="demo, olama:small")
    assert (check.name, check.finding) == ("configured", BROKEN)
    assert "Did you mean ollama?" in check.detail
    assert check.fix


async def test_a_model_that_is_there_is_told_with_its_window() -> None:
    with FakeLanguageModel("anthropic", models=Models("anthropic", {"house": 400_000})) as service:
        check = await of_service(service, "anthropic:house")
        assert (check.name, check.finding) == ("anthropic:house", WELL)
        assert check.detail.endswith(" has it. Its window has 400,000 tokens.")
        assert check.seconds is not None
        told = await of_service(service, "anthropic:house", context_tokens="anthropic:*=150000")
        assert told.detail.endswith(" has it. CONTEXT_TOKENS gives it a window of 150,000 tokens.")
        larger = await of_service(service, "anthropic:house", context_tokens="500000")
        assert larger.finding is DOUBTFUL
        assert larger.detail.endswith("with a window of 400,000 tokens. CONTEXT_TOKENS says 500,000.")
        assert "no more than that" in larger.fix


async def test_an_unknown_context_window_is_named_with_its_assumed_value() -> None:
    with FakeLanguageModel("openai", models=Models("litellm", {"house": 1})) as service:
        check = await of_service(service, "openai:house")
    assert check.finding is WELL
    assert check.detail.endswith("without CONTEXT_TOKENS it is taken for 128,000 tokens.")


async def test_a_deprecated_model_and_a_removed_one_are_reported() -> None:
    models = Models("anthropic", {"old": 1_000, "older": 1_000}, retires={"old": "2027-02-01T00:00:00Z", "older": ""})
    with FakeLanguageModel("anthropic", models=models) as service:
        old, older = await of_service(service, "anthropic:old"), await of_service(service, "anthropic:older")
    assert (old.finding, older.finding) == (DOUBTFUL, BROKEN)
    assert "has it until 2027-02-01." in old.detail
    assert "has retired it" in older.detail
    assert "BOT_MODEL" in old.fix
    assert "BOT_MODEL" in older.fix


async def test_a_name_that_the_server_does_not_have_is_refused_with_those_like_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FakeLanguageModel("openai", models=Models("ollama", {"qwen3:8b": 1, "llama4": 1})) as service:
        monkeypatch.setenv("OLLAMA_BASE_URL", service.base_url)
        check = await of_service(service, "ollama:qwen3")
    assert check.finding is BROKEN
    assert check.detail.endswith("does not list it among its 2 models.")
    assert check.fix == "have it loaded there, or name one that it has, such as qwen3:8b"


async def test_a_server_without_models_wants_one_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeLanguageModel("openai", models=Models("ollama", {})) as service:
        monkeypatch.setenv("OLLAMA_BASE_URL", service.base_url)
        check = await of_service(service, "ollama:qwen3")
    assert (check.finding, check.fix) == (BROKEN, "have it loaded there, or name one that it has")


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
async def test_a_name_that_a_compatible_server_does_not_list_is_doubtful_since_it_may_answer(protocol: Api) -> None:
    with FakeLanguageModel(protocol, models=Models("vllm", {"qwen3-8b": 1})) as service:
        check = await of_service(service, f"{protocol}:qwen-8b")
    assert check.finding is DOUBTFUL
    assert check.detail.endswith("does not list it among its 1 model.")
    assert check.fix == "if questions fail, have it loaded there, or name one that it has, such as qwen3-8b"


async def test_a_key_that_is_refused_is_told_without_the_key() -> None:
    with FakeLanguageModel("openai", models=Models("openai", {"small": 1}, key="another")) as service:
        check = await of_service(service, "openai:small")
    assert check.finding is BROKEN
    assert "does not accept the key (401)" in check.detail
    assert "OPENAI_API_KEY" in check.fix


async def test_a_server_that_has_no_list_is_reached_and_that_is_no_failure() -> None:
    with FakeLanguageModel("openai") as service:
        check = await of_service(service, "openai:small")
    assert check.finding is DOUBTFUL
    assert check.detail.endswith("was reached, and could not be asked which models it has.")
    assert check.fix == "if questions fail, correct the address in OPENAI_BASE_URL, which mostly ends with /v1"
    with FakeLanguageModel("anthropic") as service:
        check = await of_service(service, "anthropic:small")
    assert check.fix == "if questions fail, correct the address in ANTHROPIC_BASE_URL, which mostly ends before /v1"


async def test_a_key_that_may_not_read_lists_is_no_failure() -> None:
    unable = Models("openai", {}, instead=Status(403, "Missing scopes: api.model.read"))
    with FakeLanguageModel("openai", models=unable) as service:
        check = await of_service(service, "openai:small")
    assert check.finding is DOUBTFUL
    assert check.detail.endswith("does not accept the key (403): Missing scopes: api.model.read.")
    assert "may answer all the same" in check.fix


async def test_a_failing_model_service_is_reported_with_its_message() -> None:
    ill = Models("vllm", {}, instead=Status(503, "Loading the model."))
    with FakeLanguageModel("openai", models=ill) as service:
        check = await of_service(service, "openai:small")
    assert check.finding is BROKEN
    assert "(503): Loading the model." in check.detail


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
        checks = await found(openai_base_url=vllm.base_url, bot_model="openai:smal, ollama:qwen3, demo")
    assert [(check.name, check.finding) for check in checks] == [
        ("configured", WELL),
        ("openai:smal", DOUBTFUL),
        ("openai:smal tool call", WELL),
        ("ollama:qwen3", WELL),
        ("ollama:qwen3 tool call", DOUBTFUL),
        ("demo", WELL),
    ]
    assert "Its window has 4,096 tokens." in checks[3].detail


async def test_models_behind_the_demo_are_never_asked() -> None:
    checks = await found(bot_model="demo, ollama:small", context_tokens="")
    assert (checks[1].name, checks[1].finding) == ("order", DOUBTFUL)
    assert "ollama:small will never be asked" in checks[1].detail


async def test_a_window_for_a_model_that_is_not_used_is_doubtful() -> None:
    checks = await found(context_tokens="qwen3=32768, demo=9000, 8000")
    assert [(check.name, check.finding) for check in checks] == [
        ("configured", WELL),
        ("windows", DOUBTFUL),
        ("demo", WELL),
    ]
    assert "'qwen3'" in checks[1].detail


async def test_a_window_behind_one_that_fits_all_the_same_is_doubtful() -> None:
    checks = await found(bot_model="demo", context_tokens="8000, demo=9000")
    assert [(check.name, check.finding) for check in checks] == [
        ("configured", WELL),
        ("windows", DOUBTFUL),
        ("demo", WELL),
    ]
    assert checks[1].detail == "The window that CONTEXT_TOKENS has for 'demo' never counts: one before it fits as well."
    assert [check.name for check in await found(context_tokens="demo=9000, 8000")] == ["configured", "demo"]


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


async def test_a_model_that_calls_the_tool_of_a_trial_is_well(spoken: tuple[Api, str]) -> None:
    with FakeLanguageModel(spoken[0], CALLED) as service:
        check = await trial_of(service, spoken[1])
    assert (check.finding, check.detail, check.fix) == (WELL, "It called the tool of a trial properly.", "")
    assert len(service.requests) == 1


async def test_a_call_as_text_is_told_with_the_ways_to_start_its_service(spoken: tuple[Api, str]) -> None:
    with FakeLanguageModel(spoken[0], Say(AS_TEXT)) as service:
        check = await trial_of(service, spoken[1])
    assert check.finding is DOUBTFUL
    assert check.detail == "It wrote a trial call as text, because its service does not parse it."
    assert "--enable-auto-tool-choice --tool-call-parser NAME" in check.fix
    assert "llama.cpp with --jinja" in check.fix


@pytest.mark.parametrize("reply", [Say("Ready."), Say(calls=(Call("other", {}),))])
async def test_an_answer_without_the_call_is_told(spoken: tuple[Api, str], reply: Reply) -> None:
    with FakeLanguageModel(spoken[0], reply) as service:
        check = await trial_of(service, spoken[1])
    assert check.finding is DOUBTFUL
    assert check.detail == "It answered a trial without calling the tool that it was asked for."
    assert check.fix == "use a model that is made for tool calls"


async def test_a_service_that_refuses_tools_is_told(spoken: tuple[Api, str]) -> None:
    with FakeLanguageModel(spoken[0], Status(400, "small does not support tools"), Say("Ready.")) as service:
        check = await trial_of(service, spoken[1])
    assert check.finding is DOUBTFUL
    assert check.detail == "Its service refuses tools: it answers without them."
    assert check.fix.startswith("use another model, or start vLLM with --enable-auto-tool-choice")


@pytest.mark.parametrize(
    ("status", "finding", "cause"),
    [(402, BROKEN, "wants to be paid first (402)"), (429, DOUBTFUL, "is asked too much (429)")],
)
async def test_a_trial_that_fails_has_the_cause_of_its_service(
    spoken: tuple[Api, str], status: int, finding: CheckStatus, cause: str
) -> None:
    with FakeLanguageModel(spoken[0], Status(status)) as service:
        check = await trial_of(service, spoken[1])
    assert check.finding is finding
    assert check.detail.startswith("A trial of a tool call failed: ")
    assert cause in check.detail
    assert check.fix


async def test_a_trial_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.app.model_checks.TRIAL_SECONDS", 0.3)
    with FakeLanguageModel("openai", Silence()) as service:
        check = await trial_of(service, "openai:small")
    assert (check.finding, check.detail) == (DOUBTFUL, "It did not answer a trial within 0.3 seconds.")
    assert "loads the model" in check.fix
