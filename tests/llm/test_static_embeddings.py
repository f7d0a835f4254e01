"""Static embeddings from a folder on this machine."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from bot.domain.tools import Tool
from bot.engine.builtin_tools.tool_index import ToolIndex
from bot.errors import SettingsError
from bot.llm.static_embeddings import load_embedder

VECTORS = {"[UNK]": (0.0, 0.0), "invoice": (1.0, 0.1), "bill": (0.9, 0.2), "letter": (0.1, 1.0), "brief": (0.2, 1.0)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write an embedding model of five words in two dimensions and return its folder."""
    model2vec, np = pytest.importorskip("model2vec"), pytest.importorskip("numpy")
    tokenizers = pytest.importorskip("tokenizers")
    words = {word: n for n, word in enumerate(VECTORS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model = model2vec.StaticModel(np.array(list(VECTORS.values()), dtype="float32"), tokenizer)
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing is fetched")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def test_texts_are_ranked_by_meaning(folder: Path) -> None:
    rank = load_embedder(folder, "X")(["a letter", "an invoice", "nothing at all"])
    assert list(rank("bill", 2)) == [1, 0]
    assert list(rank("brief", 1)) == [0]
    assert list(rank("unheard of", 5)) == []
    assert list(rank("", 5)) == []


def test_a_tool_is_found_that_has_none_of_the_words(folder: Path) -> None:
    tools = [Tool(f"s__{name}", "s", name) for name in ("letter", "invoice")]
    assert ToolIndex(tools, {}, load_embedder(folder, "X")).search("brief", 1) == (tools[0],)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json", ""])
def test_a_folder_without_a_model_is_refused_with_the_setting_that_names_it(folder: Path, missing: str) -> None:
    wrong = folder / missing if missing else folder / "other"
    if missing:
        wrong.unlink()
    with pytest.raises(SettingsError, match=r"^TOOL_SEARCH_EMBEDDINGS: .* Fix: name the folder of a model2vec model"):
        load_embedder(folder if missing else wrong, "TOOL_SEARCH_EMBEDDINGS")


@pytest.mark.parametrize("broken", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_model_that_cannot_be_read_is_refused(folder: Path, broken: str) -> None:
    (folder / broken).write_text(json.dumps([1]) if broken == "tokenizer.json" else "{")
    with pytest.raises(SettingsError, match="cannot be read"):
        load_embedder(folder, "TOOL_SEARCH_EMBEDDINGS")


def test_without_the_library_the_extra_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "model2vec", None)
    with pytest.raises(SettingsError, match=r"pip install 'countersign\[embeddings\]'"):
        load_embedder(folder, "TOOL_SEARCH_EMBEDDINGS")
