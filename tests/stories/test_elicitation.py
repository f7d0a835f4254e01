"""A server asks back, and the person at the terminal answers it, or does not; or a program does, over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bot.chat.forms import FINISHED, REFUSED, SENT
from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.programs import listening
from tests.fakes.terminal import PATIENCE
from tests.stories.installation import Installation
from tests.stories.program import a_bot

BOOKING = Path(__file__).parents[1] / "fakes" / "mcp" / "booking.py"
PAGE = "https://pay.example.com/c/7f3a?for=K7P2"
POLICY = '[[rules]]\npolicy = "ALWAYS_ALLOW"\nserver = "travel"\n'
TOKEN = "a-token-of-the-operator-for-this-story"
KEYS = "[a] answer…  [d] decline"
ASKED = (
    "▌ travel asks for an answer",
    "▌ > The 14:05 has seats left. How many?",
    "It asks for Seats, A note for the guard",
)
every_era = pytest.mark.parametrize("era", ["modern", "older"])


def clerk(request: Request) -> Reply:
    """A model that books or pays, and reports the outcome."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return Say(f"It said: {request.results[-1]}")
    called = Call("travel__pay", {}) if "pay" in str(last["content"]) else Call("travel__book", {"train": "14:05"})
    return Say(calls=(called,))


@asynccontextmanager
async def travel(folder: Path, model: FakeLanguageModel, era: str, **environment: str) -> AsyncIterator[Installation]:
    """A folder with a server that runs on its own, and asks back."""
    with listening(str(BOOKING), era) as (port, _):
        entry = {"transport": "streamable_http", "url": f"http://127.0.0.1:{port}/mcp"}
        yield Installation(folder, {"travel": entry}, model=model, policy=POLICY, **environment)


@every_era
async def test_a_form_is_filled_in_at_the_terminal(tmp_path: Path, model: FakeLanguageModel, era: str) -> None:
    async with travel(tmp_path, model, era) as place, place.terminal() as terminal:
        await terminal.asks("book a seat", *ASKED, KEYS)
        await terminal.presses("a", "are sent to this server only", "Seats:")
        terminal.type("none")
        await terminal.until(lambda: "A note for the guard:" in terminal.lines[-1], "the next field")
        terminal.type("with a bicycle")
        await terminal.shows("Seats: A whole number, such as 3.")
        terminal.press("\x15")
        terminal.type("2")
        await terminal.shows(f"▌ {SENT}", "It said: Booked 2 on the 14:05. Note: with a bicycle.")


@every_era
async def test_a_question_is_declined_with_a_key(tmp_path: Path, model: FakeLanguageModel, era: str) -> None:
    async with travel(tmp_path, model, era) as place, place.terminal() as terminal:
        await terminal.asks("book a seat", *ASKED, KEYS)
        await terminal.presses("d", f"▌ {REFUSED}", "It said: Nothing was booked: decline.")


@every_era
async def test_a_page_is_visited_and_the_way_there_is_shown_only_when_wanted(
    tmp_path: Path, model: FakeLanguageModel, era: str
) -> None:
    async with travel(tmp_path, model, era) as place, place.terminal() as terminal:
        await terminal.asks("pay for it", "▌ The page is on pay.example.com", "[s] show the link  [d] decline")
        assert "7f3a" not in terminal.text
        await terminal.presses("s", PAGE, "[f] I have finished  [d] decline")
        await terminal.presses("f", f"▌ {FINISHED}", "It said: The payment: accept.")


async def test_an_answer_counts_after_a_restart(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with travel(tmp_path, model, "modern") as place:
        async with place.terminal() as terminal:
            await terminal.asks("book a seat", *ASKED, KEYS)
            assert await terminal.leaves() == 0
        async with place.terminal() as terminal:
            await terminal.shows(*ASKED, KEYS)
            await terminal.presses("a", "Seats:")
            terminal.type("3")
            await terminal.until(lambda: "A note for the guard:" in terminal.lines[-1], "the next field")
            terminal.type("")
            await terminal.shows(f"▌ {SENT}", "It said: Booked 3 on the 14:05. Note: none.")
        assert [request.results for request in model.requests if request.results] == [
            ("Booked 3 on the 14:05. Note: none.",)
        ]


async def test_a_question_of_an_older_server_ends_with_the_process(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with travel(tmp_path, model, "older") as place:
        async with place.terminal() as terminal:
            await terminal.asks("book a seat", *ASKED, KEYS)
            terminal.press("\x04")
            await terminal.wait_for_exit()
        async with place.terminal() as terminal:
            await terminal.shows("▌ Withdrawn: the server needs no answer any more", "may or may not have happened")
            assert KEYS not in terminal.text


def test_a_pipe_answers_with_the_line_behind_the_question(tmp_path: Path, model: FakeLanguageModel) -> None:
    async def run_pipe() -> None:
        async with travel(tmp_path, model, "modern") as place:
            typed = "book a seat\nanswer seats=4 'note=by the window'\n"
            ended = await asyncio.to_thread(lambda: place.chat(typed=typed))
            assert (ended.code, ended.out) == (0, "It said: Booked 4 on the 14:05. Note: by the window.\n"), ended.err
            alone = await asyncio.to_thread(lambda: place.chat("-m", "book a seat", "--json"))
            assert alone.code == 0
            asked, settled = (event for event in alone.events if event["event"].startswith("elicitation"))
            assert (asked["data"]["mode"], asked["data"]["message"]) == ("form", "The 14:05 has seats left. How many?")
            assert settled["data"]["action"] == "cancel"
            assert alone.events[-1]["data"]["text"] == "It said: Nothing was booked: cancel."

    asyncio.run(run_pipe())


async def test_over_http_the_token_that_asked_answers_and_no_other(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with (
        travel(tmp_path, model, "modern", ADMIN_API_TOKEN=TOKEN, PORT="0") as place,
        a_bot(place, "--only", "web,worker") as bot,
    ):
        port = (await bot.logs(r"listening for requests at \S+, port (\d+)"))[1]
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:

            async def ask(method: str, path: str, token: str, **body: Any) -> tuple[int, dict[str, Any]]:
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                sent = await client.request(method, path, headers=headers, content=json.dumps(body) if body else None)
                return sent.status_code, sent.json()

            made = await asyncio.to_thread(place.countersign, "tokens", "create", "ci", "--role", "member")
            member = made.out.strip()
            status, found = await ask(
                "POST", "/api/responses/stream", member, payload={"input": "book a seat", "stream": False}
            )
            assert (status, found["waitingForAnswer"]) == (202, True)
            (question,) = found["elicitations"]
            path = f"/api/responses/elicitation/{question['elicitationId']}"
            status, refused = await ask("POST", path, TOKEN, action="decline")
            assert (status, refused["error"]["code"]) == (403, "not_allowed")
            status, _ = await ask("POST", path, member, action="accept", content={"seats": 0, "note": ""})
            assert status == 422
            status, _ = await ask("POST", path, member, action="accept", content={"seats": 2, "note": ""})
            assert status == 200
            async with asyncio.timeout(PATIENCE):
                while found["status"] != "COMPLETED":
                    _, found = await ask("GET", f"/api/responses/{found['responseId']}", member)
            assert found["text"] == "It said: Booked 2 on the 14:05. Note: none."
