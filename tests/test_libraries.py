"""Libraries of others, and the only modules that import each of them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BOT = Path(__file__).parents[1] / "bot"
HOMES = {
    "ada_url": "mcp/hosts.py",
    "aiohttp": "chat/http.py llm/hosted_model.py mcp/transports/pool.py platforms/discord/ platforms/slack/",
    "alembic": "storage/migrate.py storage/migrations/",
    "anthropic": "llm/anthropic.py",
    "anyio": "mcp/",
    "babel": "i18n/languages.py",
    "cattrs": "storage/codec.py",
    "cryptography": "storage/encryption.py web/gateway/receipts.py",
    "discord": "platforms/discord/",
    "dotenv": "app/setup/ cli/execution.py settings.py",
    "fastapi": "web/",
    "httpx2": "llm/hosted_model.py llm/provider_service.py mcp/",
    "jinja2": "web/console/",
    "jsonschema": "llm/demo/planning.py mcp/argument_validation.py",
    "jwt": "mcp/oauth/openid.py web/gateway/receipts.py",
    "markdown_it": "platforms/console/markdown_renderer.py rendering/markdown.py",
    "markupsafe": "web/console/",
    "mcp": "mcp/ web/gateway/mcp_server.py",
    "model2vec": "llm/static_embeddings.py",
    "openai": "llm/hosted_model.py",
    "prometheus_client": "web/prometheus.py",
    "prompt_toolkit": "platforms/console/",
    "psycopg": "storage/pipeline.py storage/postgresql.py",
    "publicsuffixlist": "mcp/oauth/client.py",
    "pydantic": "app/secrets.py mcp/ rendering/response_models.py rendering/turn_events.py settings.py web/",
    "pydantic_core": "settings.py",
    "pydantic_settings": "settings.py",
    "referencing": "llm/tool_schemas.py mcp/argument_validation.py",
    "regex": "rendering/deceptive_text.py",
    "rfc8785": "web/gateway/receipts.py",
    "rich": "platforms/console/markdown_renderer.py",
    "slack_bolt": "platforms/slack/",
    "slack_sdk": "platforms/slack/",
    "sqlalchemy": "storage/",
    "starlette": "web/",
    "typer": "cli/",
    "uvicorn": "web/server.py",
    "yaml": "app/client_configuration.py platforms/slack/manifest.py",
    "yarl": "mcp/transports/pool.py platforms/discord/gateway.py",
}


def _imports(path: Path) -> Iterator[str]:
    """Yield the names of the packages that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names):
                yield from (alias.name.partition(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]


IMPORTS = sorted(
    (path.relative_to(BOT).as_posix(), name)
    for path in BOT.rglob("*.py")
    for name in set(_imports(path)) - sys.stdlib_module_names - {"bot"}
)


@pytest.mark.parametrize("library", sorted({library for _module, library in IMPORTS} | HOMES.keys()))
def test_a_library_is_imported_in_its_homes_alone_and_in_each_of_them(library: str) -> None:
    homes = HOMES.get(library, "").split()
    modules = [module for module, name in IMPORTS if name == library]
    assert [module for module in modules if not module.startswith(tuple(homes or ["nowhere"]))] == []
    assert [home for home in homes if not any(module.startswith(home) for module in modules)] == []


def test_domain_ports_engine_and_admin_have_the_standard_library_alone() -> None:
    plain = ("domain/", "ports/", "engine/", "admin/")
    assert [module for module, _library in IMPORTS if module.startswith(plain)] == []
