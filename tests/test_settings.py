"""Reading and validation of the environment and `.env`."""

from __future__ import annotations

import logging
import re
import traceback
from pathlib import Path

import pytest

from bot.domain.approvals import ApprovalPolicy
from bot.domain.conversations import ConversationKey
from bot.domain.servers import ConnectPolicy
from bot.errors import SettingsError
from bot.settings import Settings, read_settings
from tests.app.program import bare

SECRET = "sk-test-4711-do-not-show"


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    bare(tmp_path, monkeypatch)
    return tmp_path


def problem(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """Return the error for an invalid environment."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        read_settings()
    assert caught.value.fix
    assert "\n" not in str(caught.value)
    return caught.value.cause


def test_nothing_needs_to_be_set() -> None:
    settings = read_settings()
    assert settings.database_url == "sqlite:///data/countersign.db"
    assert settings.auto_migrate
    assert settings.bot_model == ""
    assert settings.openai_api_key is settings.anthropic_api_key is None
    assert settings.openai_base_url is settings.anthropic_base_url is None
    assert settings.openai_api == "auto"
    assert settings.mcp_enabled
    assert settings.mcp_servers_file == Path("config/mcp_servers.json")
    assert settings.policy_file == Path("config/policy.toml")
    assert settings.system_prompt_file == Path("config/system_prompt.md")
    assert settings.mcp_approval_default_policy is None
    assert settings.mcp_approval_timeout == 30 * 60
    assert settings.admins == settings.approvers == frozenset()
    assert (settings.log_level, settings.log_format) == ("info", "auto")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90.0),
        ("60s", 60.0),
        ("30m", 1800.0),
        ("24h", 86_400.0),
        ("2d", 172_800.0),
        ("1.5h", 5400.0),
        (" 5 M ", 300.0),
        ("0.5", 0.5),
        ("366d", 366 * 86_400.0),
        ("never", None),
        ("Never", None),
    ],
)
def test_a_time_is_a_number_with_a_unit_or_never(
    monkeypatch: pytest.MonkeyPatch, written: str, seconds: float | None
) -> None:
    monkeypatch.setenv("MCP_APPROVAL_TIMEOUT", written)
    assert read_settings().mcp_approval_timeout == seconds


@pytest.mark.parametrize("written", ["soon", "-5m", "5 minutes", "m", "1e3", "٣m", "30m 5s"])
def test_any_other_time_is_refused_with_one_that_would_do(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    said = problem(monkeypatch, MCP_APPROVAL_TIMEOUT=written)
    assert f"MCP_APPROVAL_TIMEOUT is {written!r}: write a number and a unit, such as 60s, 30m or 24h, or never" in said


@pytest.mark.parametrize("written", ["0", "0s", "367d", "9" * 400])
def test_a_time_that_no_clock_could_keep_is_refused(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    said = problem(monkeypatch, MCP_APPROVAL_TIMEOUT=written)
    assert "more than 0 and at most 366d, or never" in said
    assert len(said) < 200


def test_people_and_groups_are_listed_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADMINS", "slack:U1, discord-role:7 ,,")
    monkeypatch.setenv("APPROVERS", "console:ana")
    settings = read_settings()
    assert settings.admins == {"slack:U1", "discord-role:7"}
    assert settings.approvers == {"console:ana"}


@pytest.mark.parametrize("listed", ["ana", "slack:", ":U1", "slack:U1 slack:U2", "console:ana,ben"])
def test_a_person_without_a_platform_is_refused(monkeypatch: pytest.MonkeyPatch, listed: str) -> None:
    said = problem(monkeypatch, APPROVERS=listed)
    assert "APPROVERS" in said
    assert "not of the form platform:id, such as slack:U123 or console:ana" in said


DISCORD = "MTk4" + "NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.ZnCjm1XVW7vRze4b7Cq4se7kKWs"
FERNET = "cw_0x689RpI-jtRR7oE8h_eQsKImvJapLeSbXpwF4e4="
HEXADECIMAL = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"


@pytest.mark.parametrize("secret", [DISCORD, FERNET, HEXADECIMAL])
@pytest.mark.parametrize(
    "name", ["PORT", "ADMINS", "DISCORD_SERVERS", "MCP_ALLOWED_HOSTS", "LOG_LEVEL", "MCP_SYNC_INTERVAL", "API_DOCS"]
)
def test_a_key_in_a_line_that_is_not_its_own_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, name: str, secret: str
) -> None:
    said = problem(monkeypatch, **{name: f"§ {secret}, {secret} §"})
    assert name in said
    assert not any(part in said for part in re.findall(r"\w{12,}", secret))


def test_a_value_that_is_no_key_is_repeated_as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written = "https://n8n-internal-2.team-automation.example.com/hooks"
    assert f"{written!r} is not a host" in problem(monkeypatch, MCP_ALLOWED_HOSTS=written)


@pytest.mark.parametrize(
    ("written", "windows"),
    [
        ("", {"ollama:qwen3:8b": None}),
        ("200000", {"ollama:qwen3:8b": 200_000, "anthropic:large": 200_000}),
        (
            "ollama:qwen3*=32_768, anthropic:*=200000,",
            {"ollama:qwen3:8b": 32_768, "anthropic:a": 200_000, "demo": None},
        ),
        (
            "ollama:qwen3:8b = 9000, ollama:*=8000, 7000",
            {"ollama:qwen3:8b": 9_000, "ollama:b": 8_000, "openai:c": 7_000},
        ),
        ("7000, ollama:*=8000", {"ollama:b": 7_000}),
        ("ollama:odd=name=8000", {"ollama:odd=name": 8_000}),
    ],
)
def test_the_first_pattern_that_fits_says_how_large_a_models_window_is(
    monkeypatch: pytest.MonkeyPatch, written: str, windows: dict[str, int | None]
) -> None:
    monkeypatch.setenv("CONTEXT_TOKENS", written)
    settings = read_settings()
    assert {name: settings.of_model("context_tokens", name) for name in windows} == windows


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("much", "write a number of tokens"),
        ("ollama:*=", "write a number of tokens"),
        ("=8000", "write a number of tokens"),
        ("ollama:*=8k", "write a number of tokens"),
        ("٣٠٠٠", "write a number of tokens"),
        ("9" * 5_000, "write a number of tokens"),
        ("200,000", "200 is not between 2000 and"),
        ("ollama:*=1999", "1999 is not between 2000 and 100000000 tokens"),
    ],
)
def test_an_invalid_window_is_refused(monkeypatch: pytest.MonkeyPatch, written: str, said: str) -> None:
    assert said in problem(monkeypatch, CONTEXT_TOKENS=written)


def test_words_may_be_written_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_LEVEL", "WARNING")
    monkeypatch.setenv("LOG_FORMAT", "Json")
    monkeypatch.setenv("OPENAI_API", "CHAT")
    monkeypatch.setenv("MCP_ENABLED", "False")
    monkeypatch.setenv("MCP_APPROVAL_DEFAULT_POLICY", "always_deny")
    settings = read_settings()
    assert (settings.log_level, settings.log_format, settings.openai_api) == ("warning", "json", "chat")
    assert not settings.mcp_enabled
    assert settings.mcp_approval_default_policy is ApprovalPolicy.ALWAYS_DENY


def test_everything_that_is_wrong_is_told_at_once_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = problem(
        monkeypatch,
        MCP_ENABLED="ja",
        MCP_APPROVAL_TIMEOUT="so\non",
        MCP_APPROVAL_DEFAULT_POLICY="ASK",
        ADMINS="ana",
        LOG_LEVEL="loud",
        OPENAI_API="soap",
    )
    for name in ("MCP_ENABLED", "MCP_APPROVAL_TIMEOUT", "MCP_APPROVAL_DEFAULT_POLICY", "ADMINS"):
        assert f"{name} is " in said
    assert "LOG_LEVEL is 'loud': write debug, info, warning or error" in said
    assert "OPENAI_API is 'soap': write auto, chat or responses" in said
    assert "write ALWAYS_ALLOW, ALWAYS_DENY, ASK_USER or AUTO" in said


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("PORT", "eighty", "PORT is 'eighty': write a whole number from 0 to 65535, such as 8080"),
        ("DB_PORT", "0", "DB_PORT is '0': write a whole number from 1 to 65535, such as 5432"),
        ("HISTORY_TOKENS", "1.5", "HISTORY_TOKENS is '1.5': write a whole number from 1000 to 1000000, such as 16000"),
        ("RETENTION_DAYS", "-1", "RETENTION_DAYS is '-1': write a number, at least 0, such as 30"),
        ("USAGE_RETENTION_DAYS", "long", "USAGE_RETENTION_DAYS is 'long': write a number, such as 400"),
        ("API_DOCS", "ja", "API_DOCS is 'ja': write true or false"),
        ("MCP_REVIEW", "often", "MCP_REVIEW is 'often': write changed or off"),
    ],
)
def test_a_setting_describes_its_values(monkeypatch: pytest.MonkeyPatch, name: str, given: str, said: str) -> None:
    assert problem(monkeypatch, **{name: given}) == f"The environment cannot be used: {said}."


@pytest.mark.parametrize("days", ["0", "-1", "30", "31.9", "nan"])
def test_usage_that_monthly_limits_add_up_is_stored_for_longer_than_a_month(
    monkeypatch: pytest.MonkeyPatch, days: str
) -> None:
    assert problem(monkeypatch, USAGE_RETENTION_DAYS=days) == (
        f"The environment cannot be used: USAGE_RETENTION_DAYS is '{days}': write a number of days, at least 32, such "
        "as 400: a month's limits are added up from what is kept."
    )
    monkeypatch.setenv("USAGE_RETENTION_DAYS", "32")
    assert read_settings().usage_retention_days == 32


@pytest.mark.parametrize("given", ["§ §", "-1", "nan", "9" * 5_000, "[]", "{", SECRET])
def test_no_error_of_a_setting_speaks_of_programming_or_repeats_a_likely_secret(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    said: dict[str, str] = {}
    # The errors of these settings have their own texts.
    of_issuer = {"oidc_issuer", "oidc_client_id", "oidc_client_secret"}
    for name in Settings.model_fields.keys() - {"settings_folder", "db_host", *of_issuer}:
        with monkeypatch.context() as here:
            here.setenv(name.upper(), given)
            try:
                read_settings()
            except SettingsError as error:
                said[name.upper()] = error.cause
    assert len(said) >= 5
    for name, cause in said.items():
        assert name in cause
        assert SECRET not in cause
        assert len(cause) < 300
        assert not re.search("[Ii]nput|valid|parse|boolean|integer", cause), cause
        assert re.search("such as|write", cause), cause


@pytest.mark.parametrize("name", ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"])
@pytest.mark.parametrize(
    "address",
    [
        "pass-word@host",
        "http://",
        "ftp://host",
        "http://h:99999",
        "http://a b",
        "http://[",
        "http://..:1",
        "http://$HOST/v1",
    ],
)
def test_an_address_that_is_none_is_refused_without_being_repeated(
    monkeypatch: pytest.MonkeyPatch, name: str, address: str
) -> None:
    said = problem(monkeypatch, **{name: address})
    assert f"{name}: write an address such as https://host/v1" in said
    assert address not in said


def test_an_address_may_have_a_port_and_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1")
    assert read_settings().openai_base_url == "http://127.0.0.1:11434/v1"


@pytest.mark.parametrize("blank", ["", " ", "\t\n"])
def test_a_blank_variable_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, blank: str) -> None:
    for name in Settings.model_fields:
        monkeypatch.setenv(name.upper(), blank)
    assert read_settings() == Settings.model_construct()


def test_blanks_around_a_value_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", f" {SECRET}\n")
    monkeypatch.setenv("MCP_SERVERS_FILE", " servers.json ")
    settings = read_settings()
    assert settings.anthropic_api_key is not None
    assert settings.anthropic_api_key.get_secret_value() == SECRET
    assert settings.mcp_servers_file == Path("servers.json")


def test_secrets_are_in_no_representation_and_no_log_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", f"https://user:{SECRET}@host/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"https://host/?key={SECRET}")
    monkeypatch.setenv("DATABASE_URL", f"postgresql://user:{SECRET}@host/db")
    settings = read_settings()
    logging.getLogger("test").warning("%s %r", settings, settings)
    assert "log_level='info'" in caplog.text
    assert SECRET not in caplog.text


def test_secrets_are_in_no_error_and_in_no_traceback_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", SECRET)
    monkeypatch.setenv("DATABASE_URL", f"postgresql://user:{SECRET}@host/db")
    monkeypatch.setenv("LOG_LEVEL", "loud")
    with pytest.raises(SettingsError) as caught:
        read_settings()
    assert "ANTHROPIC_BASE_URL" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_the_file_is_read_and_the_environment_wins(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (working_folder / ".env").write_text(
        "# who may sign\nADMINS=console:ana\nexport LOG_LEVEL='debug'\nBOT_MODEL=openai\nSOMEBODY_ELSES=1\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("BOT_MODEL", "demo")
    settings = read_settings()
    assert settings.admins == {"console:ana"}
    assert settings.log_level == "debug"
    assert settings.bot_model == "demo"


def test_the_command_line_wins_over_both(working_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (working_folder / ".env").write_text("BOT_MODEL=openai\n", encoding="utf-8")
    monkeypatch.setenv("BOT_MODEL", "anthropic")
    assert read_settings(bot_model="demo").bot_model == "demo"


def test_a_wrong_value_in_the_file_is_told_like_one_in_the_environment(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (working_folder / ".env").write_text("LOG_LEVEL=loud\n", encoding="utf-8")
    assert "LOG_LEVEL is 'loud'" in problem(monkeypatch, ADMINS="ana")


def test_a_file_in_another_encoding_is_an_error_that_names_it(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (working_folder / ".env").write_bytes(f"OPENAI_API_KEY={SECRET}\nADMINS=console:\xe4\n".encode("latin-1"))
    said = problem(monkeypatch)
    assert ".env cannot be read" in said
    assert SECRET not in said


def test_a_language_is_a_tag_or_the_list_of_a_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().language == "en"
    monkeypatch.setenv("LANGUAGE", "ja_JP:ja:en")
    assert read_settings().language == "ja"
    monkeypatch.setenv("LANGUAGE", "tlh_KX:tlh")
    assert read_settings().language == "en"
    monkeypatch.setenv("LANGUAGE", "Japanese")
    with pytest.raises(SettingsError, match="write the tag of a language that is there: en or ja"):
        read_settings()


def test_a_time_zone_has_its_name_and_is_the_machines_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    assert read_settings().time_zone == "Europe/Berlin"
    monkeypatch.setenv("TIME_ZONE", "asia/tokyo")
    assert read_settings().time_zone == "Asia/Tokyo"
    monkeypatch.setenv("TIME_ZONE", "Tokio")
    with pytest.raises(SettingsError, match="write the name of a time zone, such as Asia/Tokyo"):
        read_settings()


def test_settings_do_not_change_once_they_are_read() -> None:
    settings = read_settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.bot_model = "demo"


def test_servers_are_administered_with_closed_defaults() -> None:
    settings = read_settings()
    assert settings.mcp_connect_policy is ConnectPolicy.AUTO
    assert settings.mcp_sync_interval == 300
    assert settings.mcp_allowed_hosts == settings.mcp_allowed_commands == settings.mcp_allowed_servers == frozenset()


def test_hosts_may_be_listed_with_a_port_and_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_ALLOWED_HOSTS", "n8n:5678, Internal.Example ,[::1]:8080")
    assert read_settings().mcp_allowed_hosts == {"n8n:5678", "internal.example", "[::1]:8080"}


@pytest.mark.parametrize("wrong", ["http://n8n", "a host", "n8n:port"])
def test_an_invalid_host_is_refused(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("MCP_ALLOWED_HOSTS", wrong)
    with pytest.raises(SettingsError, match="is not a host or host:port"):
        read_settings()


@pytest.mark.parametrize("name", ["MCP_ENCRYPTION_KEY", "ENCRYPTION_MASTER_PASSWORD"])
def test_encryption_keys_are_shown_nowhere(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "hunter22hunter22")
    assert "hunter22" not in repr(read_settings())


def test_trusted_proxies_are_addresses_and_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_settings().forwarded_allow_ips == {"127.0.0.1"}
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.2, 172.16.0.0/12,::1")
    assert read_settings().forwarded_allow_ips == {"10.0.0.2", "172.16.0.0/12", "::1"}
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert read_settings().forwarded_allow_ips == {"*"}
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "10.0.0.2,proxy.example")
    with pytest.raises(SettingsError, match=r"'proxy\.example' is not an IP address or a network"):
        read_settings()


@pytest.mark.parametrize(
    ("written", "channel"),
    [
        ("slack:T1:C1", ConversationKey("slack", "T1", "C1", "")),
        ("slack:C0123", ConversationKey("slack", "", "C0123", "")),
        ("discord:81384:81385", ConversationKey("discord", "81384", "81385", "")),
    ],
)
def test_the_operations_channel_may_be_written_without_its_workspace(
    written: str, channel: ConversationKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPS_CHANNEL", written)
    assert read_settings().ops_channel == channel


@pytest.mark.parametrize("written", ["C0123", "teams:T1:C1", "slack:T1:C1:17.0", "slack:", "slack:#ops"])
def test_an_operations_channel_of_another_form_is_refused(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "PLATFORM:WORKSPACE:CHANNEL" in problem(monkeypatch, OPS_CHANNEL=written)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BOT_MODEL", '"ollama:qwen3"'),
        ("PORT", "'8080'"),
        ("OPENAI_API_KEY", '"sk-secret"'),
        ("GROQ_BASE_URL", "'https://api.groq.example/v1'"),
        ("DATABASE_URL", '"sqlite:///data/bot.db"'),
        ("ADMINS", '"slack:U1,slack:U2"'),
        ("SETTINGS_FOLDER", '"/run/secrets"'),
        ("mcp.approval.default-policy", '"ALWAYS_ASK"'),
    ],
)
def test_quotes_around_a_value_are_told_with_the_settings_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=rf"^Quotes are around the value of {name.upper()}, ") as error:
        read_settings()
    assert value.strip("'\"") not in str(error.value)


def test_quotes_in_the_file_and_in_a_command_are_no_part_of_the_value(
    working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (working_folder / ".env").write_text("BOT_MODEL=\"demo\"\nTIME_ZONE='Asia/Tokyo'\n")
    monkeypatch.setenv("AUDIT_CHECKPOINT_COMMAND", '"/opt/my tools/keep"')
    settings = read_settings()
    assert (settings.bot_model, settings.time_zone) == ("demo", "Asia/Tokyo")
    assert settings.audit_checkpoint_command == ("/opt/my tools/keep",)
