from __future__ import annotations

from bot.domain.commands import Field, Form, PageInfo, Reply, ReplyAction, Table, reply_json


def test_rows_are_objects_by_their_headings_and_a_nameless_column_has_its_number() -> None:
    reply = Reply("Two", Table(("server", ""), (("jira", "on"), ("notes", "off"))), (("state", "on"),))
    assert reply_json(reply) == {
        "text": "Two",
        "failed": False,
        "rows": [{"server": "jira", "column2": "on"}, {"server": "notes", "column2": "off"}],
        "details": {"state": "on"},
        "actions": [],
        "page": None,
        "data": None,
    }


def test_actions_are_command_lines_and_pages_are_counted() -> None:
    reply = Reply(
        "Off.", actions=(ReplyAction("Undo", ("mcp", "enable", "jira")),), page=PageInfo(2, 3, ("mcp", "list"))
    )
    made = reply_json(reply)
    assert made["actions"] == [{"label": "Undo", "command": "mcp enable jira"}]
    assert made["page"] == {"number": 2, "of": 3}


def test_a_form_fails_for_a_program_and_names_the_options_instead() -> None:
    form = Form(
        "mcp add", "Add MCP server", (Field("url", "URL", error="Use https"),), instead="/mcp add NAME --url URL"
    )
    assert reply_json(form) == {
        "form": "Add MCP server",
        "failed": True,
        "fields": [{"name": "url", "label": "URL", "error": "Use https"}],
        "instead": "/mcp add NAME --url URL",
    }
