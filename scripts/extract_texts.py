"""Babel's extractor of the texts for people: literals in the arguments that `PLACES` names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import IO

PLACES: dict[str, tuple[int | str, ...]] = {
    "_": (0,),
    "gettext": (0,),
    "gettext_lazy": (0,),
    "make_lazy": (0,),
    "Command": (1,),
    "GrantOption": (1, 2),
    "InvalidDefinition": (0, 1),
    "Parameter": (1,),
    "Permission": (1, 2),
    "ResourceField": (4, 5, 6),
    "RuleField": (5,),
    "Scope": (1,),
    "Setting": (2, "label", "hint", "fact"),
    "Table": (0,),
    "Verb": (1,),
    "_InvalidServer": (1, 2),
    "_InvalidTemplate": (0,),
    "_Unusable": (0,),
    "choice_field": (1, 2),
    "lines_field": (1, 2),
    "option": (1,),
    "text_field": (1, 2),
    "verb": (1,),
}
"""Arguments that are texts for people, as positions and names, by the name of their function or class, which translates
them. In a tuple, a list or a dictionary, each value is a text.
"""
FORMS = {"ngettext": "ngettext", "ngettext_lazy": "ngettext", "pgettext": "pgettext", "pgettext_lazy": "pgettext"}
"""Functions whose first two arguments are one entry, with Babel's names for them."""


def extract(
    file: IO[bytes], _keywords: object, _comment_tags: object, options: object
) -> Iterator[tuple[int, str | None, list[str], list[str]]]:
    """Yield the line, function, texts and comments of each entry of a module, as Babel takes them."""
    del options
    for node in ast.walk(ast.parse(file.read())):
        texts = [literal.value for literal in marked_literals(node) if isinstance(literal.value, str)]
        form = FORMS.get(function_name(node))
        if form and texts:
            yield node.lineno, form, texts, []  # type: ignore[attr-defined]
        elif not form:
            yield from ((node.lineno, None, [text], []) for text in texts)  # type: ignore[attr-defined]


def marked_literals(node: ast.AST) -> Iterator[ast.Constant]:
    """Yield the literals in the arguments of a call that are texts for people."""
    if not isinstance(node, ast.Call):
        return
    name = function_name(node)
    for place in (0, 1) if name in FORMS else PLACES.get(name, ()):
        if isinstance(place, int):
            arguments = node.args[place : place + 1]
        else:
            arguments = [keyword.value for keyword in node.keywords if keyword.arg == place]
        for argument in arguments:
            yield from _literals(argument)


def function_name(node: ast.AST) -> str:
    """Return the name of the function or class that a call names directly; empty for all others."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def _literals(node: ast.expr) -> Iterator[ast.Constant]:
    match node:
        case ast.Constant(value=str() as text) if text:
            yield node
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts) | ast.BoolOp(values=parts):
            for part in parts:
                yield from _literals(part)
        case ast.IfExp(body=first, orelse=second):
            yield from _literals(first)
            yield from _literals(second)
