"""Typical servers, from the first sentence to the server's own record: workflows, a database, the rules of a
business, and the tools of developers.
"""

from __future__ import annotations

from pathlib import Path

from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.mcp.cases.api_explorer import api_explorer
from tests.fakes.mcp.cases.database import database
from tests.fakes.mcp.cases.orders import shop
from tests.fakes.mcp.cases.tracker import tracker
from tests.fakes.mcp.cases.workflows import KEY_HEADER, workflows
from tests.fakes.terminal import ProgramOnTerminal
from tests.stories.installation import PROJECT, Installation
from tests.stories.test_approvals import card

KEY = "n8n-5d1e70c2aa3b49f0"
PASSWORD = "correct-horse-battery"
TOKEN = "trk-90be17d5c2ff4a61"
FILES = PROJECT / "tests/fakes/mcp/cases/files.py"


def wanting(**calls: Call) -> FakeLanguageModel:
    """A model that makes the call whose word is in the question, and reports the outcome."""

    def clerk(request: Request) -> Reply:
        if request.results:
            return Say(f"It said: {' / '.join(request.results)}.")
        return next((Say(calls=(call,)) for word, call in calls.items() if word in request.question), Say("Pardon?"))

    return FakeLanguageModel("openai", rule=clerk)


def reading(server: str, *tools: str) -> str:
    """A policy file: these tools run by themselves, all others wait for a signature."""
    return f"[servers.{server}.tools]\n" + "".join(f'{tool} = "ALWAYS_ALLOW"\n' for tool in tools)


async def leaves(terminal: ProgramOnTerminal) -> None:
    await terminal.prompts()
    assert await terminal.leaves() == 0


async def test_a_workflow_sends_an_email_once_it_is_approved(tmp_path: Path) -> None:
    mail = {"to": "sam@example.org", "subject": "Lunch", "body": "Twelve o'clock?"}
    with (
        workflows(KEY) as n8n,
        wanting(workflows=Call("n8n__list_workflows"), write=Call("n8n__send_email", mail)) as model,
    ):
        entry = {"url": n8n.url, "headers": {KEY_HEADER: "${N8N_API_KEY}"}}
        place = Installation(
            tmp_path, {"n8n": entry}, model=model, policy=reading("n8n", "list_workflows"), N8N_API_KEY=KEY
        )
        async with place.terminal() as terminal:
            await terminal.asks("which workflows are there?", "✓ n8n.list_workflows", "It said: send_email.")
            await terminal.asks("write to Sam about lunch")
            await card(terminal, "Server n8n   Tool send_email", "sam@example.org", "Twelve o'clock?")
            assert n8n.sent == []
            await terminal.presses("\r", "⊘ n8n.send_email  denied")
            assert n8n.sent == []
            await terminal.asks("do write to Sam")
            await card(terminal, "Server n8n   Tool send_email")
            await terminal.presses("y", "It said: Execution 1: sent to sam@example.org.")
            await leaves(terminal)
            assert KEY not in terminal.text
    assert n8n.sent == [mail]
    assert KEY not in place.log


