"""Metrics and probes of the whole program."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bot.app.operator_files import read_operator_files
from bot.app.process import SessionCounters
from bot.app.runtime import open_runtime
from bot.app.service import open_metrics, probe_routes
from bot.domain.conversations import Author, ConversationKey, InboundMessage
from bot.domain.metrics import CacheUsed, LoopLagged, MetricEvent, ProcessCounters, SessionChanged
from bot.domain.turns import TurnStatus
from bot.llm.models import ModelChoice
from bot.settings import read_settings
from tests.app.program import service
from tests.fakes.parts import RecordingSurface, until

ANA = Author("test", "ana", "Ana")
HALL = ConversationKey("test", "w", "hall", "1")


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_events_of_servers_are_counted_by_server_and_handed_on() -> None:
    found: list[MetricEvent] = []
    tally = SessionCounters(found.append)
    measured: list[MetricEvent] = [
        SessionChanged("a", "created"),
        SessionChanged("a", "error"),
        SessionChanged("b", "created"),
        CacheUsed("a", "hit"),
        CacheUsed("a", "hit"),
        LoopLagged(0.1),
    ]
    for each in measured:
        tally.observe(each)
    assert found == measured
    assert tally.counters_of({"a"}) == ProcessCounters({"created": 1, "error": 1}, {"hit": 2})
    assert tally.counters_of({"a", "b"}).sessions == {"created": 2, "error": 1}
    assert tally.counters_of(()) == ProcessCounters()


async def test_a_question_is_measured_from_the_model_to_the_drawing() -> None:
    settings = read_settings(bot_model="demo")
    metrics, surface = await open_metrics(), RecordingSurface()
    files = read_operator_files(settings)
    async with (
        open_runtime(settings, files, ModelChoice("demo", "demo"), [surface], observe=metrics.observe) as runtime,
        probe_routes(metrics, runtime) as routes,
    ):
        receipt = await runtime.engine.receive(InboundMessage(("k",), HALL, ANA, "hello"))
        assert (await surface.wait_for_end(receipt.turn_id)).turn.status is TurnStatus.DONE
        ended = {"platform": "test", "status": "done"}
        await until(lambda: metrics.registry.get_sample_value("countersign_turns_total", ended) == 1)
        drawn = {"platform": "test", "outcome": "drawn"}
        await until(lambda: bool(metrics.registry.get_sample_value("countersign_deliveries_total", drawn)))
        found = samples((await metrics.render())[0].decode())
        assert found["countersign_turns_total", ("done", "test")] == 1
        assert found["countersign_model_requests_total", ("answered", "demo")] == 1
        assert found["countersign_turns_live", ("running",)] == 0
        assert found["countersign_database_up", ()] == 1
        assert {route.path for route in routes} >= {"/readyz", "/health", "/metrics"}  # type: ignore[attr-defined]
        health = await runtime.services.health.check()
        assert health.database


@pytest.mark.parametrize("words", [(), ("--only", "worker")])
def test_a_program_that_is_told_a_port_serves_its_health_and_metrics(folder: Path, words: tuple[str, ...]) -> None:
    servers = {"broken": {"command": "false"}}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    with service(folder, *words, PORT="0", BOT_MODEL="demo", MCP_SERVERS_FILE="servers.json") as running:
        running.says("listening for requests")
        listening = re.search(r"at 127\.0\.0\.1, port (\d+)", running.log.decode())
        assert listening is not None
        with httpx2.Client(base_url=f"http://127.0.0.1:{listening[1]}") as client:
            assert client.get("/healthz").text == "ok\n"
            ready = client.get("/readyz")
            assert (ready.status_code, ready.json()["database"], ready.json()["platforms"]) == (200, "up", {})
            assert ready.json()["servers"]["total"] == 1
            assert client.get("/health").json()["version"] == ready.json()["version"]
            found = samples(client.get("/metrics").text)
        assert found["countersign_database_up", ()] == 1
        assert running.end(signal.SIGTERM) == 0
