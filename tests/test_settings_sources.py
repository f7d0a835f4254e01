"""Settings from files, from the parts of a database's address, and under the names of other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.app.secrets import UsableSecrets
from bot.domain.approvals import ApprovalPolicy
from bot.errors import SettingsError
from bot.settings import find_ineffective_settings, read_environment, read_settings
from bot.storage.address import PostgresServer, read_address
from tests.app.program import bare

SECRET = "sk-test-4711-do-not-show"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare(tmp_path, monkeypatch)
    for name in ("CREDENTIALS_DIRECTORY", "MCP_CAPABILITIES_CACHE_TTL", "MCP_SECURITY_ALLOWED_SERVER_NAMES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write_files(folder: Path, **files: str) -> str:
    """Write these files to a folder and return its path."""
    made = folder / "kept"
    made.mkdir(exist_ok=True)
    for name, text in files.items():
        (made / name).write_text(text)
    return str(made)


class TestFiles:
    def test_each_file_is_the_variable_it_is_named_after_without_the_break_at_its_end(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(
            "SETTINGS_FOLDER", write_files(folder, openai_api_key=f"{SECRET}\n", ADMINS="slack:U1, slack:U2\n")
        )
        settings = read_settings()
        assert settings.openai_api_key is not None
        assert settings.openai_api_key.get_secret_value() == SECRET
        assert settings.admins == {"slack:U1", "slack:U2"}
        assert SECRET in settings.secrets
        assert SECRET not in repr(settings)

    def test_the_environment_wins_over_env_files_and_both_over_the_folder(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given = write_files(folder, bot_model="openai:file", log_level="error", web_host="10.0.0.1")
        (folder / ".env").write_text(f"SETTINGS_FOLDER={given}\nBOT_MODEL=openai:written\nLOG_LEVEL=debug\n")
        monkeypatch.setenv("BOT_MODEL", "openai:set")
        settings = read_settings()
        assert (settings.bot_model, settings.log_level, settings.web_host) == ("openai:set", "debug", "10.0.0.1")

    def test_the_credentials_of_a_systemd_unit_are_such_a_folder(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", write_files(folder, discord_token=SECRET))
        token = read_settings().discord_token
        assert token is not None
        assert token.get_secret_value() == SECRET

    def test_files_are_filled_into_the_servers_file_too_and_the_environment_wins_there_as_well(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SETTINGS_FOLDER", write_files(folder, tickets_token=SECRET, home="elsewhere"))
        monkeypatch.setenv("HOME", "/home/bot")
        environment = read_environment()
        assert (environment["TICKETS_TOKEN"], environment["HOME"]) == (SECRET, "/home/bot")

    def test_folders_and_hidden_files_are_passed_over(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # As Kubernetes mounts secrets: links to files in a folder whose name begins with dots.
        path = Path(write_files(folder, **{".hidden": "x"}))
        (path / "..2026").mkdir()
        (path / "..2026" / "bot_model").write_text("demo")
        (path / "bot_model").symlink_to("..2026/bot_model")
        monkeypatch.setenv("SETTINGS_FOLDER", str(path))
        assert read_settings().bot_model == "demo"
        assert not [name for name in read_environment() if name.startswith(".")]

    def test_a_folder_that_is_not_there_is_an_error_and_not_silence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SETTINGS_FOLDER", "/nowhere/at/all")
        with pytest.raises(SettingsError, match=r"The settings in /nowhere/at/all cannot be read: No such file"):
            read_settings()

    def test_a_mistake_in_a_file_is_told_without_what_is_in_it(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SETTINGS_FOLDER", write_files(folder, openai_base_url=SECRET, port="many"))
        with pytest.raises(SettingsError) as caught:
            read_settings()
        assert "OPENAI_BASE_URL" in caught.value.cause
        assert "PORT is 'many'" in caught.value.cause
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(("own", "servers"), [("kept", "kept"), ("kept/own", "kept"), ("kept", "kept/servers")])
    def test_the_bots_own_secrets_may_not_lie_where_servers_secrets_are_read_from(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, own: str, servers: str
    ) -> None:
        for each in (own, servers):
            (folder / each).mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("SETTINGS_FOLDER", own)
        monkeypatch.setenv("MCP_SECRET_FOLDER", servers)
        with pytest.raises(SettingsError, match=r"SETTINGS_FOLDER .* and MCP_SECRET_FOLDER .* are not apart"):
            read_settings()


class TestPartsOfAnAddress:
    def test_host_name_and_password_make_an_address_whatever_is_in_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {"HOST": "db.internal", "NAME": "bot", "USER": "b@t", "PASSWORD": "p/w#%?"}.items():
            monkeypatch.setenv(f"DB_{name}", value)
        settings = read_settings()
        assert settings.database_url == "postgresql://b%40t:p%2Fw%23%25%3F@db.internal:5432/bot"
        address = read_address(settings.database_url)
        assert isinstance(address, PostgresServer)
        assert address.name == "postgresql://db.internal/bot"
        assert {"p/w#%?", "p%2Fw%23%25%3F"} <= settings.secrets
        assert "p/w" not in repr(settings)

    @pytest.mark.parametrize(
        ("given", "address"),
        [
            ({"HOST": "db", "NAME": "bot"}, "postgresql://db:5432/bot"),
            ({"HOST": "db", "NAME": "bot", "USER": "ana", "PORT": "6432"}, "postgresql://ana@db:6432/bot"),
            ({"HOST": "::1", "NAME": "bot"}, "postgresql://[::1]:5432/bot"),
        ],
    )
    def test_what_is_left_out_stays_out(
        self, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], address: str
    ) -> None:
        for name, value in given.items():
            monkeypatch.setenv(f"DB_{name}", value)
        assert read_settings().database_url == address
        assert isinstance(read_address(address), PostgresServer)

    def test_the_password_may_be_in_a_file(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SETTINGS_FOLDER", write_files(folder, db_password="from-a-file\n"))
        for name, value in {"HOST": "db", "NAME": "bot", "USER": "bot"}.items():
            monkeypatch.setenv(f"DB_{name}", value)
        assert read_settings().database_url == "postgresql://bot:from-a-file@db:5432/bot"

    def test_an_address_in_one_piece_wins_and_a_name_without_a_host_means_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("DB_NAME", "bot")
        assert read_settings().database_url == "sqlite:///data/countersign.db"
        monkeypatch.setenv("DB_HOST", "db")
        monkeypatch.setenv("DATABASE_URL", "sqlite:///other.db")
        assert read_settings().database_url == "sqlite:///other.db"

    def test_a_host_without_a_database_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DB_HOST", "db")
        with pytest.raises(SettingsError, match="no database on it") as caught:
            read_settings()
        assert caught.value.fix == "set DB_NAME, or DATABASE_URL instead"


class TestOtherNames:
    def test_settings_may_be_written_as_properties(self, folder: Path) -> None:
        (folder / ".env").write_text(
            "mcp.approval.default-policy=ALWAYS_DENY\n"
            "mcp.approval.timeout=60s\n"
            f"mcp.encryption.key={SECRET}\n"
            "mcp.security.allowedServerNames=files,github\n"
            "mcp.capabilities.cache-ttl=2m\n"
            "mcp.session.idle-timeout=10m\n"
            "mcp.reconnection.max-attempts=3\n"
            "mcp.reconnection.initial-delay-ms=2500\n"
        )
        settings = read_settings()
        assert settings.mcp_approval_default_policy is ApprovalPolicy.ALWAYS_DENY
        assert settings.mcp_approval_timeout == 60
        assert settings.mcp_encryption_key is not None
        assert settings.mcp_encryption_key.get_secret_value() == SECRET
        assert settings.mcp_allowed_servers == {"files", "github"}
        assert settings.mcp_sync_interval == 120
        assert settings.mcp_session_idle_timeout == 600
        assert settings.mcp_reconnection_max_attempts == 3
        assert settings.mcp_reconnection_initial_delay_ms == 2500

    def test_the_name_in_the_guide_wins_over_another_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MCP_CAPABILITIES_CACHE_TTL", "2m")
        assert read_settings().mcp_sync_interval == 120
        monkeypatch.setenv("MCP_SYNC_INTERVAL", "7m")
        assert read_settings().mcp_sync_interval == 420

    def test_no_name_of_the_bots_own_secrets_is_one_that_servers_may_refer_to(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (folder / ".env").write_text(f"mcp.encryption.key={SECRET}\nmcp.encryptionKey={SECRET}\nTICKETS=theirs\n")
        monkeypatch.setenv("SETTINGS_FOLDER", write_files(folder, openai_api_key=SECRET, mcp_secret_wiki="theirs"))
        monkeypatch.setenv("MCP_SECRET_VARIABLES", "*")
        usable = UsableSecrets(read_settings(), read_environment()).environment
        assert (usable["TICKETS"], usable["MCP_SECRET_WIKI"]) == ("theirs", "theirs")
        assert SECRET not in usable.values()

    def test_a_name_that_only_looks_alike_is_not_taken(self, folder: Path) -> None:
        (folder / ".env").write_text("PORT-OLD=1\nlog-level=debug\n")
        settings = read_settings()
        assert (settings.port, settings.log_level) == (8080, "info")


def test_variables_that_set_nothing_are_named_with_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("mcp.session.initialization-timeout", "10s")
    monkeypatch.setenv("MCP_RECONECTION_ENABLED", "false")
    monkeypatch.setenv("MCP_SECRET_JIRA", SECRET)
    monkeypatch.setenv("mcp.approval.timeout", "10m")
    monkeypatch.setenv("SLACK_BOT_TOKENS", "of another program")
    (folder / ".env").write_text(
        "DISCORD_TOKE=x\nmcp.security.maxToolOutputLength=9\nmcp.unheard.of=1\nGROQ_API_KEY=x\nCOMPOSE_PROJECT_NAME=x\n"
    )
    found = find_ineffective_settings(read_settings())
    assert found == {
        "DISCORD_TOKE": "write DISCORD_TOKEN, if that is meant, or remove it",
        "MCP_RECONECTION_ENABLED": "write MCP_RECONNECTION_ENABLED, if that is meant, or remove it",
        "mcp.security.maxToolOutputLength": (
            "remove it: long results are cut for the model, and shown whole as a file"
        ),
        "mcp.session.initialization-timeout": "set the key connect_timeout of a server",
        "mcp.unheard.of": "remove it, or correct its name",
    }