async def test_a_database_is_read_freely_and_written_with_an_approval_and_only_with_its_password(
    tmp_path: Path,
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    secret, user = secrets / "database", secrets / "user"
    secret.write_text("wrong-horse-battery")
    user.write_text("bot")
    who = {"sql": "select city from customers where name = 'Ada'"}
    with (
        database(tmp_path / "customers.db", "bot", PASSWORD) as kept,
        wanting(live=Call("db__query", who), add=Call("db__insert", {"name": "Bo", "city": "Oslo"})) as model,
    ):
        place = Installation(
            tmp_path / "bot",
            {},
            model=model,
            policy=reading("db", "query"),
            MCP_ALLOWED_HOSTS=kept.url.split("/")[2],
            MCP_SECRET_FOLDER=str(secrets),
        )
        async with place.terminal(columns=160) as terminal:
            signing_in = f"--auth basic --username file:{user} --secret file:{secret}"
            await terminal.asks(f"/mcp add db --url {kept.url} {signing_in}")
            await terminal.shows(
                "db is added, but does not work yet.", "The server answers 401 Unauthorized. It asks for Basic."
            )
            assert kept.door.turned_away > 0
            secret.write_text(PASSWORD)
            await terminal.asks("/mcp secret rotate db", "connects again")
            await terminal.asks("/mcp verify db", "✓ authentication")

            await terminal.asks("where does Ada live?", "✓ db.query", "London")
            await terminal.asks("add Bo from Oslo")
            await card(terminal, "Server db   Tool insert", "Oslo")
            assert kept.rows == [("Ada", "London")]
            await terminal.presses("y", "It said: Added Bo.")
            assert kept.rows == [("Ada", "London"), ("Bo", "Oslo")]
            await terminal.asks("add Bo again")
            await card(terminal, "Server db   Tool insert")
            await terminal.presses("y", "Bo is a customer already")
            await leaves(terminal)
            assert PASSWORD not in terminal.text
    assert kept.rows == [("Ada", "London"), ("Bo", "Oslo")]
    assert all(PASSWORD.encode() not in written for written in place.folder_files().values())


async def test_the_rules_of_a_business_are_asked_for_a_price_and_an_order_is_approved(tmp_path: Path) -> None:
    many = {"sku": "lamp", "quantity": 10}
    with (
        shop() as sold,
        wanting(
            cost=Call("shop__calculate_price", many), order=Call("shop__process_order", {**many, "customer": "Priya"})
        ) as model,
    ):
        place = Installation(
            tmp_path, {"shop": {"url": sold.url}}, model=model, policy=reading("shop", "calculate_price")
        )
        async with place.terminal() as terminal:
            await terminal.asks("what do ten lamps cost?", "✓ shop.calculate_price", "355.50 EUR")
            await terminal.asks("order them for Priya")
            await card(terminal, "Server shop   Tool process_order", "lamp", "Priya")
            assert sold.orders == []
            await terminal.presses("y", "Order 1: 10 lamp for Priya, 355.50 EUR")
            await leaves(terminal)
    assert sold.orders == [("lamp", 10, "Priya")]


async def test_files_an_api_and_an_issue_tracker_are_read_freely_and_changed_with_an_approval(tmp_path: Path) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    (shelf / "plan.txt").write_text("paint the door")
    with (
        api_explorer() as swagger,
        tracker(TOKEN) as issues,
        wanting(
            shelf=Call("files__list_directory", {"path": "."}),
            plan=Call("files__read_file", {"path": "plan.txt"}),
            outside=Call("files__read_file", {"path": "../config/policy.toml"}),
            done=Call("files__write_file", {"path": "plan.txt", "content": "the door is painted"}),
            paths=Call("swagger__listPaths"),
            schema=Call("swagger__getSchema", {"name": "Ticket"}),
            healthy=Call("swagger__testEndpoint", {"method": "GET", "path": "/health"}),
            issues=Call("tracker__list_issues"),
            report=Call("tracker__create_issue", {"title": "The door is open"}),
        ) as model,
    ):
        policy = reading("files", "list_directory", "read_file") + reading("swagger", "listPaths", "getSchema")
        place = Installation(
            tmp_path,
            {
                "files": {"command": "python", "args": [str(FILES), str(shelf)], "trusted": True, "sends": "closed"},
                "swagger": {
                    "url": swagger.url,
                    "trusted": True,
                    "tool_sends": {"listPaths": "closed", "getSchema": "closed"},
                },
                "tracker": {
                    "url": issues.url,
                    "headers": {"Authorization": "Bearer ${TRACKER_TOKEN}"},
                    "trusted": True,
                    "tool_sends": {"list_issues": "closed"},
                },
            },
            model=model,
            policy=policy + reading("tracker", "list_issues"),
            TRACKER_TOKEN=TOKEN,
        )
        async with place.terminal(rows=60) as terminal:
            for question, answer in (
                ("what is on the shelf?", "It said: plan.txt."),
                ("what is the plan?", "It said: paint the door."),
                ("what is outside?", "../config/policy.toml is outside the folder"),
                ("which paths are there?", "POST /tickets"),
                ("which schema has a ticket?", '"required"'),
                ("which issues are open?", "#1 The door squeaks"),
            ):
                await terminal.asks(question, answer)

            for question, text, answer in (
                ("it is done", "the door is painted", "It said: Wrote plan.txt."),
                ("is it healthy?", "/health", '200 {"status":"ok"}'),
                ("report it", "The door is open", "It said: Opened #2 The door is open."),
            ):
                await terminal.asks(question)
                await card(terminal, text)
                await terminal.presses("y", answer)
            await leaves(terminal)
    assert (shelf / "plan.txt").read_text() == "the door is painted"
    assert swagger.requests == [("GET", "/health", None)]
    assert issues.issues == ["The door squeaks", "The door is open"]
