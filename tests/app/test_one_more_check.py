"""A new check needs one row, with its name and its probe. All that show checks have it then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.app import doctor
from bot.app.doctor import examine_all, examine_subjects
from bot.examination import CheckDoubtful, CheckStatus
from bot.mcp import doctor as server_doctor
from bot.settings import Settings, read_settings


async def late(_settings: Settings) -> str:
    raise CheckDoubtful("It is late.", "go home")


async def test_a_row_is_all_that_a_check_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "WEB_CHECKS", (*doctor.WEB_CHECKS, ("hour", late)))
    slow = ("pace", lambda _server: iter([("It is slow.", "wait")]))
    monkeypatch.setattr(server_doctor, "WARNINGS", (*server_doctor.WARNINGS, slow))
    servers = tmp_path / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"s": {"command": "no-such-program"}}}))
    settings = read_settings(
        mcp_servers_file=servers, database_url=f"sqlite:///{tmp_path / 'own.db'}", web_host="127.0.0.1", port=0
    )

    await examine_all(settings, as_json=True)
    found: dict[str, Any] = {}
    for line in capsys.readouterr().out.splitlines():
        check = json.loads(line)
        found[f"{check.pop('subject')} · {check.pop('name')}"] = check
    assert found["web · hour"] == {"finding": "warning", "detail": "It is late.", "fix": "go home", "seconds": None}
    assert found["s · pace"] == {"finding": "warning", "detail": "It is slow.", "fix": "wait", "seconds": None}

    assert await examine_subjects(settings, ["web"], as_json=False, prefix="  ") is not CheckStatus.WELL
    assert "  ! web · hour  It is late. Fix: go home\n" in capsys.readouterr().out
