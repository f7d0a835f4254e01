"""A browser without scripts: cookies, and forms that are sent as the page has them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import httpx2


@dataclass
class Form:
    """A form of a page: its address and method, its fields, and the labels of its buttons."""

    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._open: Form | None = None
        self._name = ""
        self._select: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = Form(given.get("action", ""), given.get("method", "get"))
            self.forms.append(self._open)
        elif self._open is None:
            return
        elif tag == "input" and (given.get("type") != "checkbox" or "checked" in given):
            self._open.fields.append((given["name"], given.get("value", "")))
        elif tag in ("select", "textarea"):
            self._name = given["name"]
            self._open.fields.append((self._name, ""))
        elif tag == "option" and "selected" in given:
            self._select = []
            if "value" in given:
                self._open.fields[-1] = (self._name, given["value"])
                self._select = None

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        elif tag in ("select", "textarea"):
            self._name = ""

    def handle_data(self, data: str) -> None:
        if self._open is None:
            return
        self._open.text += data
        if self._select is not None:
            self._open.fields[-1] = (self._name, data)
            self._select = None


@dataclass
class Browser:
    """A browser at the console of one bot, with cookies of its own. It sends those of an https address too, as behind a
    proxy.
    """

    client: httpx2.AsyncClient
    cookies: dict[str, str] = field(default_factory=dict)
    page: httpx2.Response = field(default_factory=lambda: httpx2.Response(200))
    history: list[httpx2.Response] = field(default_factory=list)

    async def request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        """Send one request, without redirects."""
        headers = {
            **more.pop("headers", {}),
            "Cookie": "; ".join(f"{name}={text}" for name, text in self.cookies.items()),
        }
        self.client.cookies.clear()
        response = await self.client.request(method, path, headers=headers, **more)
        self.client.cookies.clear()
        for line in response.headers.get_list("set-cookie"):
            name, text = line.partition(";")[0].split("=", 1)
            self.cookies[name] = text.strip('"')
            if "Max-Age=0" in line:
                del self.cookies[name]
        return response

    async def open(self, path: str = "/console", **more: Any) -> httpx2.Response:
        """Open a page."""
        return await self._follow(await self.request("GET", path, **more))

    async def send(self, words: str, **values: str) -> httpx2.Response:
        """Fill in the form with these words and send it. Names of values begin with `a_` for `a.`."""
        form = self.form(words)
        given = {f"{name[0]}.{name[2:]}" if name[1:2] == "_" else name: value for name, value in values.items()}
        pairs = [(name, value) for name, value in form.fields if name not in given] + list(given.items())
        action = form.action or self.page.url.path
        if form.method == "get":
            return await self.open(action, params=pairs)
        return await self._follow(await self.post(action, pairs))

    async def post(self, path: str, pairs: Iterable[tuple[str, str]], **more: Any) -> httpx2.Response:
        """Send fields, without redirects."""
        content = urlencode(list(pairs))
        headers = {"Content-Type": "application/x-www-form-urlencoded", **more.pop("headers", {})}
        return await self.request("POST", path, content=content, headers=headers, **more)

    def form(self, words: str) -> Form:
        """Return the first form of the page whose text, address or fields have these words."""
        reader = _Forms()
        reader.feed(self.page.text)
        found = [form for form in reader.forms if words in f"{form.text} {form.action} {form.fields}"]
        assert found, (words, self.text)
        return found[0]

    @property
    def text(self) -> str:
        """The visible text of the page's content."""
        body = self.page.text.partition("<main")[2].partition(">")[2]
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())

    def link(self, label: str) -> str:
        """Return the address of the link with this label."""
        found = re.search(rf'<a[^>]*href="([^"]*)"[^>]*>\s*{re.escape(label)}', self.page.text)
        assert found, (label, self.text)
        return unescape(found[1])

    async def _follow(self, response: httpx2.Response) -> httpx2.Response:
        self.history = []
        while response.is_redirect:
            self.history.append(response)
            response = await self.request("GET", response.headers["location"])
        self.page = response
        return response
