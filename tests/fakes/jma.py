"""A weather agency on a loopback socket: the three paths of the Japan Meteorological Agency, in the shape of its files.

    with FakeJma() as jma:
        ...  # WEATHER_BASE_URL=jma.base_url
        jma.answers["130000"] = Slow(10)
        assert jma.count("forecast/130000") == 1

It runs in threads of its own, so it serves async tests and programs in other processes alike. `refusing()` is
an address that refuses connections.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

JST = timezone(timedelta(hours=9))
AREA_PATH = "/bosai/common/const/area.json"
FOLDER = "/bosai/forecast/data/"


@dataclass(frozen=True)
class Status:
    """An HTTP status other than 200, with a body that must never be shown."""

    code: int
    body: str = "internal detail of the service"


@dataclass(frozen=True)
class Raw:
    """Status 200 and these bytes."""

    body: bytes


@dataclass(frozen=True)
class Slow:
    """No answer for some seconds, then the correct one if the client still waits."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """A body that ends before its announced length."""


Behaviour = Status | Raw | Slow | Cut


@dataclass(frozen=True)
class Day:
    """A day as the agency's codes and words have it."""

    code: str
    words: str
    rain: int
    low: int
    high: int


SUNNY_THEN_RAIN = (
    Day("100", "晴れ", 10, 15, 23),
    Day("101", "晴れ　時々　くもり", 20, 14, 22),
    Day("300", "雨", 80, 12, 16),
    Day("201", "くもり　時々　晴れ", 40, 11, 18),
    Day("211", "くもり　後　晴れ", 30, 10, 19),
    Day("100", "晴れ", 0, 9, 20),
    Day("100", "晴れ", 10, 9, 21),
)

OFFICES: dict[str, dict[str, Any]] = {
    "014030": {"name": "十勝地方", "enName": "Tokachi", "officeName": "帯広測候所", "parent": "010100"},
    "014100": {
        "name": "釧路・根室地方",
        "enName": "Kushiro Nemuro",
        "officeName": "釧路地方気象台",
        "parent": "010100",
    },
    "016000": {
        "name": "石狩・空知・後志地方",
        "enName": "Ishikari Sorachi Shiribeshi",
        "officeName": "札幌管区気象台",
        "parent": "010100",
    },
    "130000": {"name": "東京都", "enName": "Tokyo", "officeName": "気象庁", "parent": "010300"},
    "230000": {"name": "愛知県", "enName": "Aichi", "officeName": "名古屋地方気象台", "parent": "010400"},
    "260000": {"name": "京都府", "enName": "Kyoto", "officeName": "京都地方気象台", "parent": "010600"},
    "270000": {"name": "大阪府", "enName": "Osaka", "officeName": "大阪管区気象台", "parent": "010600"},
    "400000": {"name": "福岡県", "enName": "Fukuoka", "officeName": "福岡管区気象台", "parent": "010900"},
}


def area_file() -> dict[str, Any]:
    """Return a table of areas with a few offices, and municipalities that only this table contains."""
    return {
        "centers": {
            "010100": {
                "name": "北海道地方",
                "enName": "Hokkaido",
                "officeName": "札幌管区気象台",
                "children": ["014030"],
            },
            "010300": {
                "name": "関東甲信地方",
                "enName": "Kanto Koshin",
                "officeName": "気象庁",
                "children": ["130000"],
            },
        },
        "offices": {code: {**office, "children": []} for code, office in OFFICES.items()},
        "class10s": {
            "130010": {"name": "東京地方", "enName": "Tokyo", "parent": "130000", "children": ["130011"]},
            "260010": {"name": "南部", "enName": "Southern Region", "parent": "260000", "children": ["260011"]},
        },
        "class15s": {
            "130011": {"name": "２３区西部", "enName": "Western Wards", "parent": "130010", "children": ["1311500"]},
            "260011": {"name": "京都・亀岡", "enName": "Kyoto Kameoka", "parent": "260010", "children": ["2620600"]},
        },
        "class20s": {
            "1311500": {"name": "杉並区", "enName": "Suginami City", "kana": "すぎなみく", "parent": "130011"},
            "1320600": {"name": "府中市", "enName": "Fuchu City", "kana": "ふちゅうし", "parent": "130011"},
            "2620600": {"name": "亀岡市", "enName": "Kameoka City", "kana": "かめおかし", "parent": "260011"},
            "2629900": {"name": "府中市", "enName": "Fuchu City", "kana": "ふちゅうし", "parent": "260011"},
        },
    }


