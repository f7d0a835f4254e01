"""Modules that are imported by name, which neither mypy nor the import contracts follow."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bot

ROOT = Path(bot.__file__).parent


def _imports_by_name(tree: ast.AST) -> Iterator[tuple[ast.AST, dict[str, list[str]]]]:
    """Yield the expression of each module name, with the values of the loop variables in it."""
    loops: dict[ast.AST, dict[str, list[str]]] = {}
    for outer in ast.walk(tree):
        if isinstance(outer, ast.GeneratorExp | ast.ListComp):
            names = {
                loop.target.id: [str(element.value) for element in loop.iter.elts if isinstance(element, ast.Constant)]
                for loop in outer.generators
                if isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Tuple | ast.List)
            }
            loops |= dict.fromkeys(ast.walk(outer), names)
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and call.args:
            function, *arguments = [call.func, *call.args]
            if ast.unparse(function).endswith("import_module"):
                yield arguments[0], loops.get(call, {})
            elif ast.unparse(arguments[0]).endswith("import_module"):  # asyncio.to_thread(import_module, name)
                yield arguments[1], loops.get(call, {})


def _modules(expression: ast.AST, names: dict[str, list[str]]) -> list[str]:
    """Return the modules that an expression stands for; none if only a running process knows."""
    match expression:
        case ast.Constant(str(module)):
            return [module]
        case ast.Name(name):
            return names.get(name, [])
        case ast.JoinedStr([ast.Constant(str(package)), ast.FormattedValue(ast.Name(name))]):
            return [package + module for module in names.get(name, [])]
        case _:
            return []


def test_every_module_that_is_imported_by_name_exists() -> None:
    imports = {
        (str(path.relative_to(ROOT)), module)
        for path in ROOT.rglob("*.py")
        if "import_module" in (source := path.read_text())
        for expression, names in _imports_by_name(ast.parse(source))
        for module in _modules(expression, names)
    }
    # Names in loops are read, too.
    assert {("app/slack.py", "bot.platforms.slack.sending"), ("app/runtime.py", "bot.web.application")} <= imports
    assert {(path, module) for path, module in imports if importlib.util.find_spec(module) is None} == set()


def test_a_chat_loads_no_heavy_library_before_its_first_prompt() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", "import sys, bot.app.chat; print(*sys.modules)"],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {module.partition(".")[0] for module in ended.stdout.split()}
    heavy = {
        "alembic", "anthropic", "cryptography", "discord", "fastapi", "httpx2", "jsonschema", "mcp", "openai",
        "slack_bolt", "sqlalchemy", "starlette", "uvicorn",
    }  # fmt: skip
    assert {"bot", "prompt_toolkit"} <= imported
    assert not imported & heavy
