"""kill -9 at every step boundary: nothing that matters happens twice, and the answer always reaches the person."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Rule, Say
from tests.stories.counted_calls import COUNT_IT, UNSURE, CountingPlace


def come_back(place: CountingPlace) -> str:
    """Everything the person sees at the next start."""
    again = ("-m", "and now?", "--approve", "all", "--conversation", "c1")
    ended = place.chat(*again)
    if ended.code == 2:
        ended = place.chat(*again, "--new")  # it crashed before the question was stored
    assert ended.code == 0, ended.err
    return ended.out + ended.err


def answering(tool: str) -> Rule:
    """A model that calls the tool for the first question and reports the outcome."""

    def rule(request: Request) -> Reply:
        last = request.messages[-1]
        if last["role"] == "tool":
            return Say(f"It said: {request.results[-1]}.")
        if last["content"] == COUNT_IT:
            return Say(calls=(Call(f"test__{tool}", {"label": "once"}),))
        return Say("Nothing new.")

    return rule


# boundary, calls of the unsafe tool, questions put to the model about the first turn in all
UNSAFE = [
    pytest.param("after:enqueue_and_claim|enqueue", 1, 2, id="on disk"),
    pytest.param("before:append", 1, 3, id="model said, not yet written"),
    pytest.param("after:append", 1, 2, id="model said"),
    pytest.param("after:mark_delivered", 1, 2, id="card shown"),
    pytest.param("after:decide", 1, 2, id="decided"),
    pytest.param("before:start_call", 1, 2, id="intent not yet written"),
    pytest.param("after:start_call", 0, 2, id="intent written"),
    pytest.param("before:finish_call", 1, 2, id="tool returned"),
    pytest.param("after:finish_call", 1, 2, id="result written"),
    pytest.param("before:finish", 1, 3, id="answered, not yet written"),
    pytest.param("after:finish", 1, 2, id="finished but not yet drawn"),
]


@pytest.mark.parametrize(("boundary", "calls", "questions"), UNSAFE)
def test_an_unsafe_call_is_never_made_twice_and_the_answer_arrives(
    tmp_path: Path, boundary: str, calls: int, questions: int
) -> None:
    with FakeLanguageModel("openai", rule=answering("count")) as model:
        place = CountingPlace(tmp_path, model, trusted=False)
        place.die(boundary, "c1")
        seen = come_back(place)
        asked = [request for request in model.requests if "and now?" not in str(request.messages)]
    assert place.run_count == calls
    assert len(asked) == questions
    unsure = boundary in ("after:start_call", "before:finish_call")
    assert (UNSURE in seen) == unsure, seen
    assert ("It said: recorded once." in seen) != unsure, seen
    assert "Nothing new." in seen


SAFE = [
    pytest.param("before:finish_call", 2, id="tool returned"),
    pytest.param("after:finish_call", 1, id="result written"),
]


@pytest.mark.parametrize(("boundary", "calls"), SAFE)
def test_a_safe_call_in_flight_is_made_again_and_a_finished_one_is_not(
    tmp_path: Path, boundary: str, calls: int
) -> None:
    with FakeLanguageModel("openai", rule=answering("count_read")) as model:
        place = CountingPlace(tmp_path, model, trusted=True)
        place.die(boundary, "c1")
        seen = come_back(place)
    assert place.run_count == calls
    assert "It said: recorded once." in seen
    assert UNSURE not in seen