def forecast_file(
    code: str, days: Sequence[Day] = SUNNY_THEN_RAIN, *, issued_at: datetime | None = None
) -> list[dict[str, Any]]:
    """Return an office's two publications at eleven in the morning: three days, and the week from the next day.

    Offices have one part and one station here. The file of 014100 also holds the forecast of 014030.
    """
    issued = issued_at or datetime.now(JST).replace(hour=11, minute=0, second=0, microsecond=0)
    midnight = issued.replace(hour=0)
    office = OFFICES.get(code, {"name": code, "officeName": "気象庁"})
    parts = [(code, office["name"], "44132", str(office["officeName"])[:2])]
    if code == "014100":
        parts = [("014020", "釧路地方", "19432", "釧路"), ("014030", "十勝地方", "20432", "帯広")]
    dates = [midnight + timedelta(days=n) for n in range(len(days))]
    warmer = {part[0]: n * 2 for n, part in enumerate(parts)}
    six_hours = [midnight + timedelta(hours=h) for h in range(12, 48, 6)]

    def series(times: Sequence[datetime], rows: list[dict[str, Any]]) -> dict[str, Any]:
        return {"timeDefines": [time.isoformat() for time in times], "areas": rows}

    def part(values: dict[str, list[str]], code: str, name: str) -> dict[str, Any]:
        return {"area": {"name": name, "code": code}, **values}

    def temperatures(code: str) -> list[str]:
        high, low, next_high = days[0].high, days[1].low, days[1].high
        return [str(value + warmer[code]) for value in (high, high, low, next_high)]

    def week(key: str, code: str) -> list[str]:
        return ["", *(str((day.low if key == "low" else day.high) + warmer[code]) for day in days[2:])]

    soon = [
        series(
            [issued, *dates[1:3]],
            [
                part({"weatherCodes": [d.code for d in days[:3]], "weathers": [d.words for d in days[:3]]}, c, n)
                for c, n, _, _ in parts
            ],
        ),
        series(
            six_hours,
            [part({"pops": [str(days[(t - midnight).days].rain) for t in six_hours]}, c, n) for c, n, _, _ in parts],
        ),
        series(
            [midnight + timedelta(hours=9), midnight, dates[1], dates[1] + timedelta(hours=9)],
            [part({"temps": temperatures(c)}, s, n) for c, _, s, n in parts],
        ),
    ]
    later = [
        series(
            dates[1:],
            [
                part(
                    {
                        "weatherCodes": [d.code for d in days[1:]],
                        "pops": ["", *(str(d.rain) for d in days[2:])],
                        "reliabilities": ["", *("A" for _ in days[2:])],
                    },
                    c,
                    n,
                )
                for c, n, _, _ in parts
            ],
        ),
        series(
            dates[1:], [part({"tempsMin": week("low", c), "tempsMax": week("high", c)}, s, n) for c, _, s, n in parts]
        ),
    ]
    head = {"publishingOffice": office["officeName"], "reportDatetime": issued.isoformat()}
    return [{**head, "timeSeries": soon}, {**head, "timeSeries": later}]


def overview_file(code: str) -> dict[str, str]:
    """Return an overview of an office."""
    office = OFFICES[code]
    return {
        "publishingOffice": office["officeName"],
        "reportDatetime": datetime.now(JST).replace(hour=10, minute=37, second=0, microsecond=0).isoformat(),
        "targetArea": office["name"],
        "headlineText": "",
        "text": f"　本州付近は高気圧に覆われています。\n\n　{office['name']}は、晴れています。",
    }


@dataclass
class FakeJma:
    """The agency. `answers` maps a part of a path to how requests for it go wrong; "" is every path."""

    answers: dict[str, Behaviour] = field(default_factory=dict)
    forecasts: dict[str, Any] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    base_url: str = ""

    def __enter__(self) -> FakeJma:
        self._closing = threading.Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake._answer(self)

            def log_message(self, *args: Any) -> None:
                """Requests are in `requests`."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=lambda: self._server.serve_forever(poll_interval=0.02))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def count(self, part: str = "") -> int:
        """Number of requests that had `part` in their path."""
        return sum(part in path for path in self.requests)

    def file(self, path: str) -> Any:
        """Return the JSON at a path, None for an unknown one."""
        if path == AREA_PATH:
            return area_file()
        kind, _, name = path.removeprefix(FOLDER).partition("/")
        code = name.removesuffix(".json")
        if code not in OFFICES or (kind, code) == ("forecast", "014030"):
            return None
        match kind:
            case "forecast":
                return self.forecasts.get(code) or forecast_file(code)
            case "overview_forecast":
                return overview_file(code)
            case _:
                return None

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path
        self.requests.append(path)
        behaviour = next((each for part, each in self.answers.items() if part in path), None)
        value = self.file(path)
        status = 404 if value is None else 200
        body = b"not found" if value is None else json.dumps(value, ensure_ascii=False).encode()
        announced = 0
        match behaviour:
            case Status(code, text):
                status, body = code, text.encode()
            case Raw(raw):
                body = raw
            case Cut():
                announced = 100
            case Slow(seconds):
                self._closing.wait(seconds)
            case None:
                pass
        try:
            handler.send_response(status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(body) + announced))
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:
            pass  # The client closed the connection, as some tests do.


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """Return an address that refuses connections: bound, so that no other program gets it, and never listening."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"
