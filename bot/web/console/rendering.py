"""Templates of the console, and HTML of Markdown. All text is escaped by the templates.

The pages load only files of this package: one style sheet, htmx, and one small script. They work without scripts.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse

from bot.admin.browser_sessions import CONSOLE_PATH
from bot.i18n import LazyText, _, current_language, format_datetime, ngettext, pgettext
from bot.rendering import markdown
from bot.rendering.text_safety import safe_url, single_line, strip_control

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
}
"""Headers of every page."""
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
STATIC: Final[Mapping[str, tuple[str, bytes]]] = {
    file.name: (_TYPES[file.name.rpartition(".")[2]], file.read_bytes())
    for file in files("bot.web.console").joinpath("static").iterdir()
    if file.name.rpartition(".")[2] in _TYPES
}
"""Content type and bytes of each file that pages load."""
_VERSION = hashlib.sha256(b"".join(content for _type, content in STATIC.values())).hexdigest()[:12]
CommandLink = Callable[[str], str]
"""Return the path of the page of a command line, empty if it is none."""


class Templates:
    """The templates. `prefix` is the path of PUBLIC_URL, below which a proxy serves the bot; empty for none."""

    def __init__(self, prefix: str, command_link: CommandLink) -> None:
        self._prefix = prefix
        self._environment = Environment(
            loader=PackageLoader("bot.web.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_translated,
        )
        self._environment.globals.update(
            {"_": _, "ngettext": ngettext, "pgettext": pgettext, "url": self.url, "static": self._static}
        )
        self._environment.filters.update(
            {
                "line": _line,
                "words": shlex.join,
                "clean": lambda text: strip_control(str(text)).strip(),
                "moment": lambda at: format_datetime(at) if at else "",
                "markdown": lambda text: markdown_html(str(text)),
                "reply": lambda text: markdown_html(str(text), command_link),
            }
        )

    def url(self, path: str = "") -> str:
        """Return the address of a page from its path behind `/console`."""
        return f"{self._prefix}{CONSOLE_PATH}{path}"

    def render(self, name: str, **values: Any) -> str:
        """Return a template with these values, in the current language."""
        return self._environment.get_template(name).render(language=current_language(), **values)

    def page(
        self, name: str, status: int = 200, *, headers: Mapping[str, str] | None = None, **values: Any
    ) -> HTMLResponse:
        """Return a page."""
        return HTMLResponse(self.render(name, **values), status, {**HEADERS, **(headers or {})})

    def _static(self, name: str) -> str:
        return f"{self.url('/static/')}{name}?{_VERSION}"


def _line(text: object, longest: int = 300) -> str:
    return single_line(str(text), longest)


def _translated(value: object) -> object:
    # The raw value of a lazy text is English, and that is what would be escaped.
    return str(value) if isinstance(value, LazyText) else value


# -------------------- Markdown


def markdown_html(text: str, command_link: CommandLink = lambda _line: "") -> Markup:
    """Return Markdown as HTML. Code that is a command line becomes a link by `command_link`."""
    return _nodes_html(markdown.parse(text), command_link)


def _nodes_html(nodes: Iterable[markdown.Node], link: CommandLink) -> Markup:
    return Markup().join(_node_html(node, link) for node in nodes)


def _node_html(node: markdown.Node, link: CommandLink) -> Markup:  # noqa: PLR0911 - one for each kind
    match node:
        case markdown.Paragraph(line):
            return Markup("<p>{}</p>").format(_line_html(line, link))
        case markdown.Heading(level, line):
            # The page has the first two levels.
            tag = Markup(f"h{min(level + 2, 6)}")  # noqa: S704 - a number
            return Markup("<{0}>{1}</{0}>").format(tag, _line_html(line, link))
        case markdown.Code(code):
            return Markup("<pre><code>{}</code></pre>").format(code)
        case markdown.List(items, start):
            rows = Markup().join(Markup("<li>{}</li>").format(_nodes_html(item, link)) for item in items)
            if start is None:
                return Markup("<ul>{}</ul>").format(rows)
            return Markup('<ol start="{}">{}</ol>').format(start, rows)
        case markdown.Quote(inner):
            return Markup("<blockquote>{}</blockquote>").format(_nodes_html(inner, link))
        case markdown.MarkdownTable(rows):
            lines = (
                Markup("<tr>{}</tr>").format(
                    Markup().join(
                        Markup("<{0}>{1}</{0}>").format("td" if number else "th", _line_html(cell, link))
                        for cell in row
                    )
                )
                for number, row in enumerate(rows)
            )
            return Markup('<div class="scroll"><table>{}</table></div>').format(Markup().join(lines))
        case markdown.HorizontalRule():
            return Markup("<hr>")


def _line_html(line: markdown.Line, link: CommandLink) -> Markup:
    return Markup().join(_inline_html(part, link) for part in line)


def _inline_html(part: markdown.Inline, link: CommandLink) -> Markup:
    html = Markup("<br>").join(part.text.split("\n"))
    style = part.style
    for wanted, tag in ((style.code, "code"), (style.bold, "strong"), (style.italic, "em"), (style.struck, "s")):
        html = Markup("<{0}>{1}</{0}>").format(tag, html) if wanted else html
    if isinstance(part, markdown.Link):
        address = safe_url(part.url)
        return (
            Markup('<a href="{}" rel="noopener noreferrer nofollow">{}</a>').format(address, html) if address else html
        )
    if style.code and part.text.startswith("/") and (path := link(part.text)):
        return Markup('<a href="{}">{}</a>').format(path, html)
    return escape(html)
