"""A program that declares one more setting of servers before anything else is imported, and prints where it appears."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from pathlib import Path

from bot.domain import servers
from bot.i18n import gettext_lazy

# The field, and the row: all that the code of a new setting needs besides its use.
MoreConfig = dataclasses.make_dataclass(
    "ServerConfig", [("patience", int, 3)], bases=(servers.ServerConfig,), frozen=True, slots=True
)
servers.ServerConfig = MoreConfig  # type: ignore[assignment, misc]

from bot.domain import server_settings  # noqa: E402

ROW = server_settings.Setting(
    "patience",
    server_settings.number_of(1, 9),
    gettext_lazy("how patient the bot is"),
    "how patient the bot is with it, 1 to 9",
    label=gettext_lazy("Patience"),
    form=1,
    fact=gettext_lazy("patience"),
    imported=True,
)
server_settings.SETTINGS = (*server_settings.SETTINGS, ROW)  # type: ignore[assignment]

from bot.admin.servers.imports import parse_import_file  # noqa: E402
from bot.domain.commands import Form  # noqa: E402
from bot.mcp.config.file import load_servers  # noqa: E402
from bot.web.api.servers import ServerBody, parse_server  # noqa: E402
from bot.web.server_responses import ServerDetails  # noqa: E402
from tests.admin.servers import command_harness, config_of  # noqa: E402


async def main(folder: Path) -> dict[str, object]:
    held = command_harness()
    await held.ask("mcp add slow https://slow.example/mcp --patience 7 --no-verify")
    added = config_of(held, "slow").patience  # type: ignore[attr-defined]
    rejected = await held.ask("mcp edit slow --patience 70")
    shown = await held.ask("mcp show slow")
    form: Form = await held.form("mcp edit slow")
    fields = set[str]()
    while "patience" not in fields:
        answer = await held.next_form(form, {})
        form, fields = answer, {field.name for field in answer.fields}
    entry = {"url": "https://slow.example/mcp", "patience": 4}
    path = folder / "mcp_servers.json"
    path.write_text(json.dumps({"mcpServers": {"slow": entry, "slower": {**entry, "patience": 40}}}), encoding="utf-8")
    good, bad = load_servers(path, {}).entries
    [imported] = parse_import_file(json.dumps({"mcpServers": {"slow": entry}}), {})
    return {
        "added": added,
        "rejected": dict(rejected.details)["--patience"],
        "shown": {str(name): value for name, value in shown.details}["patience"],
        "form": next(field.value for field in form.fields if field.name == "patience"),
        "file": good.config.patience,  # type: ignore[attr-defined]
        "bad file": str(bad.problem),
        "imported": imported.fields["patience"],
        "request": parse_server(ServerBody(patience=5)).fields["patience"],
        "response": ServerDetails.model_json_schema()["properties"]["patience"],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(Path(sys.argv[1])))))
