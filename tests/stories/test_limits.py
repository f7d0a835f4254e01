"""Nothing goes on for ever: neither a model that calls tool after tool, nor a tool that does not answer."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.stories.installation import Installation, a_tool, says, scripted_server

ROUNDS = 10
TIMEOUT = 1.5


def tireless(request: Request) -> Reply:
    """A model that takes one step after the other while it may, and calls two silent tools when told to wait."""
    if request.body.get("tool_choice") == "none":
        return Say("That is as far as I got.")
    if request.question == "wait":
        silent = Call("office__read"), Call("office__write")
        return Say("Neither answered.") if request.results else Say(calls=silent)
    return Say(calls=(Call("office__step"),))


def test_after_ten_rounds_the_model_answers_without_tools_and_a_silent_tool_is_given_up(tmp_path: Path) -> None:
    silence = {"do": "silence"}
    office = scripted_server(
        tmp_path,
        "office",
        *(a_tool("step", reads=True), a_tool("read", reads=True), a_tool("write")),
        calls={"step": says("one step further"), "read": silence, "write": silence},
        tool_timeout=TIMEOUT,
        trusted=True,
    )
    with FakeLanguageModel("openai", rule=tireless) as model:
        place = Installation(tmp_path, {"office": office.entry}, model=model)
        said = place.chat("--approve", "all", typed="go as far as you can\nwait\n")
    assert said.code == 0, said.err
    assert said.out == "That is as far as I got.\n\nNeither answered.\n"

    walked = [request for request in model.requests if request.question != "wait"]
    assert [name for name, _ in office.calls[:-2]] == ["step"] * ROUNDS
    assert len(walked) == ROUNDS + 1
    assert "no further tool can be used" in str(walked[-1].messages[-1]["content"])
    assert f"Stopped using tools after {ROUNDS} rounds." in said.err

    read, write = model.requests[-1].results
    gave_up = f"Error calling MCP server: Server office did not answer within {TIMEOUT} s."
    assert read == f"Error: {gave_up}"
    assert write.startswith(f"Error: {gave_up} It may or may not have happened.")
    assert f"✗ office.read  failed  {gave_up}" in said.err
    assert "? office.write  may or may not have happened" in said.err
