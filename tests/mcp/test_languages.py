"""Language of the problems of servers: that of the reader, and English for models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from mcp import MCPError
from mcp.types import CONNECTION_CLOSED

from bot.domain.servers import DesiredServer, Protocol, ServerConfig, ServerEnablement
from bot.errors import ServerTrouble
from bot.examination import CheckStatus
from bot.i18n import english, use_language
from bot.mcp.errors import InvalidDefinition, Problem, RequestContext, split_fix
from bot.mcp.failures import connect_failure, connection_lost, refused_status, timeout_message
from bot.mcp.redaction import Redaction, Secret
from bot.mcp.results import failed_result
from tests.i18n.pseudo_language import untranslated_words
from tests.mcp.test_diagnostics import all_of
from tests.mcp.toolboxes import raw, remote, running_toolbox

PROGRAM = raw("1", script={})
ADDRESS = remote("1", "https://127.0.0.1")
LAST_WORDS = ("12",)


def connect_problem(config: ServerConfig, error: BaseException, attempt: RequestContext | None = None) -> Problem:
    return connect_failure(config, error, attempt or RequestContext(), LAST_WORDS, redact=Redaction(), limit=5.0)


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "a program without an answer": lambda: timeout_message(PROGRAM, LAST_WORDS, 5.0),
    "an address without an answer": lambda: timeout_message(ADDRESS, (), 5.0),
    "a lost connection": lambda: connection_lost(PROGRAM, LAST_WORDS),
    "an invalid definition": lambda: connect_problem(ADDRESS, InvalidDefinition("12", "34")),
    "an ended program": lambda: connect_problem(PROGRAM, MCPError(CONNECTION_CLOSED, "")),
    "an unknown program": lambda: connect_problem(PROGRAM, FileNotFoundError(2, "3")),
    "a program that cannot be started": lambda: connect_problem(PROGRAM, OSError(2, "3")),
    "an address that is not reached": lambda: connect_problem(
        ADDRESS, OSError(), RequestContext(failure="12", quotes=True)
    ),
    "a rejected request": lambda: connect_problem(ADDRESS, OSError(), RequestContext(status=599, retry_after=3.0)),
    "another version": lambda: connect_problem(replace(ADDRESS, protocol=Protocol.V2025_11_25), MCPError(1, "2")),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_of_a_server_is_in_the_language_of_its_reader(pseudo_language: str, name: str) -> None:
    problem = PROBLEMS[name]()
    with use_language(pseudo_language):
        for text in (problem.text, problem.own, *split_fix(problem.text)):
            assert set(untranslated_words(str(text))) <= {"python", "Error", "calling", "MCP", "server"}
            assert "⟦" not in english(text)
    assert str(problem.text) == english(problem.text)


def test_secrets_are_taken_out_of_a_problem_in_every_language() -> None:
    redact = Redaction([Secret("Zk29vT4x-q7Lm")])
    problem = timeout_message(PROGRAM, ("token Zk29vT4x-q7Lm",), 5.0).text
    cleaned = redact.clean(problem)
    for language in ("en", "ja"):
        with use_language(language):
            assert "Zk29vT4x" in str(problem)
            assert "Zk29vT4x" not in str(cleaned)
            assert "token ***" in str(cleaned)
    with use_language("ja"):
        assert str(cleaned).startswith("サーバー 1 が5秒以内に応答しませんでした。 最後の出力: 「token ***」。 対処: ")


async def test_a_server_that_is_not_reached_says_so_to_everybody_in_their_language() -> None:
    async with running_toolbox(remote("s", "http://127.0.0.1:9/mcp")) as box:
        with pytest.raises(ServerTrouble) as refused:
            await box.sync("file:s")
        (snapshot,) = box.servers()
    with use_language("ja"):
        for text in (refused.value.cause, snapshot.problem):
            assert str(text).startswith("サーバー s に http://127.0.0.1:9/mcp で接続できません: ")
            assert english(text).startswith("Server s cannot be reached at http://127.0.0.1:9/mcp: ")


async def test_the_doctor_speaks_the_language_of_the_asker(pseudo_language: str) -> None:
    async with running_toolbox(remote("1", "http://127.0.0.1:9/mcp")) as box:
        with use_language(pseudo_language):
            checks = await all_of(box.diagnose("file:1"))
    assert CheckStatus.BROKEN in {check.finding for check in checks}
    for check in checks:
        words = set(untranslated_words(f"{check.detail} {check.fix}"))
        assert words <= {
            "http",
            "mcp",
            "Connection",
            "refused",
            "ConnectError",
            "All",
            "connection",
            "attempts",
            "failed",
        }


@pytest.mark.parametrize("enablement", [ServerEnablement.DISABLED, ServerEnablement.DISCONNECTED])
async def test_the_checks_of_a_disabled_server_are_named_in_the_language_of_the_asker(
    pseudo_language: str, enablement: ServerEnablement
) -> None:
    async with running_toolbox(DesiredServer(PROGRAM, enablement)) as box:
        with use_language(pseudo_language):
            names = [str(check.name) for check in await all_of(box.diagnose("file:1"))]
    assert not {word for name in names for word in untranslated_words(name)} - {"MCP"}


def test_the_reason_of_a_failed_call_is_english_for_the_model_and_translated_for_people() -> None:
    reason = refused_status("s", 404)
    with use_language("ja"):
        result = failed_result("c1", reason)
    assert result.text.startswith("MCP server request failed: 404 Not Found. Fix: check the url of server s")
    assert result.for_people == result.shown_text
    assert result.for_people.startswith("MCPサーバーへのリクエストに失敗しました: 404 Not Found。")
    assert failed_result("c1", reason).for_people == ""
