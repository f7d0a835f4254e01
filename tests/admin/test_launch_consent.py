"""What somebody agrees to before a program is started: whole, on one line each, unmasked, with its effects."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from bot.cli.execution import require_consent
from bot.domain.commands import Form, Reply
from bot.domain.launch_templates import ChoiceRule, LaunchTemplate, TemplateSlot
from bot.domain.launch_variables import argument_effects, variable_effect
from bot.domain.servers import StdioTransport
from bot.errors import SettingsError
from bot.folders import choose_folders
from bot.mcp.config.file import load_servers
from tests.admin.servers import ADMIN, OPERATOR, CommandHarness, command_harness

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
    ({"args": ["--registry", "https://evil.example"]}, "warning: --registry decides where packages come from"),
    ({"cwd": "/srv/x"}, "folder: /srv/x"),
    ({"url": "https://a.example/mcp?x=1"}, "address: https://a.example/mcp?x=1"),
    ({"url": "https://a.example/mcp", "headers": {"X-Key": "tk-9f8a7b6c5d4e"}}, "header: X-Key=tk-9f8a7b6c5d4e"),
]  # fmt: skip


async def preview(held: CommandHarness, folder: Path, servers: Any) -> Reply:
    path = folder / "foreign.json"
    path.write_text(json.dumps({"mcpServers": servers}))
    return await held.run("mcp", "add", "--file", str(path), member=OPERATOR, hidden_input=True)


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
        ({"desk": {"command": "npx", "env": {"BAD NAME": "x"}}}, "'BAD NAME' cannot be used as a name. Each is NAME="),
        ({"desk": {"command": "npx", "env": {"1A": "env:X"}}}, "'1A' cannot be used as a name. Each is NAME="),
    ],
)
async def test_what_has_no_room_or_no_name_is_not_asked(servers: Any, said: str, tmp_path: Path) -> None:
    reply = await preview(command_harness(), tmp_path, servers)
    assert said in f"{reply.text} {reply.details}"
    assert not any(action.question for action in reply.actions)


async def test_a_missing_runner_is_told_before_the_question_with_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    held = command_harness()
    held.objections = "It is not allowed."
    for program, source in (("uvx", "https://docs.astral.sh/uv"), ("npx", "https://nodejs.org")):
        words = ("mcp", "add", "clock", "--", program, "clock@1.0.0")
        reply = await held.run(*words, member=OPERATOR, hidden_input=True)
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


@pytest.mark.parametrize(
    "text",
    [
        '// mine\n{"mcpServers": {"desk": {"command": "sh", "args": ["-c", "x"],},},}',
        '{"mcpServers": [{"name": "desk", "command": "sh", "args": ["-c", "x"]}]}',
        '{"extensions": {"desk": {"cmd": "sh", "args": ["-c", "x"], "type": "stdio"}}}',
        '{"desk": {"command": ["sh", "-c", "x"]}}',
    ],
)
def test_a_program_is_shown_before_it_counts_in_each_form_of_the_file(
    text: str, terminal: Terminal, tmp_path: Path
) -> None:
    path = tmp_path / "config/mcp_servers.json"
    path.write_text(text)
    [server] = load_servers(path, {}).entries
    assert server.config.transport == StdioTransport("sh", ("-c", "x"))
    consent(tmp_path, terminal)
    assert "desk: command: sh -c x" in terminal.text


def test_a_folder_with_more_than_a_screen_is_not_asked_about(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"BOT_MODEL=demo\nFILLER={'x' * 10_000}\n")
    with pytest.raises(SettingsError, match="more than the 10000 characters"):
        consent(tmp_path, terminal)
    assert not terminal.text


MORE_THAN_SETTINGS = """
    NODE_OPTIONS LD_PRELOAD DYLD_INSERT_LIBRARIES PYTHONPATH PYTHONSTARTUP BASH_ENV ENV PATH PERL5OPT RUBYOPT
    GIT_SSH_COMMAND GIT_CONFIG_COUNT JAVA_TOOL_OPTIONS npm_config_registry NPM_CONFIG_REGISTRY PIP_INDEX_URL
    UV_INDEX_URL UV_DEFAULT_INDEX MY_INDEX_URL NPM_REGISTRY HTTP_PROXY https_proxy ALL_PROXY SSL_CERT_FILE
    NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE HOME SHELLOPTS MAVEN_OPTS RUBY_OPTIONS JULIA_LOAD_PATH ERL_FLAGS
    GUILE_LOAD_PATH GLIBC_TUNABLES GIO_EXTRA_MODULES LESSOPEN MANPAGER RUSTC_WRAPPER GOTOOLCHAIN
    CHROME_EXECUTABLE_PATH PUPPETEER_DOWNLOAD_HOST AWS_CONFIG_FILE JAVA_HOME R_PROFILE_USER NODE_PATH CLASSPATH
    DOCKER_HOST OPENSSL_CONF EDITOR GOPROXY NODE_TLS_REJECT_UNAUTHORIZED BASH_LOADABLES_PATH BASHOPTS FPATH
    MONO_PATH TCLLIBPATH CAML_LD_LIBRARY_PATH VIMINIT EXINIT EMACSLOADPATH GST_PLUGIN_PATH GHCRTS PSModulePath
    MAVEN_ARGS JUPYTER_PATH IPYTHONDIR CUDA_INJECTION64_PATH VK_LAYER_PATH P11_KIT_MODULE SASL_PATH TS_NODE_COMPILER
    RUSTC RUSTDOC RUSTFLAGS GOROOT GOPATH GOBIN GOENV VIRTUAL_ENV PYENV_ROOT PYENV_VERSION VOLTA_HOME NVM_DIR
    CLOUDSDK_PYTHON CHROME_PATH CHROME_BIN CHROME_EXECUTABLE MAKEFILES CFLAGS CMAKE_TOOLCHAIN_FILE LIBRARY_PATH
    COMPILER_PATH RUSTUP_TOOLCHAIN RUSTUP_DIST_SERVER GOVCS GOAUTH GONOPROXY CONDARC MAMBARC NIX_PATH NIX_CONFIG
    HOMEBREW_PREFIX HOMEBREW_BOTTLE_DOMAIN PUPPETEER_DOWNLOAD_BASE_URL GRADLE_USER_HOME CURL_HOME NETRC WGETRC
    AWS_SHARED_CREDENTIALS_FILE AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 DENO_DIR DENO_CERT KRB5_CONFIG KRB5CCNAME
    RESOLV_HOST_CONF path Path Http_Proxy Psmodulepath SCREENRC XONSHRC INPUTRC FZF_DEFAULT_COMMAND FZF_DEFAULT_OPTS
    PYTEST_ADDOPTS PYTEST_PLUGINS DJANGO_SETTINGS_MODULE GUNICORN_CMD_ARGS UWSGI_MODULE MPLBACKEND
    PLAYWRIGHT_BROWSERS_PATH SPARK_HOME HADOOP_CONF_DIR M2_HOME ANDROID_HOME OCAMLRUNPARAM PERLLIB PHP_INI_SCAN_DIR
    CXXFLAGS LDFLAGS CPPFLAGS CGO_LDFLAGS ASFLAGS FFLAGS C_INCLUDE_PATH CPATH GCC_EXEC_PREFIX PKG_CONFIG_PATH
    SENTRYCLI_CDNURL_MIRROR NODEJS_ORG_MIRROR ELECTRON_MIRROR FOO_PRELOAD MALLOC_PRELOAD APP_PLUGINS
    VAULT_PLUGIN_DIR ALSA_PLUGIN_PATH LV2_PATH LADSPA_PATH TERRAFORM_CONFIG TF_CLI_CONFIG_FILE ANSIBLE_CONFIG
    ANSIBLE_LIBRARY_PATH STARSHIP_CONFIG VSCODE_BIN LAUNCHER_WRAPPER FLASK_APP JIRA_SSL_VERIFY SSL_NO_VERIFY
    GNUPGHOME PGSERVICEFILE PSQLRC MYSQL_HOME TNS_ADMIN ODBCINI SUDO_ASKPASS SSH_ASKPASS DOCKER_CONFIG KUBECONFIG
    RUBYLIB TK_LIBRARY TCL_LIBRARY VIMRUNTIME GIO_MODULE_DIR NODE_V8_COVERAGE PGOPTIONS
