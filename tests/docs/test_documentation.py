"""Names in the documents exist, and every setting is documented."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import typer
from babel.messages.pofile import read_po

from bot.cli.commands import app
from bot.domain.commands import ParameterKind, Verb
from bot.domain.server_settings import SETTINGS, Setting
from bot.domain.servers import ServerConfig, StdioTransport
from bot.i18n.languages import catalog_path
from bot.mcp.config.file import KNOWN_KEYS
from bot.settings import Settings
from tests.admin.servers import command_harness

PROJECT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "mcp_servers/**/*.md") for path in PROJECT.glob(pattern)
)
PICTURES = sorted((PROJECT / "docs" / "pictures").glob("*.svg"))
CONFIGURATION = (PROJECT / "docs" / "configuration.md").read_text(encoding="utf-8")

_EACH_DOCUMENT = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(PROJECT)))
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"\bcountersign(?: +(?:--?[a-z][a-z-]*|[a-z][a-z-]*|'[^'\n]*'))+")
_CONFLICT_MARK = re.compile(r"(<<<<<<<|>>>>>>>|\|\|\|\|\|\|\|)( |$)|=======$")
_IN_CHAT = re.compile(r"(?:(?<![\w/])/(mcp|profile|conversations|usage)|\bcountersign (servers)) +([a-z][^`'\n#|]*)")
"""A command of the chat, with its verb: up to the end of the code it stands in."""


def _section(heading: str) -> str:
    """Return the text under a second-level heading of the configuration guide."""
    (text,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", CONFIGURATION, re.MULTILINE | re.DOTALL)
    return str(text)


def _first_cells(text: str) -> list[str]:
    """The names in the first column of all tables."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def _anchors(document: Path) -> set[str]:
    """The headings of a document, as links name them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", document.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command of the program, and every group of commands."""
    yield words, command
    for name, one in getattr(command, "commands", {}).items():
        yield from _commands(one, (*words, name))


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    documented = _first_cells(_section("Environment"))
    assert sorted(documented) == sorted(name.upper() for name in Settings.model_fields)


def test_every_key_of_a_server_is_documented_and_every_documented_key_exists() -> None:
    assert sorted(_first_cells(_section("MCP servers"))) == sorted(KNOWN_KEYS)


@pytest.mark.parametrize("setting", SETTINGS, ids=attrgetter("key"))
def test_the_guide_describes_a_setting_of_servers_as_its_declaration_does(setting: Setting) -> None:
    usual = json.dumps(setting.of(ServerConfig("", StdioTransport("")))).strip('"').removesuffix(".0")
    cell = setting.usual or (usual and f"`{usual}`")
    line = f"| `{setting.key}` | {cell} | {setting.about} |".replace("|  |", "| |")
    assert line in _section("MCP servers").splitlines()


def test_each_unreleased_change_is_one_short_sentence() -> None:
    text = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    unreleased = text.partition("## [Unreleased]\n")[2].partition("\n## [")[0]
    assert len(unreleased.splitlines()) <= 60
    for entry in re.findall(r"^- (.+)$", unreleased, re.MULTILINE):
        words = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", entry)
        assert len(words.split()) <= 25, entry
        assert entry.endswith("."), entry
        assert not re.search(r"[.!?] [A-Z]", entry), entry


@_EACH_DOCUMENT
def test_links_within_the_project_lead_somewhere(document: Path) -> None:
    links = _LINK.findall(_FENCE.sub("", document.read_text(encoding="utf-8")))
    for link in map("".join, links):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / unquote(path)).resolve() if path else document
        assert target.exists(), link
        assert not anchor or anchor in _anchors(target), link


@_EACH_DOCUMENT
def test_named_make_targets_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"(?:`|^\s*)make ([a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE))
    assert named <= targets


@_EACH_DOCUMENT
def test_named_commands_and_options_exist(document: Path) -> None:
    commands = dict(_commands(typer.main.get_command(app)))
    for named in _COMMAND.findall(document.read_text(encoding="utf-8")):
        words = re.sub("'[^']*'", "", named).split()[1:]
        if words[:1] in (["servers"], ["usage"]):
            continue  # what follows is for the commands of the chat
        path = tuple(word for word in words if not word.startswith("-"))
        found = max((known for known in commands if path[: len(known)] == known), key=len)
        command = commands[found]
        # What follows a command may be an option's value; what follows a group must be one of its commands.
        assert found == path or not hasattr(command, "commands"), named
        known = {option for parameter in command.params for option in parameter.opts} | {"--help", "-h"}
        assert {word for word in words if word.startswith("-")} <= known, named


@_EACH_DOCUMENT
def test_named_commands_of_the_chat_exist_with_their_options(document: Path) -> None:
    verbs = command_harness().registry.verbs
    for command, in_shell, said in _IN_CHAT.findall(document.read_text(encoding="utf-8")):
        words = said.partition(" -- ")[0].split()
        verb = _verb(verbs["mcp" if in_shell else command], words)
        assert verb is not None, said
        options = {f"--{parameter.name}" for parameter in verb.parameters if parameter.shape is not ParameterKind.PLACE}
        named = {re.sub(r"[^a-z-].*", "", word) for word in words if word.startswith("--")}
        assert named <= options | {"--page", "--json", "--debug"}, said


