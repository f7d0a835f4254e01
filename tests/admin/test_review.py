"""`/mcp review`: unpinned definitions and their changes. An admin can approve only a definition that was shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.admin.registry import CommandRegistry
from bot.domain.commands import Form, FormSubmission, Invocation, Reply, ReplyAction
from bot.domain.pins import Pin, ReviewPolicy, combined_digest
from bot.domain.tools import Tool, ToolKind
from tests.admin.memory_stores import NOW
from tests.admin.servers import ADMIN, GUEST, NOTES, AtOnce, CommandHarness, command_harness, tool
from tests.fakes.parts import ANA

LIST = tool("notes", "list", description="Lists notes.")
HOSTILE = "Lists notes.\nto approve this tool: **nothing** \u200b`x`"


class OneProcess(AtOnce):
    """Sends commands to one registry, which caches the definitions that it has shown."""

    def __init__(self, registry: CommandRegistry) -> None:
        self._registry = registry

    async def answers(self, held: CommandHarness, request: Invocation | FormSubmission) -> list[Reply | Form]:
        return [answer async for answer in self._registry.handle(request)]


async def harness_with_changes(*tools: Tool, before: Tool = LIST) -> CommandHarness:
    """Return a harness where `notes` has these tools, and the definition `before` of one of them is pinned."""
    held = command_harness()
    held.servers.offered = list(tools)
    await held.servers.pins.pin(NOTES.id, [before], ANA)
    held.servers.pins.audit.clear()
    return held


def details(reply: Reply) -> dict[str, str]:
    return dict(reply.details)


def rows(reply: Reply) -> list[tuple[str, ...]]:
    assert reply.table is not None
    return list(reply.table.rows)


def approving(reply: Reply) -> ReplyAction:
    """Return the button that approves."""
    (action,) = (each for each in reply.actions if each.words[:3] == ("mcp", "review", "approve"))
    return action


async def press_button(held: CommandHarness, action: ReplyAction) -> Reply:
    return await held.run(*action.words)


async def test_where_nothing_waits_that_is_said(held: CommandHarness) -> None:
    assert "No tool waits" in (await held.ask("mcp review")).text
    assert "No tool waits" in (await held.ask("mcp review notes")).text
    assert "No tool waits" in (await held.ask("mcp review notes list")).text


async def test_servers_with_tools_that_wait_are_listed_with_a_way_to_each() -> None:
    held = await harness_with_changes(replace(LIST, description="Other."), tool("notes", "add"))
    reply = await held.ask("mcp review")
    assert reply.text.startswith("2 tools of 1 server wait for a review. What waits is not offered.")
    assert rows(reply) == [("notes", "2", "list, add")]
    assert [action.words for action in reply.actions] == [("mcp", "review", "show", "notes")]


async def test_a_change_is_shown_part_by_part_and_approved_as_it_was_shown() -> None:
    after = replace(LIST, description="Lists all notes.\nAnd more.", output_schema={"type": "string"})
    held = await harness_with_changes(after)
    reply = await held.ask("mcp review notes")
    assert reply.text.startswith("`list` of `notes` waits for a review: it is not what was looked at any more.")
    told = details(reply)
    assert told["description"] == "− Lists notes.\n+ Lists all notes.\n+ And more."
    assert (told["output.type"], told["is"], told["pinned"]) == ("+ string", "changed", "just now by test:ana")
    assert approving(reply).words[-1] == after.definition
    done = await press_button(held, approving(reply))
    assert done.text == "Approved: 1 tool of `notes`, to be offered from the next answer on."
    assert held.servers.pins.entries[NOTES.id, "list"].definition == after.definition
    assert held.servers.pins.audit == [("tools_pinned", NOTES.id, "test:ana")]
    assert held.refreshed == 1
    assert "No tool waits" in (await held.ask("mcp review")).text


async def test_a_definition_that_has_changed_since_it_was_shown_is_not_approved() -> None:
    held = await harness_with_changes(replace(LIST, description="Harmless."))
    reply = await held.ask("mcp review notes list")
    held.servers.offered = [replace(LIST, description="Evil.")]
    refused = await press_button(held, approving(reply))
    assert refused.failed
    assert "is not what you have looked at any more. Nothing was decided." in refused.text
    assert held.servers.pins.audit == []


async def test_all_that_was_shown_is_approved_at_once_and_nothing_that_came_since() -> None:
    new, other = tool("notes", "add", description="Adds."), tool("notes", "search", description="Searches.")
    held = await harness_with_changes(replace(LIST, description="Other."), new)
    reply = await held.ask("mcp review notes")
    assert rows(reply) == [("list", "changed", "description", ""), ("add", "new", "all of it", "")]
    assert approving(reply).label == "Approve all 2"
    held.servers.offered.append(other)
    assert (await press_button(held, approving(reply))).failed
    assert held.servers.pins.audit == []
    approved = await press_button(held, approving(await held.ask("mcp review notes")))
    assert approved.text.startswith("Approved: 3 tools")
    assert details(approved)["approved"] == "list, add, search"


async def test_one_tools_digest_does_not_approve_another_nor_all() -> None:
    first, second = replace(LIST, description="Other."), tool("notes", "add", description="Adds.")
    held = await harness_with_changes(first, second)
    for words in (
        ("add", "--definition", first.definition),
        ("--definition", first.definition),
        ("list", "--definition", combined_digest([first, second])),
        ("list", "--definition", "0"),
        ("nothing", "--definition", ""),
    ):
        reply = await held.run("mcp", "review", "approve", "notes", *words)
        assert reply.failed or not words[-1]
    assert held.servers.pins.audit == []


async def test_an_approval_without_a_look_shows_the_definitions() -> None:
    held = await harness_with_changes(replace(LIST, description="Other."))
    held.way = OneProcess(held.registry)
    reply = await held.ask("mcp review approve notes list")
    assert details(reply)["description"] == "− Lists notes.\n+ Other."
    assert held.servers.pins.audit == []
    command = f"/mcp review approve notes list --definition {approving(reply).words[-1][:12]}"
    assert reply.text.endswith(f"the digest of what you look at is missing. To decide it: `{command}`.")
    assert (await held.ask(command[1:])).text.startswith("Approved: 1 tool")


async def test_a_refused_definition_waits_no_more_until_the_server_changes_it_again() -> None:
    evil = replace(LIST, description="Evil.")
    held = await harness_with_changes(evil)
    shown = await held.ask("mcp review notes")
    done = await press_button(held, shown.actions[1])
    assert (shown.actions[1].label, details(done)) == ("Refuse", {"refused": "list"})
    assert held.servers.pins.entries[NOTES.id, "list"].definition == LIST.definition
    assert held.servers.pins.audit == [("tools_refused", NOTES.id, "test:ana")]
    assert "No tool waits" in (await held.ask("mcp review")).text
    assert details(await held.ask("mcp review notes")) == {"refused": "list"}
    assert rows(await held.ask("mcp tools notes"))[0][2] == "refused"
    assert "not offered before a review" in str((await held.ask("mcp policy explain notes list")).details)
    held.servers.offered = [replace(LIST, description="Worse.")]
    assert "`list` of `notes` waits for a review" in (await held.ask("mcp review notes")).text
    held.servers.offered = [LIST]
    assert "Every tool of `notes` has its accepted definition." in (await held.ask("mcp review notes")).text


async def test_a_refused_tool_is_named_to_be_approved_after_all() -> None:
    new = tool("notes", "add", description="Adds.")
    held = await harness_with_changes(LIST, new)
    await press_button(held, (await held.ask("mcp review notes")).actions[1])
    shown = await held.ask("mcp review notes add")
    assert "`add` of `notes` is refused and not offered." in shown.text
    assert details(await press_button(held, approving(shown)))["approved"] == "add"
    assert details(await held.ask("mcp review notes")) == {}


async def test_the_beginning_of_a_digest_counts_only_for_definitions_shown_to_this_person() -> None:
    held = await harness_with_changes(replace(LIST, description="Other."))
    held.way = OneProcess(held.registry)
    begun = replace(LIST, description="Other.").definition[:12]
    assert (await held.ask(f"mcp review approve notes list --definition {begun}")).failed
    await held.ask("mcp review notes")
    assert (await held.ask(f"mcp review approve notes list --definition {begun[:11]}")).failed
    held.servers.offered = [replace(LIST, description="Evil.")]
    assert (await held.ask(f"mcp review approve notes list --definition {begun}")).failed
    assert held.servers.pins.audit == []


async def test_why_a_tool_was_flagged_is_said_first() -> None:
    flagged = tool("notes", "odd", description="<IMPORTANT>", flags=("it gives orders to the model",))
    held = command_harness()
    held.servers.offered = [LIST, flagged]
    reply = await held.ask("mcp review notes")
    assert details(reply)["look at"] == "it gives orders to the model"
    assert details(reply)["is"] == "flagged"
    assert details(reply)["description"] == "<IMPORTANT>"


async def test_texts_of_a_server_stand_in_cells_and_forge_no_line() -> None:
    held = await harness_with_changes(replace(LIST, description=HOSTILE), tool("notes", "**x**`\u202e"))
    reply = await held.ask("mcp review notes")
    said = details(reply)["list · description"]
    assert "nothing" not in reply.text
    assert "\u200b" not in said
    assert "\\u200b" in said
    assert rows(reply)[1][0] == '"**x**`\\u202e"'
    assert [action.label for action in reply.actions] == [
        "Review list",
        "Review tool 2",
        "Approve all 2",
        "Refuse all 2",
    ]


async def test_a_review_too_long_for_a_reply_is_a_document_with_everything() -> None:
    longer = replace(LIST, description="\n".join(["to approve this tool: /mcp review approve notes list"] * 100))
    held = await harness_with_changes(longer)
    reply = await held.ask("mcp review notes list")
    assert reply.document is not None
    assert "description" not in details(reply)
    lines = reply.document.text.splitlines()
    assert lines.count("    + to approve this tool: /mcp review approve notes list") == 100
    last = f"  to approve this tool: /mcp review approve notes list --definition {longer.definition}"
    assert [line for line in lines if line.startswith("  to approve")] == [last]


async def test_many_tools_come_in_pages_and_all_of_them_in_one_document() -> None:
    flags = ("it gives orders to the model",)
    many = [tool("notes", f"new_{number:02}", description="New. " * 30, flags=flags) for number in range(23)]
    held = await harness_with_changes(LIST, *many)
    reply = await held.ask("mcp review notes")
    assert (len(rows(reply)), reply.page and reply.page.of) == (10, 3)
    assert reply.document is not None
    assert all(each.definition in reply.document.text for each in many)
    assert reply.document.text.count("  look at: it gives orders to the model\n") == len(many)
    assert approving(reply).label == "Approve all 23"
    second = await held.ask("mcp review show notes --page 2")
    assert rows(second)[0][0] == "new_10"
    assert approving(second).words == approving(reply).words


async def test_a_pin_of_an_unreadable_format_is_shown_whole() -> None:
    held = await harness_with_changes(replace(LIST, description="Other."))
    held.servers.pins.unreadable = True
    told = details(await held.ask("mcp review notes"))
    assert told["note"] == "what was pinned cannot be read any more, so all of it is shown"
    assert told["description"] == "Other."


async def test_another_process_may_have_pinned_it_a_moment_ago() -> None:
    after = replace(LIST, description="Other.")
    held = await harness_with_changes(after)
    reply = await held.ask("mcp review notes")
    held.servers.pins.entries[NOTES.id, "list"] = Pin(NOTES.id, "list", after.definition, after, "test:ben", NOW)
    assert (await press_button(held, approving(reply))).failed
    assert held.servers.pins.audit == []


async def test_without_review_that_is_said_and_tools_are_not_marked() -> None:
    held = await harness_with_changes(replace(LIST, description="Other."))
    held.servers.review = ReviewPolicy.OFF
    assert "offered all the same (`MCP_REVIEW=off`)" in (await held.ask("mcp review notes")).text
    assert "review" not in details(await held.ask("mcp show notes"))
    assert rows(await held.ask("mcp tools notes"))[0][2] != "waits for review"


@pytest.mark.parametrize("line", ["mcp review", "mcp review notes", "mcp review approve notes list --definition 0"])
async def test_only_admins_review(line: str) -> None:
    held = await harness_with_changes(replace(LIST, description="Other."))
    reply = await held.refusal(line, GUEST)
    assert "Only test:ana can do this." in reply.text


async def test_lists_say_that_tools_wait() -> None:
    held = await harness_with_changes(replace(LIST, description="Other."), tool("notes", "add"))
    assert details(await held.ask("mcp show notes", GUEST))["review"] == "2 wait for review: /mcp review notes"
    tools = await held.ask("mcp tools notes", GUEST)
    assert [row[2] for row in rows(tools)] == ["waits for review", "waits for review"]
    assert details(tools)["review"] == "2 wait for review: /mcp review notes"
    assert details(await held.ask("mcp list"))["notes"] == "2 wait for review: /mcp review notes"


async def test_syncs_verifications_and_explanations_name_waiting_tools_and_reasons() -> None:
    flagged = tool("notes", "odd", flags=("it gives orders to the model",))
    held = await harness_with_changes(LIST, flagged)
    for line in ("mcp sync notes", "mcp verify notes"):
        reply = await held.ask(line)
        assert details(reply)["waits for review"] == "odd", line
        assert details(reply)["odd"] == "it gives orders to the model", line
        assert ("mcp", "review", "show", "notes") in [action.words for action in reply.actions], line
    explained = details(await held.ask("mcp policy explain notes odd"))
    assert "is not offered before a review" in explained["review"]
    assert "review" not in details(await held.ask("mcp policy explain notes list", ADMIN))


def instructions(text: str, *flags: str) -> Tool:
    return Tool(
        ToolKind.INSTRUCTIONS,
        "notes",
        ToolKind.INSTRUCTIONS,
        description=text,
        server_id=NOTES.id,
        flags=flags,
        kind=ToolKind.INSTRUCTIONS,
    )


async def test_instructions_are_reviewed_as_one_text_and_approved_as_they_were_shown() -> None:
    held = await harness_with_changes(LIST)
    held.servers.instructions[NOTES.id] = instructions("List first.\nThen **add**.")
    reply = await held.ask("mcp review")
    assert reply.text.startswith("The instructions of 1 server wait")
    assert rows(reply) == [("notes", "1", "mcp:instructions")]
    reply = await held.ask("mcp review notes")
    assert reply.text.startswith("The text for models of `notes` waits for a review: it was not there")
    assert details(reply) == {
        "tool": "mcp:instructions",
        "is": "new",
        "instructions": "List first.\nThen **add**.",
    }
    held.servers.instructions[NOTES.id] = instructions("Evil.")
    assert (await press_button(held, approving(reply))).failed
    reply = await held.ask("mcp review notes mcp:instructions")
    done = await press_button(held, approving(reply))
    assert done.text.startswith("Approved: the instructions of `notes`")
    held.servers.instructions[NOTES.id] = instructions("x" * 700, "it gives orders to the model")
    held.servers.offered.append(tool("notes", "add"))
    reply = await held.ask("mcp review notes")
    assert reply.text.startswith("1 tool and the instructions of `notes` wait for a review.")
    assert reply.document is not None
    assert "x" * 700 in reply.document.text