"""
SETTINGS = """
    API_TOKEN LOG_LEVEL GITLAB_URL GIT_TOKEN PORT ENVIRONMENT PATHS TZ SEARCH_INDEX ELASTIC_INDEX GITHUB_TOKEN
    DB_PATH DATA_PATH API_KEY BASE_URL ALLOWED_PATHS NOTES_PATH GITHUB_PERSONAL_ACCESS_TOKEN SLACK_BOT_TOKEN
    SLACK_TEAM_ID NOTION_API_KEY OPENAI_API_KEY OPENAI_BASE_URL ANTHROPIC_API_KEY BRAVE_API_KEY TAVILY_API_KEY
    POSTGRES_URL DATABASE_URL DATABASE_PATH SQLITE_DB_PATH MEMORY_FILE_PATH OBSIDIAN_VAULT_PATH VAULT_PATH
    CHROMA_PATH CONFLUENCE_URL JIRA_URL JIRA_USERNAME JIRA_API_TOKEN JIRA_BASE_URL GITLAB_API_URL SENTRY_DSN
    SENTRY_ORG SENTRY_AUTH_TOKEN AWS_REGION AWS_PROFILE AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
    GOOGLE_APPLICATION_CREDENTIALS GOOGLE_CLIENT_ID GOOGLE_MAPS_API_KEY AZURE_TENANT_ID REDIS_URL REDIS_HOST
    REDIS_PORT MONGODB_URI MYSQL_HOST MYSQL_USER MYSQL_PASSWORD MYSQL_DATABASE PGHOST PGUSER PGPASSWORD PGDATABASE
    DEBUG VERBOSE TIMEOUT MAX_RESULTS PAGE_SIZE CACHE_DIR CACHE_TTL OUTPUT_DIR OUTPUT_PATH INPUT_PATH WORKSPACE
    WORKSPACE_PATH PROJECT_PATH PROJECT_ROOT REPO_PATH FILE_PATH LOG_PATH LOG_FILE LOG_FORMAT LANG LC_ALL TERM
    LANGUAGE LOCALE READ_ONLY ALLOWED_DIRS ALLOWED_HOSTS ENABLED_TOOLS FEATURE_FLAGS FEATURE_FLAG HTTP_PORT
    SERVER_NAME SERVER_PORT HOST HOSTNAME API_URL API_BASE API_VERSION USER_AGENT WEBHOOK_URL SLACK_WEBHOOK_URL
    COLLECTION_NAME MODEL MODEL_NAME EMBEDDING_MODEL EMAIL USERNAME PASSWORD SECRET_KEY CLIENT_SECRET TENANT_ID
    REGION SEARCH_OPTIONS QUERY_OPTIONS IRC DATA_SRC SRC IMG_SRC SCHEMA_REGISTRY_URL SEARCH_PATH STORAGE_PATH
    UPLOAD_PATH BACKUP_PATH HTTP_PATH BASE_PATH API_PATH STATE_PATH TOKEN_PATH CREDENTIALS_PATH
    GOOGLE_CREDENTIALS_PATH GMAIL_CREDENTIALS_PATH KEY_PATH RUN_ON_STARTUP NODE_ENV GIT_AUTHOR_NAME GIT_API_KEY
    INIT_DATA MODE SCOPE CALENDAR_ID
