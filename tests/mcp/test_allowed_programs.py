"""Programs that the operator has allowed on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.errors import SettingsError
from bot.mcp.config.checks import AllowedPrograms


def test_an_allowed_program_is_known_to_the_next_process_too(tmp_path: Path) -> None:
    path = tmp_path / "config/allowed.txt"
    programs, beside = AllowedPrograms(("uvx",), path), AllowedPrograms((), path)
    assert "uvx" in programs
    assert "npx" not in programs
    programs.allow("npx")
    programs.allow("npx")
    assert "npx" in programs
    assert "npx" not in beside
    beside.refresh()
    assert "npx" in beside
    assert "uvx" not in beside
    assert path.read_text().count("npx\n") == 1
    assert path.stat().st_mode & 0o777 == 0o644, "the bot may be another user"


def test_the_operator_may_write_comments_and_take_programs_back(tmp_path: Path) -> None:
    path = tmp_path / "allowed.txt"
    path.write_text("# npx\n\n  uvx  \n/opt/my server/run\n")
    programs = AllowedPrograms((), path)
    assert "uvx" in programs
    assert "/opt/my server/run" in programs
    assert "npx" not in programs
    path.write_text("")
    programs.refresh()
    assert "uvx" not in programs


@pytest.mark.parametrize("program", ["", "a\nnpx", " npx", "# npx", "n\u200bpx\u0000"])
def test_one_program_is_never_two_lines(tmp_path: Path, program: str) -> None:
    programs = AllowedPrograms((), tmp_path / "allowed.txt")
    with pytest.raises(SettingsError):
        programs.allow(program)
    assert not (tmp_path / "allowed.txt").exists()


def test_a_file_that_cannot_be_used_is_an_error_with_its_setting(tmp_path: Path) -> None:
    path = tmp_path / "allowed.txt"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="MCP_ALLOWED_COMMANDS_FILE"):
        AllowedPrograms((), path)
    path.write_text("x" * 100_000)
    with pytest.raises(SettingsError, match="too large"):
        AllowedPrograms((), path)
    (tmp_path / "file").write_text("")
    programs = AllowedPrograms((), tmp_path / "file/allowed.txt")
    with pytest.raises(SettingsError, match="MCP_ALLOWED_COMMANDS"):
        programs.allow("npx")
