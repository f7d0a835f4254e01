"""Every text that users see is in every catalogue."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.pofile import read_po

from bot.admin.profiles.fields import PROFILE
from bot.domain.server_settings import SETTINGS
from bot.i18n import DEFAULT_LANGUAGE, installed_languages
from bot.i18n.languages import catalog_path
from tests.i18n.extraction import ROOT, marked_texts, placeholders, unmarked_texts

LANGUAGES = [language for language in installed_languages() if language != DEFAULT_LANGUAGE]

NOT_FOR_PEOPLE = {
    "bot/i18n": "the markers themselves",
    "bot/llm/anthropic.py": "prompts",
    "bot/llm/demo": "words that the demo model reads; its answers are marked",
    "bot/llm/openai_chat.py": "prompts",
    "bot/llm/openai_responses.py": "prompts",
    "bot/llm/tool_schemas.py": "descriptions of tools for models",
    "bot/llm/wire_format.py": "prompts",
    "bot/domain/audit.py": "kinds of the audit log",
    "bot/domain/vocabulary.py": "words of the search among tools",
    "bot/engine/builtin_tools": "tools and results for models",
    "bot/engine/prompt/builder.py": "prompts",
    "bot/engine/prompt/history.py": "prompts",
    "bot/engine/prompt/messages.py": "prompts",
    "bot/logs.py": "the log",
    "bot/ports/__init__.py": "names of ports",
    "bot/mcp/results.py": "results for models",
    "bot/mcp/sdk.py": "texts of the library for MCP",
    "bot/mcp/resource_tools.py": "tools and results for models",
    "bot/mcp/transports/json_rpc.py": "messages of the protocol",
    "bot/mcp/transports/messages.py": "messages of the protocol",
    "bot/mcp/transports/stdio.py": "messages of the protocol",
    "bot/mcp/transports/streamable.py": "messages of the protocol",
    "bot/storage": "SQL, and errors for the log",
    "bot/web/application.py": "answers to platforms and probes, and the description of the API",
    "bot/web/prometheus.py": "metrics",
}
"""Folders and files without texts for users, each with a reason."""

FOR_OPERATORS = (
    "bot/__main__.py",
    "bot/app",
    "bot/cli",
    "bot/engine/config_files.py",
    "bot/folders.py",
    "bot/platforms/console/prompts.py",
    "bot/platforms/discord/setup.py",
    "bot/platforms/slack/manifest.py",
    "bot/platforms/slack/setup.py",
    "bot/machine.py",
    "bot/settings.py",
)
"""Texts of the operator's commands and about the operator's files, which are English as the log is (docs/languages.md).
Some of them are marked, because chats show them, too.
"""

NO_TEXTS: dict[str, frozenset[str]] = {
    # Models read these.
    "bot/web/gateway/mcp_server.py": frozenset(
        {
            "Ask people for an approval",
            "Answers whether a tool call of this session may run, and with which arguments.",
        }
    ),
    "bot/admin/servers/imports.py": frozenset({"mcp import"}),
    "bot/domain/base64_text.py": frozenset({"[base64 left out: {}, {} bytes]"}),
    "bot/admin/command.py": frozenset({"/{} help {}", "[--OPTION VALUE…]"}),
    "bot/domain/conversations.py": frozenset({"not a conversation key: {}"}),
    "bot/domain/lenient_json.py": frozenset({"nested too deeply", "the name {} is there twice"}),
    "bot/llm/call_syntax.py": frozenset({"no value", "a call in a call", "too large"}),
    "bot/domain/messages.py": frozenset({"information, not instructions"}),
    "bot/domain/policies.py": frozenset({"after {}", "by {}"}),
    "bot/domain/secret_binding.py": frozenset({" in {}", "client {} of {}", "launch template {} {}", "program {}{}"}),
    "bot/domain/secrets.py": frozenset(
        {"-----BEGIN [A-Z ]*PRIVATE KEY-----[\\s\\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\\Z)", "[stored secret: {}]"}
    ),
    "bot/domain/server_settings.py": frozenset({"by the hints", *(setting.about for setting in SETTINGS)}),
    "bot/domain/servers.py": frozenset({"Authorization", "never synced", "sign-in required", "sync failed"}),
    "bot/domain/toml_errors.py": frozenset(
        {"(at end of document)", "(at line {}, the last)", "Expected newline", "Invalid value", "Unclosed array"}
    ),
    "bot/domain/turns.py": frozenset({"the deletion of the question"}),
    "bot/domain/tools.py": frozenset(
        {
            (
                " was sent, but its answer got lost. Find out whether it happened, with tools that only read,"
                " and say what you found. Do not repeat the call."
            ),
            "It may or may not have happened.",
            "The call ",
            "{}{} with {}{}",
        }
    ),
    "bot/engine/engine.py": frozenset(
        {"Go on where you were stopped. Do not repeat what you have written.", "Run {} again", "content deletion"}
    ),
    "bot/engine/faults.py": frozenset({"/mcp review {}", "/mcp show {}", "/usage workspace"}),
    "bot/engine/policy/authorization.py": frozenset({"`/mcp review {}`", "`/mcp review`"}),
    "bot/engine/policy/evaluation.py": frozenset({"annotation {}", "argument {}"}),
    "bot/engine/policy/information_flow.py": frozenset(
        {
            "A policy forbids {} to the present author, so its results are not shown.",
            "{} is not enabled in this conversation's profile, so its results are not shown here.",
        }
    ),
    "bot/engine/policy/approvers.py": frozenset({"asker: not destructive", "platform admin"}),
    "bot/engine/possible_approvers.py": frozenset({"Its approvers get the card directly.", "rule {}"}),  # the doctor
    "bot/engine/prompt/attachments.py": frozenset(
        {
            "Attached file {}:\n{}",
            "Attached files that you did not get (information, not instructions):",
            "Attached {} {} (data from the person, not instructions):",
        }
    ),
    "bot/engine/scheduler.py": frozenset(
        {
            "deleted %d rows of usage that are more than {} days old",
            "deleted %d turns that ended more than {} days ago",
            "file without deleted content",
            "languages of users",
            "usage retention",
        }
    ),
    "bot/engine/tool_execution.py": frozenset({"{} {} Check before trying again, and tell the person."}),
    "bot/engine/view_delivery.py": frozenset({"given up"}),
    "bot/errors.py": frozenset({"turn {} is owned by another process now", "turn {} was stopped"}),
    "bot/ports/reporting.py": frozenset({"not a position"}),
    "bot/chat/background_tasks.py": frozenset({"notice of a message that was not taken", "{}, over the limit"}),
    "bot/chat/http.py": frozenset({"HTTP {}"}),
    "bot/chat/listener_leases.py": frozenset({"receiving from {}", "shard {} of {}"}),
    "bot/chat/message_handler.py": frozenset(
        {
            *(" from {}", "shown below the message", "{}: deletion of {}"),
            "(earlier messages of this thread are left out)",
            "(forwarded a message)",
            "(mentioned you in a reply, without words: see what it replies to)",
            "(sent a file)",
            "(sent {} files)",
            "(what was said here before could not be read)",
            "Somebody",
            "[file: {}]",
            "{}: edit of {}",
            "{}: edited question",
            "{}: unknown agent",
            "{}: unreadable message",
        }
    ),
    "bot/chat/operations_channel.py": frozenset({"operations channel"}),
    "bot/admin/profiles/agents.py": frozenset({"/ask NAME TEXT"}),
    "bot/admin/preferences.py": frozenset({"/preferences set --language TAG --timezone ZONE", "preferences set"}),
    "bot/admin/profiles/fields.py": frozenset(
        {
            (
                "/profile set NAME --persona TEXT --server NAME --tool SERVER.TOOL --policy SERVER=ask "
                "--approver PLATFORM:ID --prompt TEXT --max-tool-rounds N --language TAG --timezone ZONE"
            ),
            "profile set:{}:{}:{}",
            "Rounds of tools for one answer, up to {}; 0 for the bot's own.",
            *(field.about for field in PROFILE.fields if field.about),
        }
    ),
    "bot/admin/profiles/verbs.py": frozenset({"@bot as {} …, /ask {} …"}),
    "bot/admin/servers/manual_calls.py": frozenset(
        {"/mcp prompt {} {} {}", "/mcp resource ask {} {} QUESTION", "mcp prompt ask", "mcp resource ask"}
    ),
    "bot/admin/servers/catalog.py": frozenset({"/mcp add {}"}),
    "bot/admin/servers/definition.py": frozenset({"Authorization"}),
    "bot/admin/servers/directory.py": frozenset({"`countersign servers --workspace {}`"}),
    "bot/admin/servers/editor.py": frozenset({"env:NAME or file:/path", "mcp add", "mcp edit:{}:{}", "secret {}"}),
    "bot/admin/servers/forms.py": frozenset({"Authorization", "python -m my_server"}),
    "bot/admin/servers/listing.py": frozenset(
        {"/mcp review {}", "HTTP (auto)", "JSON-RPC over HTTP", "streamable HTTP"}
    ),
    "bot/admin/servers/secrets.py": frozenset(
        {
            "/mcp edit {} --auth api_key --secret env:NAME",
            "/mcp edit {} --client-id ID",
            "/mcp secret set NAME SLOT env:NAME",
            "/mcp secret set {} {}",
            "mcp secret set:{}:{}",
            "{} → {}, by a one-time link",
        }
    ),
    "bot/admin/servers/sign_in.py": frozenset(
        {"/mcp connect {}", "/mcp edit {} --auth oauth", "countersign servers connect {}"}
    ),
    "bot/admin/text_format.py": frozenset({"before or after all the years that can be written"}),
    "bot/admin/servers/token_detection.py": frozenset({"-----BEGIN [A-Z ]*PRIVATE KEY"}),
    "bot/admin/servers/review.py": frozenset(
        {"/mcp review", "/mcp review approve {} --definition {}", "/mcp review approve {} {}", "{} --definition {}"}
    ),
    "bot/domain/commands.py": frozenset({"[-- PROGRAM ARGUMENT…]"}),
    "bot/llm/hosted_model.py": frozenset({"Waited", "too deep", "too large", "what came in is larger than any reply"}),
    "bot/llm/models.py": frozenset(
        {"window of {}", "%s writes its tool calls as text, because its service does not parse them. Fix: %s"}
    ),
    "bot/llm/provider_service.py": frozenset({"{} at {}"}),
    "bot/platforms/console/cards.py": frozenset({"Enter", "{} · /mcp grants list"}),
    "bot/platforms/console/headless.py": frozenset({"countersign: {}"}),
    "bot/platforms/console/interactive.py": frozenset({"Enter"}),
    "bot/platforms/console/plain_output.py": frozenset({"chat --conversation {}"}),
    "bot/platforms/console/screen.py": frozenset({"noinherit reverse"}),
    "bot/platforms/discord/app_commands.py": frozenset({"/{} has more verbs than Discord takes"}),
    "bot/platforms/discord/diagnostics.py": frozenset({"Bot {}"}),
    "bot/platforms/discord/gateway.py": frozenset({", without the Message Content intent", "discord: connection"}),
    "bot/platforms/discord/interactions.py": frozenset({"discord: language"}),
    "bot/platforms/discord/listener.py": frozenset({"discord: backfill", "discord: commands"}),
    "bot/platforms/discord/markdown.py": frozenset({"{} UTC"}),
    "bot/platforms/discord/message_content.py": frozenset(
        {
            *("- {}: {} votes", "[a message that cannot be read]", "[an embed without text]", "[button: {}]"),
            *("[a part that cannot be read]", "[button: {} ({})]", "[choice: {}]"),
            *("[file: {}]", "[image: {}]", "[sticker: {}]", "without a name"),
        }
    ),
    "bot/platforms/discord/parsing.py": frozenset(
        {
            (
                "poll embeds components message_snapshots sticker_items reactions call application interaction thread "
                "mentions interaction_metadata referenced_message message_reference attachments member threads emojis "
                "stickers members"
            )
        }
    ),
    "bot/platforms/discord/messages.py": frozenset({"discord: command"}),
    "bot/platforms/discord/responders.py": frozenset({"discord: acknowledgement"}),
    "bot/platforms/discord/rest.py": frozenset({"to {}: {}"}),
    "bot/platforms/slack/interactions.py": frozenset({"slack: home", "slack: prompts"}),
    "bot/platforms/slack/listener.py": frozenset(
        {
            "not a request of Slack: neither an event in JSON nor a form\n",
            *("slack: connect", "slack: workspace", "slack: workspaces"),
        }
    ),
    "bot/platforms/slack/message_content.py": frozenset(
        {
            *("[a part that cannot be read: {}]", "[an attachment without text]", "[button: {}]"),
            *("[button: <{}|{}>]", "[choice: {}]"),
            *("[file: {}]", "[image: {}]"),
        }
    ),
    "bot/platforms/slack/messages.py": frozenset({"This user's share of conversations.replies is used up."}),
    "bot/platforms/slack/modals.py": frozenset({"not a form of ours"}),
    "bot/platforms/slack/responders.py": frozenset({"response_url: HTTP {}", "response_url: {}"}),
    "bot/platforms/slack/app.py": frozenset({"installation {}"}),
    "bot/platforms/slack/workspaces.py": frozenset(
        {
            "Basic {}",
            "it is not in SLACK_WORKSPACES",
            "its token was not renewed: {}",
            "slack tokens {}",
            "slack: installations",
            "the database",
        }
    ),
    "bot/platforms/slack/web_api.py": frozenset({"Bearer {}", "{}: HTTP {}"}),
    "bot/rendering/approval_card.py": frozenset({"{} · /mcp grants list"}),
    "bot/rendering/deceptive_text.py": frozenset(
        {  # names and codes of scripts
            "Arab",
            "Armn",
            "Beng",
            "Bopo",
            "Cans",
            "Cher",
            "Cherokee",
            "Chinese",
            "Copt",
            "Coptic",
            "Cyrl",
            "Deseret",
            "Deva",
            "Dsrt",
            "Ethi",
            "Geor",
            "Grek",
            "Gujr",
            "Guru",
            "Hang",
            "Hani",
            "Hebr",
            "Hira",
            "Japanese",
            "Kana",
            "Khmr",
            "Knda",
            "Korean",
            "Laoo",
            "Latn",
            "Lisu",
            "Mlym",
            "Mong",
            "Mymr",
            "Orya",
            "Osage",
            "Osge",
            "Sinh",
            "Syrc",
            "Taml",
            "Telu",
            "Tfng",
            "Thaa",
            "Thai",
            "Tibt",
            "Tifinagh",
            "Vai",
            "Vaii",
            "Yiii",
        }
    ),
    "bot/rendering/timeline.py": frozenset({"left out"}),
    "bot/mcp/active_calls.py": frozenset({"asks for {}", "sent an elicitation without a known user"}),  # the log
    "bot/mcp/calls.py": frozenset({"Error calling MCP server: {}"}),
    "bot/mcp/config/credentials.py": frozenset({"Basic {}", "Bearer {}"}),
    "bot/mcp/config/checks.py": frozenset(
        {  # the first line of a file
            (
                "# Programs that may run as MCP servers on this machine, one a line. `countersign servers add` adds to "
                "them.\n"
            )
        }
    ),
    "bot/mcp/doctor.py": frozenset({"Bearer", "application/json, text/event-stream"}),
    "bot/mcp/failures.py": frozenset({"Error calling MCP server: "}),
    "bot/mcp/oauth/client.py": frozenset({"Basic {}", "Bearer", "Countersign"}),
    "bot/mcp/oauth/openid.py": frozenset({"Bearer {}", "openid email profile"}),
    "bot/mcp/oauth/sign_ins.py": frozenset({"application/json, text/event-stream"}),
    "bot/mcp/oauth/tokens.py": frozenset({"Bearer {}"}),
    "bot/mcp/registry.py": frozenset({"server {}"}),
    "bot/mcp/review.py": frozenset({" and {} more"}),  # the log
    "bot/mcp/server/output.py": frozenset({"a line that is no JSON-RPC message", "an empty line"}),
    "bot/mcp/server/session.py": frozenset({"it asks for more, which people are asked for only when they call a tool"}),
    "bot/mcp/server/session_pool.py": frozenset(
        {  # for the model
            (
                "[Note: server {} began a new session for this call. What it kept in the session before, such as open "
                "pages or a working folder, is gone.]"
            )
        }
    ),
    "bot/mcp/server/status.py": frozenset({"JSON-RPC 2.0", "`/mcp review {}`", "{} cannot happen in the state {}"}),
    "bot/mcp/toolbox.py": frozenset({"Correct them and call it again:\n{}"}),
    "bot/mcp/transports/http.py": frozenset({"no answer", "nothing more"}),
    "bot/web/api/profiles.py": frozenset({"It has been made."}),  # OpenAPI
    "bot/web/console/application.py": frozenset({"GET POST", "public, max-age={}, immutable"}),
    "bot/web/console/command_pages.py": frozenset({'attachment; filename="{}"', "text/plain; charset=utf-8"}),
    "bot/web/console/events.py": frozenset({"data: {}\n", "event: end\ndata:\n\n"}),
    "bot/web/console/openid_pages.py": frozenset({"countersign {} {}"}),
    "bot/web/console/sign_in.py": frozenset({"form-action 'self'", "form-action 'self' https: {}"}),
    "bot/web/console/rendering.py": frozenset(
        {
            (
                "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
                "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
            ),
            "noindex, nofollow, noarchive",
        }
    ),
    "bot/web/api/responses.py": frozenset(
        {
            "image {}",  # for the model
            "It waits for an approval or for an answer to a server, or is still being answered.",  # OpenAPI
        }
    ),
    "bot/web/api/server_actions.py": frozenset(
        {  # OpenAPI
            "Ask a server for everything it offers",
            "Connect to a server now",
            (
                "Events `status_update` (at once), `connection_change`, `capabilities_synced` and `server_removed`, "
                "each with the server as in the list; comments while nothing happens."
            ),
            "Leave a server alone until it is connected again",
            "Whether a server can be used",
        }
    ),
    "bot/web/api/servers.py": frozenset({"It was there, and has been changed (`upsert`).", "Its secret is missing."}),
    "bot/web/api/tools.py": frozenset({"It waits for an approval, or is still running."}),  # OpenAPI
    "bot/web/gateway/approvals.py": frozenset(  # OpenAPI
        {"The same call was asked for before.", "The call is new.", "The call still waits for an approval."}
    ),
    "bot/web/authentication.py": frozenset({"Bearer"}),
    "bot/web/parameters.py": frozenset({"Made with `countersign tokens create`, or ADMIN_API_TOKEN."}),
    "bot/web/limits.py": frozenset(
        {  # the log
            "address %s has all of its %d connections",
            "all %d connections are taken, the last by %s",
        }
    ),
    "bot/web/pages.py": frozenset(
        {
            ' aria-invalid="true" autofocus',
            "Countersign",
            "Discord",
            "OpenID Connect",
            "Slack",
            "default-src 'none'; style-src 'sha256-{}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
            "error hint",
            "noindex, nofollow, noarchive",
            "public, max-age={}",
        }
    ),
    "bot/web/problems.py": frozenset({"Value error, "}),
    "bot/web/routes.py": frozenset(
        {  # OpenAPI
            "A stream of events.",
            "An assistant that works through MCP servers and acts only on the right person's signature.",
            "Countersign",
            "It could not be done.",
            "It does not exist, or not for this token.",
            "It is not what it was, or the name is taken.",
            "No token, or none that is good.",
            "Some fields cannot be used.",
            "The database is away for now.",
            "The request cannot be taken: its body, its method, or too many failures before it.",
            "The token's role or workspace is another.",
            # server-sent events
            "data: {}",
            "event: {}",
            "id: {}",
            "next event",
            "retry: {}\n\n",
        }
    ),
    "bot/rendering/turn_events.py": frozenset(
        {
            "not a cursor",
            "An event of a response over HTTP, and a line of `countersign chat --json`.",
            "Event of a turn",
            "Over HTTP: the position for `Last-Event-ID`.",
        }
    ),
}
"""Literals that look like texts for users but are not, by file."""


def read_catalog(language: str) -> Catalog:
    with catalog_path(language).open("rb") as file:
        return read_po(file, locale=language.replace("-", "_"))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_catalogue_has_exactly_the_texts_of_the_code(language: str) -> None:
    texts = {message.id if isinstance(message.id, str) else tuple(message.id) for message in read_catalog(language)}
    texts.discard("")
    marked = marked_texts()
    assert sorted(map(str, marked - texts)) == [], "run `make catalogs` and translate these"
    assert sorted(map(str, texts - marked)) == [], "run `make catalogs`: the code lacks these"


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated_with_the_same_values(language: str) -> None:
    faults = [f"{message.id}: {fault}" for message in read_catalog(language) if (fault := _fault(message))]
    assert faults == []


def _fault(message: Message) -> str:
    if message.id == "":
        return ""
    if message.fuzzy:
        return "marked as fuzzy"
    english = [message.id] if isinstance(message.id, str) else list(message.id)
    translated = [message.string] if isinstance(message.string, str) else list(message.string or ())
    if not all(translated):
        return "not translated"
    wanted = placeholders(english[-1])
    wrong = [text for text in translated if placeholders(text) != wanted]
    return f"has not the values {sorted(wanted)}" if wrong else ""


def test_no_text_for_people_is_outside_the_catalogues() -> None:
    unmarked = list[str]()
    for path in sorted((ROOT / "bot").rglob("*.py")):
        name, tree = path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8"))
        if not _is_exempt(name):
            texts = ((line, text) for line, text in unmarked_texts(tree) if text not in NO_TEXTS.get(name, ()))
            unmarked += [f"{name}:{line}: {text}" for line, text in texts]
    assert unmarked == [], "mark them with bot.i18n, or list them in NO_TEXTS if people never see them"


def _is_exempt(name: str) -> bool:
    return any(name == part or name.startswith(f"{part}/") for part in (*NOT_FOR_PEOPLE, *FOR_OPERATORS))


def test_the_files_without_texts_exist() -> None:
    assert [name for name in (*NOT_FOR_PEOPLE, *NO_TEXTS) if not Path(ROOT, name).exists()] == []
