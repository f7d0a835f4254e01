"""The operators' guide, dashboard and alerts use metrics that exist."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client.parser import text_string_to_metric_families

from bot.domain.metrics import (
    ApprovalAsked,
    ApprovalEnded,
    CacheEvent,
    CacheUsed,
    CallEnded,
    Delivered,
    LoopLagged,
    MetricEvent,
    ModelAnswered,
    ModelOutcome,
    PlatformLimited,
    SessionChanged,
    SessionEvent,
    TurnEnded,
)
from bot.domain.servers import HttpTransport, ServerConfig, ServerSnapshot, ServerStatus
from bot.ports import Backlog
from bot.web.prometheus import Metrics

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
DASHBOARD = json.loads((ROOT / "deploy/grafana/countersign.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))
SCRAPING = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
GIVEN_BY_PROMETHEUS = {"job", "instance", "le"}
HISTOGRAM = ("_bucket", "_count", "_sum")

EVERYTHING: tuple[MetricEvent, ...] = (
    *(TurnEnded("slack", status, 1.0) for status in ("done", "failed", "cancelled")),
    *(ModelAnswered("demo", outcome, 1.0, 0.5, 10, 5) for outcome in get_args(ModelOutcome)),
    *(CallEnded("s", "t", status, 0.1) for status in ("done", "failed", "unknown", "denied")),
    ApprovalAsked("slack"),
    ApprovalEnded("slack", "approved", 1.0),
    Delivered("slack", "drawn", 0.1),
    PlatformLimited("slack", 1.0),
    *(SessionChanged("s", event) for event in get_args(SessionEvent)),
    *(CacheUsed("s", event) for event in get_args(CacheEvent)),
    LoopLagged(0.01),
)


async def _render_metrics() -> str:
    metrics = Metrics()

    async def backlog() -> Backlog:
        return Backlog({"queued": 1, "running": 1, "waiting": 1}, 1.0, 1, 1)

    states = [
        ServerSnapshot(ServerConfig(f"s{status.name}", HttpTransport("https://x.example")), status)
        for status in ServerStatus
    ]
    metrics.set_sources(backlog, lambda: states)
    for each in EVERYTHING:
        metrics.observe(each)
    return (await metrics.render())[0].decode()


@pytest.fixture(scope="module")
def labels() -> Mapping[str, Mapping[str, set[str]]]:
    """Every sample there is, with each of its labels' values."""
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(asyncio.run(_render_metrics())):
        for sample in family.samples:
            known = found.setdefault(sample.name, {})
            for name, value in sample.labels.items():
                known.setdefault(name, set()).add(value)
    return found


def _panels() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def _rules() -> Iterator[dict[str, Any]]:
    for group in ALERTS["groups"]:
        yield from group["rules"]


QUERIES = [*_panels(), *((rule["alert"], rule["expr"]) for rule in _rules())]


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_every_query_asks_for_metrics_labels_and_values_that_there_are(
    title: str, query: str, labels: Mapping[str, Mapping[str, set[str]]]
) -> None:
    selected = re.findall(r"\b((?:countersign|process)_\w+)(?:\{([^}]*)\})?", query)
    assert selected or query == 'up{job="countersign"} == 0', title
    grouped = {
        name.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for name in group.split(",")
    } - GIVEN_BY_PROMETHEUS
    known: set[str] = set()
    for name, conditions in selected:
        assert name in labels, f"{title}: there is no {name}"
        known |= set(labels[name])
        for label, operator, value in re.findall(r'(\w+)\s*(=~|!=|=)\s*"([^"]*)"', conditions):
            if label in GIVEN_BY_PROMETHEUS:
                continue
            assert label in labels[name], f"{title}: {name} has no label {label}"
            words = value.split("|") if operator == "=~" else [value]
            assert set(words) <= labels[name][label], f"{title}: {label}={value}"
    assert grouped <= known, f"{title}: {grouped - known} are no labels"
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")
    for histogram in re.findall(r"histogram_quantile\(.*", query):
        assert "_bucket" in histogram
        assert re.search(r"by \(le\b", histogram)


def test_every_metric_stands_on_the_dashboard(labels: Mapping[str, Mapping[str, set[str]]]) -> None:
    shown = " ".join(query for _, query in _panels())
    ours = {_family(name) for name in labels if name.startswith("countersign_")}
    assert {name for name in ours if name not in shown} == set()


def test_panels_of_the_dashboard_do_not_cover_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Turns", "Model", "Tools", "Approvals", "Platforms", "Process"]


def test_the_guide_has_every_metric_with_its_labels_and_no_other(
    labels: Mapping[str, Mapping[str, set[str]]],
) -> None:
    there = {_family(name): set(known) - {"le"} for name, known in labels.items()}
    told: dict[str, set[str]] = {}
    for row in re.findall(r"^\| (`(?:countersign|process)_.*)$", GUIDE, re.MULTILINE):
        names, given, *_ = row.split(" | ")
        for name in re.findall(r"`(\w+)`", names):
            told[name] = set(re.findall(r"`(\w+)`", given))
    assert told == there


def test_the_guide_says_what_to_do_about_every_alert() -> None:
    explained = set(re.findall(r"^\| `(Countersign\w+)` \|", GUIDE, re.MULTILINE))
    assert explained == {rule["alert"] for rule in _rules()}
    for rule in _rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"]


def test_prometheus_is_told_where_the_metrics_and_the_alerts_are() -> None:
    (job,) = SCRAPING["scrape_configs"]
    assert (job["job_name"], job["metrics_path"]) == ("countersign", "/metrics")
    assert all((ROOT / "deploy/prometheus" / name).exists() for name in SCRAPING["rule_files"])


def _family(sample: str) -> str:
    """A metric as the guide names it: a histogram without its parts."""
    if not sample.startswith("countersign_"):
        return sample
    ending = next((each for each in HISTOGRAM if sample.endswith(each)), "")
    return sample.removesuffix(ending)
