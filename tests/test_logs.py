"""Format and destination of log lines."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.errors import CountersignError
from bot.i18n import gettext_lazy, use_language
from bot.logs import in_context, log_to_file, log_to_stderr, out_of_context, redact_logs

LIBRARIES = ("alembic", "httpx2", "httpcore2", "mcp", "openai", "anthropic", "asyncio")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in LIBRARIES}
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, each in levels.items():
        logging.getLogger(name).setLevel(each)


def test_without_a_terminal_every_record_is_one_json_object_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", "auto")
    logging.getLogger("bot.part").warning("two\nlines of %s", "Zoë")
    [line] = capsys.readouterr().err.splitlines()
    entry = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", entry.pop("time"))
    assert entry == {"level": "warning", "logger": "bot.part", "message": "two\nlines of Zoë"}


def test_an_exception_is_logged_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", "json")
    try:
        int("broken")
    except ValueError:
        logging.getLogger("bot").exception("it failed")
    entry = json.loads(capsys.readouterr().err)
    assert entry["message"] == "it failed"
    assert entry["traceback"].startswith("Traceback")
    assert entry["traceback"].endswith("ValueError: invalid literal for int() with base 10: 'broken'")


@pytest.mark.parametrize("style", ["json", "text"])
def test_lines_are_english_where_the_task_speaks_to_a_viewer(style: str, capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", style)
    cause = gettext_lazy("The app is not installed in that Slack workspace.")
    error = CountersignError(cause, gettext_lazy("install it at /slack/install"))
    with use_language("ja"):
        assert str(cause) != cause.english, "the text is in the catalogue"
        try:
            raise error
        except CountersignError:
            logging.getLogger("bot").exception("not sent: %s (%s)", error, cause)
    lines = capsys.readouterr().err
    assert f"not sent: {cause.english} Fix: install it at /slack/install ({cause.english})" in lines
    assert lines.isascii()


def test_a_terminal_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log_to_stderr("info", "auto")
    logging.getLogger("bot.part").error("no luck")
    assert re.fullmatch(r"[\d-]+ [\d:,]+ ERROR   bot\.part: no luck\n", terminal.getvalue())


def test_json_on_a_terminal_and_text_elsewhere_are_there_for_the_asking(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log_to_stderr("info", "text")
    logging.getLogger("bot").error("as text")
    assert capsys.readouterr().err.endswith("bot: as text\n")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    log_to_stderr("info", "json")
    logging.getLogger("bot").error("as json")
    assert json.loads(terminal.getvalue())["message"] == "as json"


def test_a_second_setup_replaces_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("info", "text")
    log_to_stderr("info", "text")
    logging.getLogger("bot").error("once")
    assert capsys.readouterr().err.count("once") == 1


@pytest.mark.parametrize(
    ("level", "kept"),
    [("debug", ["debug", "info", "error"]), ("info", ["info", "error"]), ("error", ["error"])],
)
def test_the_level_decides_which_of_our_lines_are_logged(
    capsys: pytest.CaptureFixture[str], level: str, kept: list[str]
) -> None:
    log_to_stderr(level, "json")
    for each in ("debug", "info", "error"):
        logging.getLogger("bot").log(logging.getLevelName(each.upper()), each)
    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == kept


@pytest.mark.parametrize("library", LIBRARIES)
def test_requests_that_libraries_make_are_not_logged_even_for_debugging(
    capsys: pytest.CaptureFixture[str], library: str
) -> None:
    log_to_stderr("debug", "json")
    logging.getLogger(f"{library}.client").info("POST https://host with headers")
    assert capsys.readouterr().err == ""
    logging.getLogger(f"{library}.client").warning("trouble")
    assert json.loads(capsys.readouterr().err)["message"].endswith("trouble")
    log_to_stderr("error", "json")
    logging.getLogger(f"{library}.client").warning("trouble")
    assert capsys.readouterr().err == ""


def test_a_file_gets_utf8_text_and_nothing_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new folder" / "chat.log"
    log_to_file("info", path)
    logging.getLogger("bot").warning("雨 and half a character \ud83d")
    assert path.read_text(encoding="utf-8").endswith("WARNING bot: 雨 and half a character \\ud83d\n")
    assert capsys.readouterr().err == ""


def test_a_file_that_cannot_be_written_leaves_the_terminal_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "chat.log"
    log_to_file("info", path)
    path.unlink()
    path.mkdir()
    logging.getLogger("bot").warning("lost")
    assert capsys.readouterr().err == ""


def test_a_file_stays_below_two_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "chat.log"
    log_to_file("info", path)
    for n in range(40):
        logging.getLogger("bot").info("%d %s", n, "x" * 100_000)
    files = list(tmp_path.iterdir())
    assert sum(file.stat().st_size for file in files) < 2_000_000
    assert "INFO    bot: 39 x" in path.read_text(encoding="utf-8")


def test_no_line_leaves_with_a_secret_in_message_arguments_or_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    known = ["hunter22"]

    def redact(text: str) -> str:
        for secret in known:
            text = text.replace(secret, "***")
        return text

    log_to_stderr("info", "json")
    redact_logs(redact)
    redact_logs(redact)
    try:
        int("learnt0later")
    except ValueError:
        known.append("learnt0later")
        logging.getLogger("bot").exception("it was %s", "hunter22")
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "it was ***" in line
    assert "ValueError: invalid literal" in line
    assert "hunter22" not in line
    assert "learnt0later" not in line


async def test_every_line_has_its_context_also_in_tasks_that_were_started_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr("info", "json")
    log = logging.getLogger("bot")

    async def work() -> None:
        log.info("inside")

    with in_context(request="r-1"):
        with in_context(turn="t-1", conversation="slack:T1:C1:1"):
            task = asyncio.create_task(work())
        log.info("between")
        with out_of_context():
            outliving = asyncio.create_task(work())
    log.info("outside")
    await asyncio.gather(task, outliving)
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    about = {"turn", "conversation", "request"}
    assert [(entry["message"], {name: entry[name] for name in about & entry.keys()}) for entry in entries] == [
        ("between", {"request": "r-1"}),
        ("outside", {}),
        ("inside", {"turn": "t-1", "conversation": "slack:T1:C1:1", "request": "r-1"}),
        ("inside", {}),
    ]


def test_in_text_the_context_of_a_line_is_short_and_stands_before_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr("info", "text")
    with in_context(turn="0123456789abcdef", conversation="slack:T1:C1:1"):
        try:
            int("broken")
        except ValueError:
            logging.getLogger("bot").exception("it failed")
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.endswith("bot: it failed [turn=0123456789ab conversation=slack:T1:C1:1]")
    assert second.startswith("Traceback")


def test_a_file_that_another_process_has_replaced_is_left_for_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "countersign.log"
    log_to_file("info", path)
    logging.getLogger("bot.here").info("one")
    path.rename(tmp_path / "countersign.log.1")
    logging.getLogger("bot.here").info("two")  # no new file exists yet
    path.unlink()
    path.write_text("from elsewhere\n")
    logging.getLogger("bot.here").info("three")
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["elsewhere", "three"]
    assert "two" not in (tmp_path / "countersign.log.1").read_text()
