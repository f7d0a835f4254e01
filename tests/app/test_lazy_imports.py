"""Modules that are imported by name. Neither mypy nor the import contracts check these imports."""

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
    """Return the modules that an expression stands for; empty if they are known only at run time."""
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
    assert {("app/slack.py", "bot.platforms.slack.sending"), ("app/service.py", "bot.web.application")} <= imports
    assert {(path, module) for path, module in imports if importlib.util.find_spec(module) is None} == set()


def _loaded_by(module: str) -> set[str]:
    """Return the packages and modules that a process has loaded after the import of a module."""
    ended = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    modules = ended.stdout.split()
    return {name.partition(".")[0] for name in modules} | set(modules)


PLATFORMS_AND_SERVICES = {
    "aiohttp",
    "alembic",
    "anthropic",
    "discord",
    "fastapi",
    "jinja2",
    "jsonschema",
    "openai",
    "slack_bolt",
}


def test_a_chat_loads_no_heavy_library_before_its_first_prompt() -> None:
    imported = _loaded_by("bot.app.chat")
    others = {"cryptography", "httpx2", "mcp", "prompt_toolkit", "rich", "sqlalchemy", "starlette", "uvicorn"}
    assert {"bot", "pydantic_settings"} <= imported
    assert not imported & (PLATFORMS_AND_SERVICES | others)


def test_a_runtime_loads_no_library_of_other_platforms_and_services() -> None:
    imported = _loaded_by("bot.app.runtime")
    assert {"httpx2", "sqlalchemy"} <= imported
    assert not imported & (PLATFORMS_AND_SERVICES | {"mcp", "prompt_toolkit"})


def test_what_a_start_needs_of_web_models_and_database_loads_no_library_for_later() -> None:
    imported = _loaded_by("bot.web.application, bot.llm.openai_chat, bot.llm.anthropic, bot.storage.turn_log.log")
    assert {"starlette", "sqlalchemy", "bot.storage.tables"} <= imported
    assert not imported & (PLATFORMS_AND_SERVICES | {"markdown_it", "sqlalchemy.dialects.postgresql"})
