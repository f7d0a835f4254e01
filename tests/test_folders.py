"""Choice of the `.env`, the configuration files and the data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot import folders
from bot.folders import DEFAULTS, Folders, choose_folders, copy_defaults, in_shell, shell_command


def choose(working_folder: Path, *, installed: bool = True, **environment: str) -> Folders:
    return choose_folders({"HOME": "/home/ana", **environment}, working_folder, installed=installed)


def in_working_folder(folders: Folders) -> bool:
    return (folders.config, folders.data, folders.env_file) == (Path("config"), Path("data"), Path(".env"))


def test_a_program_that_runs_from_its_source_uses_its_working_folder(tmp_path: Path) -> None:
    folders = choose(tmp_path, installed=False)
    assert in_working_folder(folders)
    assert folders.own_files == ()
    assert folders.is_filled
    assert folders.operator_file("policy.toml") == Path("config/policy.toml")


@pytest.mark.parametrize(
    ("beside", "installed"),
    [
        (("countersign-9.9.dist-info/METADATA", "pyproject.toml"), True),
        (("countersign-9.9.dist-info/METADATA", "setup.py", ".git/HEAD"), True),
        (("countersign.egg-info/PKG-INFO", "pyproject.toml"), False),
        (("countersign_other-1.0.dist-info/METADATA",), False),
    ],
)
def test_the_metadata_of_its_distribution_tell_if_a_program_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: tuple[str, ...], installed: bool
) -> None:
    for name in (*beside, "bot/folders.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("Name: countersign\n")
    monkeypatch.setattr(folders, "__file__", str(tmp_path / "bot" / "folders.py"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("COUNTERSIGN_HOME", raising=False)
    monkeypatch.chdir(tmp_path / "bot")
    assert folders.find_folders().personal == installed


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config/mcp_servers.json", "{}"),
        ("config/limits.toml", ""),
        ("data/countersign.db", ""),
        ("data/notes.json", "{}"),
        (".env", "PORT=80\nBOT_MODEL=demo\n"),
        (".env", "export MCP_SECRET_TICKETS = x\n"),
    ],
)
def test_an_installed_one_uses_a_working_folder_with_files_of_ours(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    folders = choose(tmp_path)
    assert in_working_folder(folders)
    assert folders.reason == f"the working folder has {file}"
    assert folders.own_files == (file,)
    assert folders.memory == Path("/home/ana/.local/share/countersign/folders.txt")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config/settings.toml", ""),
        ("data/other.db", ""),
        (".env", "DATABASE_URL=postgresql://theirs/database\nSLACK_BOT_TOKEN=xoxb-theirs\n# BOT_MODEL=demo\n"),
        (".env", "NOT_BOT_MODEL=demo\n"),
    ],
)
def test_and_its_users_folders_in_another_projects(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    folders = choose(tmp_path)
    assert folders.config == folders.base == Path("/home/ana/.config/countersign")
    assert folders.data == Path("/home/ana/.local/share/countersign")
    assert folders.env_file == Path("/home/ana/.config/countersign/.env")
    assert folders.personal
    assert str(tmp_path) in folders.reason
    assert ("its .env sets nothing that only Countersign has" in folders.reason) == (file == ".env")


def test_these_follow_the_desktops_variables_except_relative_ones(tmp_path: Path) -> None:
    folders = choose(tmp_path, XDG_CONFIG_HOME="/etc/xdg", XDG_DATA_HOME="data")
    assert folders.config == Path("/etc/xdg/countersign")
    assert folders.data == Path("/home/ana/.local/share/countersign")


@pytest.mark.parametrize("installed", [True, False])
def test_one_variable_decides_over_all(tmp_path: Path, installed: bool) -> None:
    (tmp_path / ".env").write_text("BOT_MODEL=demo")
    folders = choose(tmp_path, installed=installed, COUNTERSIGN_HOME=f" {tmp_path}/some/../bot ")
    assert folders.base == tmp_path / "bot"
    assert folders.config == tmp_path / "bot/config"
    assert folders.data == tmp_path / "bot/data"
    assert folders.env_file == tmp_path / "bot/.env"
    assert in_working_folder(choose(tmp_path, installed=installed, COUNTERSIGN_HOME="."))
    assert choose(tmp_path, installed=installed, COUNTERSIGN_HOME="~no-such-user/a").base.name == "a"
    assert in_working_folder(choose(tmp_path, installed=installed, COUNTERSIGN_HOME=str(tmp_path)))


def test_until_the_users_folder_is_filled_the_programs_own_files_count(tmp_path: Path) -> None:
    folders = choose(tmp_path, HOME=str(tmp_path))
    assert folders.operator_file("policy.toml") == DEFAULTS / "policy.toml"
    assert folders.operator_file("allowed_commands.txt") == folders.config / "allowed_commands.txt"
    folders.config.mkdir(parents=True)
    (folders.config / ".env").write_text("BOT_MODEL=demo")
    assert folders.operator_file("policy.toml") == DEFAULTS / "policy.toml"
    copy_defaults(folders.config)
    assert folders.operator_file("policy.toml") == folders.config / "policy.toml"
    # A file that the user has deleted is not created again.
    (folders.config / "policy.toml").unlink()
    assert folders.is_filled
    assert folders.operator_file("policy.toml") == folders.config / "policy.toml"


def test_filling_leaves_existing_files_and_no_partial_one(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "config"
    folder.mkdir(parents=True)
    (folder / "limits.example.toml").write_text("# mine")
    names = {path.name for path in copy_defaults(folder)}
    assert {"mcp_servers.json", "policy.toml", "system_prompt.md", "slack_manifest.yaml"} <= names
    assert (folder / "limits.example.toml").read_text() == "# mine"
    assert {path.name for path in folder.iterdir()} == names | {"limits.example.toml"}
    assert copy_defaults(folder) == []


def test_a_command_is_named_with_the_path_of_a_clones_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / ".venv/bin/countersign"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.prefix", str(tmp_path / ".venv"))
    monkeypatch.setenv("PATH", "/nowhere")
    text = "run `countersign db upgrade`; countersign setup slack goes on. countersign: no command, a/countersign run"
    monkeypatch.chdir(tmp_path)
    assert in_shell(text) == (
        "run `.venv/bin/countersign db upgrade`; .venv/bin/countersign setup slack goes on. "
        "countersign: no command, a/countersign run"
    )
    monkeypatch.setenv("PATH", str(program.parent))
    assert in_shell(text) == text
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(program.parent)
    assert shell_command("run") == "countersign run"
    monkeypatch.chdir("/")
    program.unlink()
    assert shell_command("run") == "countersign run"
