"""Static embeddings of texts with model2vec, of the extra `countersign[embeddings]`. The model is a folder on this
machine; nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bot.errors import SettingsError
from bot.i18n import gettext_lazy
from bot.ports.models import EmbedTexts, RankTexts

_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def load_embedder(folder: Path, variable: str) -> EmbedTexts:
    """Load the model of a folder, which takes seconds if it is large. `variable` is the setting that names the folder,
    for errors. Raises SettingsError.
    """
    # The library takes a name that is no folder for one on a hub.
    if missing := [name for name in _FILES if not (folder / name).is_file()]:
        raise SettingsError(
            gettext_lazy("{variable}: {folder} has no {file}.", variable=variable, folder=folder, file=missing[0]),
            gettext_lazy("name the folder of a model2vec model on this machine"),
        )
    try:
        from model2vec import StaticModel  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise SettingsError(
            gettext_lazy("{variable} needs the library model2vec, which is not installed.", variable=variable),
            gettext_lazy("pip install 'countersign[embeddings]', or leave the variable empty"),
        ) from error
    try:
        model = StaticModel.from_pretrained(folder, force_download=False)
        model.encode([""])
    except Exception as error:  # the libraries for weights and tokens have errors of their own
        raise SettingsError(
            gettext_lazy("{variable}: the model in {folder} cannot be read.", variable=variable, folder=folder),
            gettext_lazy("copy the whole folder of the model again"),
        ) from error

    def embed(texts: Sequence[str]) -> RankTexts:
        vectors = model.encode(list(texts), normalize=True, use_multiprocessing=False)

        def rank(query: str, most: int) -> Sequence[int]:
            scores = vectors @ model.encode([query], normalize=True)[0]
            ranked = (-scores).argsort(kind="stable")[:most]
            return [int(n) for n in ranked if scores[n] > 0]

        return rank

    return embed
