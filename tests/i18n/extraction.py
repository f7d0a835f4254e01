"""Search for the marked texts of the product, and for unmarked texts for users."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from babel.messages.extract import extract_from_dir

from scripts.extract_texts import marked_literals

ROOT = Path(__file__).parents[2]
_LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_PROGRAM_ERRORS = frozenset(
    {"AssertionError", "AttributeError", "KeyError", "LookupError", "NotImplementedError", "RuntimeError", "TypeError"}
)
_WORDS = re.compile(r"[A-Za-z]{2,}[’']?[a-z]*[ ,;:.…!?—–-]+\(?[“\"'`*]*(?:[A-Za-z]{1,}|\{)|\} [A-Za-z]{2,}")
_LABEL = re.compile(r"[A-Z][a-z]+(?:-[a-z]+)*(?:…|\.|\?|!)?")
_TAG = re.compile(r"<[!/]?[a-z][^>]*>")
_STYLE_SHEET = re.compile(r"\{[^{}]*:[^{}]*;")
_PATTERN = re.compile(r"\(\?P<")
_NAMES = frozenset({"Countersign", "Discord", "Slack"})
_SPACE = re.compile(r"\s")
_API_FIELDS = frozenset({"Field", "Path", "Query", "Header"})
"""Calls with a description for the OpenAPI document, which is English."""


@cache
def marked_texts() -> frozenset[str | tuple[str, str]]:
    """Return every text of the code that is marked for the catalogues; plural texts as (singular, plural)."""
    methods = [("**.py", "scripts.extract_texts:extract"), ("**/templates/**.html", "jinja2")]
    found = extract_from_dir(ROOT / "bot", method_map=methods)
    return frozenset(message if isinstance(message, str) else (message[0], message[1]) for _, _, message, _, _ in found)


def placeholders(text: str) -> set[str]:
    """Return the names of the values in a text."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def unmarked_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and text of literals that look like a text for users, outside of a marker."""
    for node, text in _literals(tree):
        words = _TAG.sub("", text)
        if text in _NAMES or _STYLE_SHEET.search(words) or _PATTERN.search(text):
            continue
        if (_SPACE.search(words) and _WORDS.search(words)) or _LABEL.fullmatch(words):
            yield node.lineno, text


def _literals(tree: ast.Module) -> Iterator[tuple[ast.expr, str]]:
    marked = {literal for node in ast.walk(tree) for literal in marked_literals(node)}
    pending: list[ast.AST] = _without_docstring(tree.body)
    while pending:
        node = pending.pop()
        match node:
            case ast.Constant() if node in marked:
                pass
            case ast.JoinedStr():
                yield node, "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            case ast.Constant(value=str() as text):
                yield node, text
        pending += _parts_for_people(node)


def _parts_for_people(node: ast.AST) -> list[ast.AST]:  # noqa: PLR0911 - one case for each kind of node
    match node:
        case ast.Call():
            return _parts_of_call(node)
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name))) if name in _PROGRAM_ERRORS:
            return []
        case ast.Compare() | ast.Subscript() | ast.Assert() | ast.arguments() | ast.MatchValue():
            return [child for child in ast.walk(node) if isinstance(child, ast.Call)]
        case ast.AnnAssign():
            return [node.value] if node.value is not None else []
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [*node.decorator_list, *_without_docstring(node.body)]
        case ast.Dict():
            return list(node.values)
        case ast.JoinedStr():
            return [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
    return list(ast.iter_child_nodes(node))


def _parts_of_call(call: ast.Call) -> list[ast.AST]:
    match call.func:
        case function if _is_logging(function) or _is_api_route(function):
            return []
        case ast.Attribute(value=ast.Name(id="re"), attr="compile") | ast.Name(id="lazy_pattern"):
            return []
        case ast.Name(id="Verb" | "verb"):
            return _without_typed_words(call)
        case ast.Name(id="form_of"):
            return []
        case ast.Name(id=name) if name in _API_FIELDS:
            return [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg != "description")]
    return list(ast.iter_child_nodes(call))


def _without_typed_words(verb: ast.Call) -> list[ast.AST]:
    """Return the parts of a verb's description without its path and its aliases, which users type."""
    return [*verb.args[1:4], *(keyword.value for keyword in verb.keywords if keyword.arg != "aliases")]


def _without_docstring(body: list[ast.stmt]) -> list[ast.AST]:
    return [
        statement
        for statement in body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]


def _is_logging(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in _LOG_METHODS


def _is_api_route(function: ast.expr) -> bool:
    match function:
        case ast.Attribute(value=ast.Name(id="router")) | ast.Name(id="route"):
            return True
    return False
