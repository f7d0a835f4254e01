"""Quotations in the guides match the program, and their setups can be read and served."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bot.admin.servers.secrets import PATH as LINKS
from bot.domain.sign_ins import PATH as SIGN_INS
from bot.engine.prompt.attachments import FETCH_SECONDS, LARGEST, MOST, MOST_DOCUMENT_BYTES, MOST_IMAGE_BYTES, FileKind
from bot.platforms.discord.messages import MOST_FILES as IN_DISCORD
from bot.platforms.slack.installer import INSTALL_PATH, REDIRECT_PATH
from bot.platforms.slack.listener import PATH as SLACK
from bot.platforms.slack.messages import MOST_FILES as IN_SLACK
from bot.settings import Settings
from bot.web.api.responses import MOST_IMAGES
from bot.web.application import ALIVE, READY
from bot.web.limits import LARGEST_BODY
from bot.web.prometheus import PATH as METRICS

PROJECT = Path(__file__).parents[2]
GUIDES = ("server-secrets", "troubleshooting", "upgrading")
OF_PEOPLE = {"rotated the key"}
"""Quoted words that people write, not the program."""
DEPLOYMENT = (PROJECT / "docs" / "deployment.md").read_text(encoding="utf-8")
SHORTEST = 12
"""Characters of a piece that says something by itself: shorter ones are found anywhere."""


def _texts(tree: ast.AST) -> Iterator[str]:
    """Return every text of a module, with `…` for its values."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)):
                yield text
            case ast.JoinedStr(values=parts):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)


@cache
def program_texts() -> str:
    """Everything that the program may say, a text a line."""
    paths = sorted((PROJECT / "bot").rglob("*.py"))
    texts = (text for path in paths for text in _texts(ast.parse(path.read_text(encoding="utf-8"))))
    return "\n".join(re.sub(r"\{\w*\}", "…", " ".join(text.split())) for text in texts)


def quoted_texts(guide: str) -> list[str]:
    text = (PROJECT / "docs" / f"{guide}.md").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```|^    .*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    words = " ".join(prose.split())
    words = re.sub(r"`[^`]*`", lambda code: "" if '"' in code[0] else code[0], words)
    return re.findall(r'"([^"]+)"', words)


@pytest.mark.parametrize("guide", GUIDES)
def test_every_sentence_that_is_quoted_is_one_of_the_program(guide: str) -> None:
    found = quoted_texts(guide)
    assert found
    for sentence in set(found) - OF_PEOPLE:
        pieces = [piece.strip() for piece in sentence.split("…") if piece.strip()]
        assert any(len(piece) >= SHORTEST for piece in pieces), sentence
        # What is filled in may be made of several texts, so the pieces are looked for in one line, in their order.
        pattern = "[^\n]*?".join(re.escape(piece) for piece in pieces)
        assert re.search(pattern, program_texts()), sentence


def test_the_seven_guides_are_there_with_their_symptoms() -> None:
    text = (PROJECT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == [
        "A server's session does not begin",
        "A tool is not available",
        "A tool fails",
        "A server is not found",
        "Signing in to a server fails",
        "A server cannot be reached",
        "Something takes too long",
        "A tool is missing in one place",
        "The bot itself",
    ]


def test_files_that_the_guide_to_deployment_makes_secrets_of_are_settings() -> None:
    named = re.findall(r"LoadCredential=(\w+):", DEPLOYMENT) + re.findall(r"deploy/secrets/(\w+)", DEPLOYMENT)
    assert len(named) > 5
    assert set(named) <= set(Settings.model_fields)


def test_variables_that_it_sets_are_settings() -> None:
    [block] = re.findall(r"`/etc/countersign/bot.env`.*?```sh\n(.*?)```", DEPLOYMENT, re.DOTALL)
    named = [line.partition("=")[0].lower() for line in block.splitlines()]
    assert len(named) > 3
    assert set(named) <= set(Settings.model_fields)


def test_addresses_handed_on_to_the_bot_are_served_there() -> None:
    rows = re.findall(r"^\| ((?:`/[^|]+)) \|", DEPLOYMENT, re.MULTILINE)
    paths = [path for row in rows for path in re.findall(r"`([^`]+)`", row)]
    installs = (INSTALL_PATH, REDIRECT_PATH)
    assert {"/api/", SLACK, *installs, LINKS, SIGN_INS, ALIVE, READY[0], METRICS} == set(paths)
    for path in ("/api/", SLACK, *installs, LINKS, SIGN_INS):
        assert path.strip("/") in re.findall(r"location ~ \^/\((.+)\)", DEPLOYMENT)[0].replace("$", "")
        assert re.search(rf"@open path .*{re.escape(path)}", DEPLOYMENT)


def test_the_limits_on_files_that_it_names_are_those_that_hold() -> None:
    text = (PROJECT / "docs" / "models.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (images|text|PDF)[^|]*\| (\d+) \| (\d+) (kB|MB)[^|]*\|(?: (\d+) MB)?", text, re.MULTILINE)
    bytes_of = {"kB": 2**10, "MB": 2**20}
    found = {kind: (int(most), int(size) * bytes_of[unit]) for kind, most, size, unit, _ in rows}
    assert found == {
        name: (MOST[kind], LARGEST[kind])
        for name, kind in (("images", FileKind.IMAGE), ("text", FileKind.TEXT), ("PDF", FileKind.DOCUMENT))
    }
    together = {kind: int(size) * 2**20 for kind, *_, size in rows if size}
    assert together == {"images": MOST_IMAGE_BYTES, "PDF": MOST_DOCUMENT_BYTES}
    assert f"within {FETCH_SECONDS:.0f} seconds" in text
    assert f"within {LARGEST_BODY // 2**20} MiB" in text
    assert {IN_SLACK, IN_DISCORD} == {10}
    assert MOST[FileKind.IMAGE] == MOST_IMAGES