def _verb(verbs: Sequence[Verb], words: list[str]) -> Verb | None:
    """The verb that the words begin with; of `policy set` both words count."""
    paths = {path: verb for verb in verbs for path in (verb.path, *verb.aliases)}
    return paths.get(" ".join(words[:2])) or paths.get(words[0].strip(".,;:"))


GUIDES = [path for path in DOCUMENTS if path.parent == PROJECT / "docs" and path.name != "README.md"]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_every_guide_is_in_the_index_and_ends_with_its_next_step(guide: Path) -> None:
    index = (PROJECT / "docs" / "README.md").read_text(encoding="utf-8")
    assert f"]({guide.name})" in index
    last = guide.read_text(encoding="utf-8").rstrip().split("\n\n")[-1]
    assert last.startswith("Next")
    assert _LINK.search(last)


def test_the_documents_are_those_people_look_for() -> None:
    names = {str(path.relative_to(PROJECT)) for path in DOCUMENTS}
    servers = {f"mcp_servers/{path.parent.name}/README.md" for path in PROJECT.glob("mcp_servers/*/__main__.py")}
    assert names >= {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/adr/README.md", *servers}


@_EACH_DOCUMENT
def test_documents_hold_no_conflict_marks_of_git(document: Path) -> None:
    lines = document.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if _CONFLICT_MARK.match(line)]


def test_modules_named_in_the_architecture_exist() -> None:
    named = list(_named_modules((PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")))
    assert len(named) > 5
    assert [f"{base}{module}" for base, module in named if not _exists(base, module)] == []


def test_every_folder_of_the_code_is_in_the_architecture() -> None:
    folders = {path.parent.name for path in (PROJECT / "bot").rglob("*.py")} - {"versions"}
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Directions")[0]
    assert folders == folders & set(re.findall(r"^ +(\w+)/(?: |$)", text, re.MULTILINE))


def test_ports_are_in_the_modules_that_the_architecture_names() -> None:
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## Ports")[2].partition("## Central types")[0]
    rows = re.findall(r"^\| (`.*?`) \| `(\w+)` \|", section, re.MULTILINE)
    assert len(rows) > 15
    for names, module in rows:
        code = (PROJECT / "bot" / "ports" / f"{module}.py").read_text(encoding="utf-8")
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^(class )?{name}\b", code, re.MULTILINE), (name, module)


def test_names_in_the_instructions_for_contributors_exist() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = "".join(
        path.read_text(encoding="utf-8") for top in ("bot", "tests") for path in (PROJECT / top).rglob("*.py")
    )
    classes = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", text))
    assert len(classes) > 15
    assert [name for name in sorted(classes) if not re.search(rf"\b{name}\b", code)] == []
    paths = set(re.findall(r"`((?:bot|tests|chat|docs|config)/[\w/.]+\.\w+)`", text))
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not any((PROJECT / top / path).exists() for top in ("", "bot"))] == []


def _named_modules(text: str) -> Iterator[tuple[str, str]]:
    """Every path of a module, after the folder that its section says its paths are relative to, `bot/` elsewhere."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE):
        relative = re.search(r"relative\s+to\s+`(bot/[\w/]*)`", section)
        base = relative[1] if relative else "bot/"
        modules = re.findall(r"(?<![\w/.])\w[\w/]*\.py\b", section)
        yield from ((base, module) for module in modules if module != "discord.py")  # the library


def _exists(base: str, module: str) -> bool:
    return any((PROJECT / folder / module).is_file() for folder in (base, "bot", ""))


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_pictures_load_nothing_from_elsewhere(picture: Path) -> None:
    drawn = picture.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    # What is only written in it leads nowhere.
    assert "://" not in re.sub(r"<text[^>]*>[^<]*</text>", "", drawn)
    assert not re.search(r"<script|@import|@font-face|<image", drawn)


def test_the_guide_for_everyone_names_buttons_as_they_are_labelled() -> None:
    guide = (PROJECT / "docs" / "using.md").read_text(encoding="utf-8")
    with catalog_path("ja").open("rb") as file:
        texts = {text for message in read_po(file, locale="ja") for text in (message.id, *message.id) if message.id}
    named = {re.sub(r"\d+", "{n}", label) for label in re.findall(r"\*\*([^*]+)\*\*", guide)}
    assert len(named) > 5
    assert sorted(named - texts - {"Approve"}) == []  # followed by what is approved


def test_the_japanese_guide_names_buttons_as_they_are_labelled() -> None:
    guide = (PROJECT / "docs" / "ja" / "using.md").read_text(encoding="utf-8")
    with catalog_path("ja").open("rb") as file:
        translations = {message.string for message in read_po(file, locale="ja") if isinstance(message.string, str)}
    named = re.findall(r"\*\*([^*]+)\*\*", guide)
    assert len(named) > 8
    assert [label for label in named if label not in translations] == []
