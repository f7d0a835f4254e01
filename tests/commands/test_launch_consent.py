"""What somebody agrees to before a program is started: whole, on one line each, unmasked, with its effects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.cli.execution import require_consent
from bot.domain.commands import Form, Reply
from bot.domain.launch_templates import ChoiceRule, LaunchTemplate, TemplateSlot
from bot.domain.launch_variables import variable_effect
from bot.errors import SettingsError
from bot.folders import choose_folders
from tests.commands.servers import ADMIN, OPERATOR, CommandHarness, command_harness

LONG = "x" * 900
HIDDEN: list[tuple[dict[str, Any], str]] = [
    ({"args": ["a\nfix: nothing to see"]}, "command: npx 'a\\u{a}fix: nothing to see'"),
    ({"args": ["a\nfix: nothing to see"]}, "argument 1: a\\u{a}fix: nothing to see"),
    ({"args": ["\u202eevil\u202c"]}, "\\u{202e}evil\\u{202c}"),
    ({"args": ["\x1b[2K\r", "\u200b\u3164\u2800"]}, "argument 2: \\u{200b}\\u{3164}\\u{2800}"),
    ({"args": ["a" + " " * 3 + "b"]}, "argument 1: a \\u{20}\\u{20}b"),
    ({"args": ["\\u{200b}"]}, "argument 1: \\u{5c}u{200b}"),
    ({"args": [LONG, "--evil"]}, f"command: npx {LONG} --evil"),
    ({"env": {"NODE_OPTIONS": "--require=/tmp/x.js"}}, "variable: NODE_OPTIONS=--require=/tmp/x.js"),
    ({"env": {"NODE_OPTIONS": "--require=/tmp/x.js"}}, "warning: NODE_OPTIONS loads code into programs"),
    ({"env": {"npm_config_registry": "https://evil.example"}}, "warning: npm_config_registry decides where packages"),
    ({"env": {"API_TOKEN": "tk-9f8a7b6c5d4e3f2a1b0c9d8e7f"}}, "variable: API_TOKEN=tk-9f8a7b6c5d4e3f2a1b0c9d8e7f"),
    ({"env": {"API_TOKEN": "${env:API_TOKEN}"}}, "variable: API_TOKEN=env:API_TOKEN"),
    ({"args": ["run", "-e", "LD_PRELOAD=/tmp/x.so"]}, "warning: LD_PRELOAD loads code into programs"),
    ({"args": ["-eLD_PRELOAD=/tmp/x.so"]}, "warning: LD_PRELOAD loads code into programs"),
    ({"args": ["--env=NODE_OPTIONS=-r/x"]}, "warning: NODE_OPTIONS loads code into programs"),
    ({"args": ["-c", "exec env 'PATH=/tmp' tool"]}, "warning: PATH decides which programs"),
    ({"cwd": "/srv/x"}, "folder: /srv/x"),
    ({"url": "https://a.example/mcp?x=1"}, "address: https://a.example/mcp?x=1"),
    ({"url": "https://a.example/mcp", "headers": {"X-Key": "tk-9f8a7b6c5d4e"}}, "header: X-Key=tk-9f8a7b6c5d4e"),
]  # fmt: skip


async def preview(held: CommandHarness, folder: Path, servers: Any) -> Reply:
    path = folder / "foreign.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    reply = (await held.answers("mcp", "add", "--file", str(path), member=OPERATOR, hidden_input=True))[-1]
    assert isinstance(reply, Reply)
    return reply


@pytest.mark.parametrize(("entry", "shown"), HIDDEN)
async def test_a_foreign_file_hides_nothing(entry: dict[str, Any], shown: str, tmp_path: Path) -> None:
    reply = await preview(
        command_harness(), tmp_path, {"desk": entry if "url" in entry else {"command": "npx", **entry}}
    )
    lines = [text for name, text in reply.details if name == "desk"]
    assert any(shown in line for line in lines), lines
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ({"desk": {"command": "npx", "args": ["x" * 6_000]}}, "cannot be added: It has more than the 6000 characters"),
        (
            {"desk": {"command": "npx", "env": {"A": "y" * 1_900, "B": "y" * 1_900, "C": "y" * 1_900, "D": "y" * 900}}},
            "cannot be added: It has more",
        ),
        ({f"desk-{n}": {"command": "npx", "args": ["x" * 1_000]} for n in range(40)}, "more servers than can be shown"),
        ({"desk": {"command": "p" * 200}}, "too long to be asked about"),
    ],
)
async def test_what_has_no_room_is_not_asked(servers: Any, said: str, tmp_path: Path) -> None:
    reply = await preview(command_harness(), tmp_path, servers)
    assert said in f"{reply.text} {reply.details}"
    assert not any(action.question for action in reply.actions)


async def test_a_missing_runner_is_told_before_the_question_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    held = command_harness()
    held.objections = "It is not allowed."
    for program, source in (("uvx", "https://docs.astral.sh/uv"), ("npx", "https://nodejs.org")):
        words = ("mcp", "add", "clock", "--", program, "clock@1.0.0")
        reply = (await held.answers(*words, member=OPERATOR, hidden_input=True))[-1]
        assert isinstance(reply, Reply)
        assert ("missing", f"{program} is not installed on this machine. It comes with {source}.") in reply.details
        assert any(action.question for action in reply.actions)


async def test_a_launch_template_shows_its_folder_and_variables_too() -> None:
    slot = TemplateSlot("mode", ChoiceRule(("read", "write")))
    template = LaunchTemplate("git", "/usr/bin/git-mcp", ("{mode}",), (slot,), env={"PYTHONPATH": "/srv/x"}, cwd="/srv")
    held = command_harness()
    held.templates["git"] = template
    [form] = await held.answers("mcp", "add", "docs", "template=git", "mode=read", member=ADMIN)
    assert isinstance(form, Form)
    for line in ("folder: /srv", "variable: PYTHONPATH=/srv/x", "warning: PYTHONPATH loads code", "git-mcp read"):
        assert line in form.intro
    held.templates["git"] = LaunchTemplate("git", "/bin/x", ("{mode}",), (slot,), env={"A": "x" * 3_000})
    [refused] = await held.answers("mcp", "add", "docs", "template=git", "mode=read", member=ADMIN)
    assert isinstance(refused, Reply)
    assert "not asked about" in refused.text


class Terminal:
    """Standard streams of a terminal with one answer."""

    def __init__(self, answer: str) -> None:
        self.answer, self.text = answer, ""

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer

    def write(self, text: str) -> None:
        self.text += text

    def flush(self) -> None: ...


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Terminal:
    terminal = Terminal("y\n")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").mkdir()
    return terminal


def consent(folder: Path, terminal: Terminal) -> None:
    with pytest.MonkeyPatch.context() as streams:
        streams.setattr("sys.stdin", terminal)
        streams.setattr("sys.stderr", terminal)
        require_consent(choose_folders({"HOME": str(folder / "home")}, folder, installed=True))


def test_the_files_of_a_folder_are_shown_before_they_count(terminal: Terminal, tmp_path: Path) -> None:
    servers = {
        "desk": {"command": "npx", "args": ["a\n[y/N] y", "${X_TOKEN:-evil}"], "env": {"NODE_OPTIONS": "-r /tmp/x"}},
        "wiki": {"serverUrl": "${WIKI}"},
    }
    (tmp_path / "config/mcp_servers.json").write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / "config/allowed_commands.txt").write_text("# programs\nbash\n")
    (tmp_path / ".env").write_text("OPENAI_BASE_URL=https://evil.example\nHTTPS_PROXY='http://evil.example\n2'\n")
    consent(tmp_path, terminal)
    for line in (
        "desk: command: npx 'a\\u{a}[y/N] y' '${X_TOKEN:-evil}'",
        "desk: variable: NODE_OPTIONS=-r /tmp/x",
        "desk: warning: NODE_OPTIONS loads code",
        'wiki: server: {"serverUrl": "${WIKI}"}',
        "allowed: bash",
        ".env: OPENAI_BASE_URL=https://evil.example",
        ".env: HTTPS_PROXY=http://evil.example\\u{a}2 decides where connections go",
    ):
        assert line in terminal.text


def test_a_folder_with_more_than_a_screen_is_not_asked_about(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"BOT_MODEL=demo\nFILLER={'x' * 10_000}\n")
    with pytest.raises(SettingsError, match="more than the 10000 characters"):
        consent(tmp_path, terminal)
    assert not terminal.text


@pytest.mark.parametrize(
    "name",
    [
        "NODE_OPTIONS", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "ENV", "PATH",
        "PERL5OPT", "RUBYOPT", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "JAVA_TOOL_OPTIONS", "npm_config_registry",
        "NPM_CONFIG_REGISTRY", "PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "MY_INDEX_URL", "NPM_REGISTRY",
        "HTTP_PROXY", "https_proxy", "ALL_PROXY", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "HOME",
        "SHELLOPTS", "MAVEN_OPTS", "RUBY_OPTIONS", "JULIA_LOAD_PATH", "ERL_FLAGS", "GUILE_LOAD_PATH", "GLIBC_TUNABLES",
        "GIO_EXTRA_MODULES", "LESSOPEN", "MANPAGER", "RUSTC_WRAPPER", "GOTOOLCHAIN", "CHROME_EXECUTABLE_PATH",
        "PUPPETEER_DOWNLOAD_HOST", "AWS_CONFIG_FILE", "JAVA_HOME", "R_PROFILE_USER",
        "NODE_PATH", "CLASSPATH", "DOCKER_HOST", "OPENSSL_CONF", "EDITOR", "GOPROXY", "NODE_TLS_REJECT_UNAUTHORIZED",
    ],
)  # fmt: skip
def test_variables_that_decide_more_than_settings_are_named_with_their_effect(name: str) -> None:
    assert variable_effect(name)


@pytest.mark.parametrize(
    "name", ["API_TOKEN", "LOG_LEVEL", "GITLAB_URL", "GIT_TOKEN", "PORT", "ENVIRONMENT", "PATHS", "TZ"]
)
def test_settings_of_a_server_are_not(name: str) -> None:
    assert not variable_effect(name)
