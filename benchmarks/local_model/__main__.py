"""The product with a real small model on this machine: what the doctor, a question and a call with approval come to.

    .venv/bin/python -m benchmarks.local_model --python .venv/local-model/bin/python

Prints one table. Takes some minutes: the model reads the tools of the bundled servers at about twenty tokens a second.
Nothing is measured, and no answer of so small a model is a failure; a step that ends with an error is one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = (("chat", "openai", "/v1"), ("responses", "openai", "/v1"), ("messages", "anthropic", ""))
SECONDS = "900"
QUESTION = "What is the capital of Norway? Answer with its name alone."


@contextmanager
def serving(python: Path) -> Iterator[str]:
    """Run the server; yield its address."""
    words = [str(python), str(Path(__file__).with_name("serve.py")), str(python.parents[1])]
    with subprocess.Popen(  # noqa: S603 - our own words
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            line = next((line for line in server.stdout if line.startswith("listening: ")), "")
            if not line:
                sys.exit(f"the server did not start: {' '.join(words)}")
            yield line.removeprefix("listening: ").strip()
        finally:
            server.kill()


class Product:
    """`countersign` in a folder with the bundled servers."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._address = address
        shutil.copytree(ROOT / "config", folder / "config")

    def run(self, protocol: tuple[str, str, str], *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the model, in a protocol."""
        api, provider, path = protocol
        prefix = provider.upper()
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "BOT_MODEL": f"{provider}:model.gguf",
            "OPENAI_API": "responses" if api == "responses" else "chat",
            f"{prefix}_API_KEY": "none-is-needed",
            f"{prefix}_BASE_URL": f"{self._address}{path}",
            "MODEL_FIRST_TIMEOUT": SECONDS,
            "MODEL_IDLE_TIMEOUT": SECONDS,
            "MODEL_TOTAL_TIMEOUT": SECONDS,
        }
        return subprocess.run(  # noqa: S603 - our own words
            (sys.executable, "-m", "bot", *words),
            cwd=self._folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=2 * int(SECONDS),
            check=False,
        )

    def doctor(self, protocol: tuple[str, str, str]) -> tuple[bool, str]:
        """Return what the doctor says of the model."""
        lines = [json.loads(line) for line in self.run(protocol, "doctor", "--json").stdout.splitlines()]
        of_model = [line for line in lines if line["subject"] == "model" and line["name"] != "configured"]
        return all(line["finding"] != "failed" for line in of_model), " ".join(line["detail"] for line in of_model)

    def answer(self, protocol: tuple[str, str, str], question: str) -> tuple[bool, str]:
        """Return the answer to a question."""
        said = self.run(protocol, "chat", "-m", question, "--approve", "all")
        return said.returncode == 0, said.stdout or said.stderr

    def note(self, protocol: tuple[str, str, str]) -> tuple[bool, str]:
        """Return what is saved after a request to save a note."""
        works, said = self.answer(protocol, "Add a note: buy milk")
        notes = self._folder / "data" / "notes.json"
        saved = "buy milk" in notes.read_text().lower() if notes.exists() else False
        return works, f"{'saved' if saved else 'not saved'}: {said}"


def main() -> None:
    """Run all steps, and exit with 1 if one ended with an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, default=Path(".venv/local-model/bin/python"), help="has the model")
    python = parser.parse_args().python.absolute()
    works = True
    with serving(python) as address, tempfile.TemporaryDirectory() as folder:
        product = Product(Path(folder), address)
        chat = PROTOCOLS[0]
        steps: list[tuple[str, Callable[[], tuple[bool, str]]]] = [
            *((f"doctor, {protocol[0]}", partial(product.doctor, protocol)) for protocol in PROTOCOLS),
            ("a question", partial(product.answer, chat, QUESTION)),
            ("a call with approval", partial(product.note, chat)),
        ]
        print(f"{'step':<22}{'seconds':>8}   seen")
        for name, step in steps:
            began = time.monotonic()
            fine, seen = step()
            works &= fine
            result = f"{'' if fine else 'FAILED: '}{' '.join(seen.split())[:400]}"
            print(f"{name:<22}{time.monotonic() - began:>8.0f}   {result}", flush=True)
    sys.exit(not works)


if __name__ == "__main__":
    main()
