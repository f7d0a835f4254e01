"""Lists of servers show a tool that the model's service rejects, with the reason."""

from __future__ import annotations

from pathlib import Path

from bot.errors import ModelRejected
from bot.examination import CheckStatus
from tests.fakes.parts import ScriptedModel, say
from tests.web.api_server import opened_api, scripted_choice


async def test_a_tool_that_the_model_refuses_is_named_by_the_doctor(tmp_path: Path) -> None:
    model = ScriptedModel([ModelRejected("The schema is too deep (400).", tool="fake__write"), say("Done.")])
    async with opened_api(tmp_path, model=scripted_choice(model)) as api:
        question = {"payload": {"messages": [{"role": "user", "content": "go"}]}}
        answer = await api.post("/api/responses/stream", json=question)
        assert answer.status_code < 400, answer.text
        checks = [check async for check in api.runtime.services.toolbox.diagnose("file:fake")]
    [models] = [check for check in checks if check.name == "models"]
    assert models.finding is CheckStatus.DOUBTFUL
    assert "fake__write by scripted: The schema is too deep (400)." in models.detail