"""


@pytest.mark.parametrize("name", MORE_THAN_SETTINGS.split())
def test_variables_that_decide_more_than_settings_are_named_with_their_effect(name: str) -> None:
    assert variable_effect(name)
    assert variable_effect(name.lower())


@pytest.mark.parametrize("name", SETTINGS.split())
def test_settings_of_a_server_are_not(name: str) -> None:
    assert not variable_effect(name)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("docker run -e LD_PRELOAD img", "LD_PRELOAD loads code"),
        ("docker run --env LD_PRELOAD img", "LD_PRELOAD loads code"),
        ("docker run -eLD_PRELOAD img", "LD_PRELOAD loads code"),
        ("sh run 'setenv PATH /x'", "PATH decides which programs"),
        ("sh run 'export PATH'", "PATH decides which programs"),
        ("docker run --env-file x img", "--env-file decides where programs find their settings"),
        ("npx --registry http://e p", "--registry decides where packages"),
        ("npx --registry=http://e p", "--registry decides where packages"),
        ("uvx --index-url http://e p", "--index-url decides where packages"),
        ("uvx --extra-index-url=x p", "--extra-index-url decides where packages"),
        ("uvx --index https://e p", "--index decides where packages"),
        ("node --node-options=-rx", "--node-options loads code"),
        ("java -javaagent:/x.jar -jar a", "-javaagent loads code"),
        ("node --require ./x s.js", "--require loads code"),
        ("node -r ./x s.js", "-r loads code"),
        ("node --import x s.js", "--import loads code"),
        ("node --loader x s.js", "--loader loads code"),
        ("npx --call x", "--call loads code"),
        ("python -m http.server", "-m loads code"),
        ("python3.11 -c 'import os'", "-c loads code"),
        ("python -cimport", "-c loads code"),
        ("/usr/bin/python -W ignore -u -c x", "-c loads code"),
        ("uv run python -c x", "-c loads code"),
        ("perl -e x", "-e loads code"),
        ("bash -lc x", "-lc loads code"),
        ("powershell -EncodedCommand x", "-EncodedCommand loads code"),
        ("cmd /c x", "/c loads code"),
        ("env -S 'a b'", "-S decides which programs"),
        ("env -i -S x", "-S decides which programs"),
        ("docker run -v /:/host img", "-v lets a container reach this machine"),
        ("docker run -v/:/host img", "-v lets a container"),
        ("docker run --volume=/:/h i", "--volume lets a container"),
        ("docker run -v /var/run/docker.sock:/s i", "-v lets a container"),
        ("docker run --mount type=bind,src=/,dst=/h i", "--mount lets a container"),
        ("docker run --privileged i", "--privileged lets a container"),
        ("docker run --network=host i", "--network lets a container"),
        ("docker run --pid host i", "--pid lets a container"),
        ("docker run --device /dev/sda i", "--device lets a container"),
        ("python server.py -c conf", ""),
        ("python -u server.py -c conf.json", ""),
        ("npx -y pkg -m x", ""),
        ("npx -y @modelcontextprotocol/server-filesystem /home", ""),
        ("uvx mcp-server-git --repository /r", ""),
        ("docker run -i --rm -v /home/me:/data img", ""),
        ("docker run -e API_KEY img", ""),
        ("node build/index.js -e dev", ""),
        ("git push -m x", ""),
        ("x --index docs --device cuda", ""),
    ],
)
def test_arguments_that_decide_more_than_settings_are_named_with_their_effect(line: str, named: str) -> None:
    effects = [f"{name} {effect}" for name, effect in argument_effects(shlex.split(line)).items()]
    assert any(effect.startswith(named) for effect in effects) if named else not effects, effects
