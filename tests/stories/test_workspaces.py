"""The real program in two Slack workspaces of one deployment: installed in a browser, apart, removed one by one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Any

import httpx2
import psycopg

from bot.storage.encryption import generate_key, make_box
from tests.fakes.llm import Call, FakeLanguageModel, Reply, Request, Say
from tests.fakes.mcp.endpoint import FakeEndpoint, result
from tests.fakes.slack import Channel, FakeSlack, Message, Team, User
from tests.postgres import Server
from tests.stories.installation import Installation, becomes
from tests.stories.program import PATIENCE, Bot, a_bot

ACME, GLOBEX = Team(), Team("T0GLOBEX", "Globex", "globex")
ONE, TWO = "U0PERSON1", "U0PERSON2"
KEEP_IT = "note that the deploy is at noon"
LOOK_UP = "look it up"
STRICT = 'default = "ASK_USER"\nself_approval = false\n'
SECRET = "s3cret-of-the-ticket-desk"


def clerk(request: Request) -> Reply:
    """Calls the tool for notes as asked, and the look-up tool where it has one."""
    if request.results:
        return Say(f"It said: {request.results[0].strip()}.")
    if request.question == KEEP_IT:
        return Say(calls=(Call("notes__add", {"text": "The deploy is at noon."}),))
    if request.question == LOOK_UP:
        tools = [name for name in request.tool_names if name.endswith("__lookup")]
        return Say(calls=(Call(tools[0], {}),)) if tools else Say("I have no such tool here.")
    return Say(f"You said: {request.question}.")


@dataclass
class Office:
    """One workspace: a member, an administrator, and their channel, whose id is the same in the other workspace."""

    slack: FakeSlack
    team: Team
    asker: User
    admin: User
    channel: Channel

    @property
    def bot(self) -> User:
        """The bot in this workspace."""
        return self.slack.app.installations[self.team.id].bot

    def ask(self, text: str) -> Message:
        """Mention the bot."""
        return self.slack.say(self.asker, self.channel, f"{self.bot.mention} {text}")

    async def reads(self, thread: str, text: str) -> Message:
        """Wait until everybody can read this in a thread."""

        def matching_messages() -> list[Message]:
            posted = [message for message in self.slack.bot_messages(self.channel, thread) if not message.ephemeral_to]
            return [message for message in posted if text in f"{message.text} {message.blocks}"]

        await self.slack.until(matching_messages, PATIENCE)
        return matching_messages()[-1]

    async def types(self, user: User, command: str, text: str, *expected: str) -> str:
        """Type a slash command, and wait until its private answer says this; the answer."""
        before = len(self._whispers(user))
        await self.slack.command(user, command, text, self.channel)

        def answer() -> list[str]:
            return [each for each in self._whispers(user)[before:] if all(word in each for word in expected)]

        try:
            await self.slack.until(answer, PATIENCE)
        except TimeoutError:
            raise AssertionError(f"{command} {text} said {self._whispers(user)[before:]}, not {expected}") from None
        return answer()[-1]

    async def hears(self, user: User, *texts: str) -> None:
        """Wait until this user alone is told all of this."""
        try:
            await self.slack.until(
                lambda: any(all(text in said for text in texts) for said in self._whispers(user)), PATIENCE
            )
        except TimeoutError:
            raise AssertionError(f"{user.name} was told {self._whispers(user)}, not {texts}") from None

    async def home(self, user: User, text: str) -> str:
        """Open a user's Home, and wait until it says this; the whole of it."""
        self.slack.open_home(user)
        await self.slack.until(lambda: text in str(getattr(self.slack.home(user), "drawn", "")), PATIENCE)
        view = self.slack.home(user)
        assert view is not None
        return json.dumps(view.drawn, ensure_ascii=False)

    def _whispers(self, user: User) -> list[str]:
        posted = self.slack.bot_messages(self.channel)
        return [f"{each.text} {each.blocks}" for each in posted if each.ephemeral_to == user.id]


@dataclass
class Deployment:
    """A folder with the program, and two workspaces of the company."""

    slack: FakeSlack
    place: Installation
    acme: Office
    globex: Office

    @asynccontextmanager
    async def bot(self, *arguments: str, **environment: str) -> AsyncIterator[tuple[Bot, httpx2.AsyncClient]]:
        """The program, and a browser for its pages."""
        async with a_bot(self.place, *arguments, **environment) as bot:
            port = (await bot.logs(r"listening for requests at \S+, port (\d+)"))[1]
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as browser:
                yield bot, browser

    async def install(self, browser: httpx2.AsyncClient, user: User) -> httpx2.Response:
        """Install the app in a browser, as this person; the last page."""
        begun = await browser.get("/slack/install")
        assert begun.status_code == 302, begun.text
        back = self.slack.oauth.consent(begun.headers["location"], user)
        page = await browser.get(re.sub(r"^https?://[^/]+", "", back))
        browser.cookies.clear()
        return page

    async def countersign(self, *words: str) -> str:
        """Run a command beside the program; its output."""
        return (await asyncio.to_thread(self.place.countersign, *words)).out

    async def doctor(self) -> dict[str, dict[str, Any]]:
        """Return the lines of `countersign doctor` about Slack."""
        checks = [json.loads(line) for line in (await self.countersign("doctor", "--json")).splitlines()]
        return {check["name"]: check for check in checks if check["subject"] == "slack"}


def an_office(slack: FakeSlack, team: Team, asker: tuple[str, str], admin: tuple[str, str]) -> Office:
    workspace = slack.world.workspaces[team.id]
    first, second = (slack.user(name, workspace=workspace, user_id=user_id) for name, user_id in (asker, admin))
    channel = slack.channel("incidents", first, second, workspace=workspace, channel_id="C0ROOM001")
    return Office(slack, team, first, second, channel)


@asynccontextmanager
async def a_deployment(folder: Path, model: FakeLanguageModel, **environment: str) -> AsyncIterator[Deployment]:
    """The deployment, with the app nowhere installed and no bot at work yet."""
    async with FakeSlack(ACME) as slack:
        slack.pace.strict = False
        slack.installation.revoked = True
        slack.prepare(GLOBEX)
        slack.oauth.redirect_uris.add("http://localhost:8080/slack/oauth_redirect")
        known = {
            "SLACK_CLIENT_ID": slack.app.client_id,
            "SLACK_CLIENT_SECRET": slack.app.client_secret,
            "SLACK_WORKSPACES": f"{ACME.id}, {GLOBEX.id}",
            "SLACK_APP_TOKEN": slack.app.app_token,
            "SLACK_API_URL": slack.url,
            "PUBLIC_URL": "http://localhost:8080",
            "PORT": "0",
            "LOG_FORMAT": "text",
            "ADMINS": f"slack:{ACME.id}:{ONE}, slack:{GLOBEX.id}:{TWO}",
        }
        place = Installation(folder, None, model=model, **{**known, **environment})
        place.rule(STRICT)
        # Who administers one workspace has the id of somebody else in the other.
        acme = an_office(slack, ACME, ("Priya", TWO), ("Sam", ONE))
        globex = an_office(slack, GLOBEX, ("Gita", ONE), ("Gus", TWO))
        yield Deployment(slack, place, acme, globex)


async def test_two_workspaces_are_installed_used_and_removed_apart(tmp_path: Path, model: FakeLanguageModel) -> None:
    async with FakeEndpoint() as endpoint:
        endpoint.speak_legacy("lookup")
        endpoint.on["tools/call"] = lambda asked: result(asked, {"content": [{"type": "text", "text": "ticket 7"}]})
        hosts = {"MCP_ALLOWED_HOSTS": f"127.0.0.1:{endpoint.port}", "ADMIN_API_TOKEN": "cs-" + "a1B2c3D4" * 6}
        async with a_deployment(tmp_path, model, **hosts) as deployment, deployment.bot() as (bot, browser):
            await _both_are_installed(deployment, browser)
            await _each_decides_its_own_calls(deployment)
            await _each_has_servers_and_secrets_of_its_own(deployment, browser, endpoint)
            await _neither_reads_the_others_records(deployment, browser)
            await _one_is_removed_and_the_other_goes_on(deployment, bot)
            assert (await deployment.install(browser, deployment.acme.admin)).status_code == 200
            back = deployment.acme.ask("and you?")
            await deployment.acme.reads(back.ts, "You said: and you?.")
            assert await bot.leaves() == 0


async def _both_are_installed(deployment: Deployment, browser: httpx2.AsyncClient) -> None:
    """Two installations through the browser; the doctor names both, before and after."""
    checks = await deployment.doctor()
    assert checks.keys() >= {"workspace T0ACME", "workspace T0GLOBEX", "Socket Mode"}
    for office in (deployment.acme, deployment.globex):
        page = await deployment.install(browser, office.admin)
        assert page.status_code == 200, page.text
        assert f"<b>{office.team.name}</b>" in page.text
    checks = await deployment.doctor()
    for office in (deployment.acme, deployment.globex):
        check = checks[f"workspace {office.team.name}"]
        assert check["finding"] == "ok", check
        assert f"Workspace {office.team.id} is served" in check["detail"]


async def _each_decides_its_own_calls(deployment: Deployment) -> None:
    """Calls wait for the admin of their workspace, and are in no other list."""
    acme, globex, slack = deployment.acme, deployment.globex, deployment.slack
    asked = {office.team.id: office.ask(KEEP_IT) for office in (acme, globex)}
    cards = {office.team.id: await office.reads(asked[office.team.id].ts, "cs.approve") for office in (acme, globex)}
    for office, other in ((acme, globex), (globex, acme)):
        assert f"'user_id': '{office.admin.id}'" in str(cards[office.team.id].blocks), "the card mentions its admin"
        waiting = await office.types(office.admin, "/approvals", "", "Add a note")
        assert office.asker.name.lower() in waiting
        assert other.asker.name.lower() not in waiting
        home = await office.home(office.admin, "Waiting for you (1)")
        assert other.asker.name.lower() not in home
    await slack.press(globex.asker, cards[GLOBEX.id], "Approve: Add a note")
    await globex.hears(globex.asker, "You may not approve this.", "gus")
    await slack.press(globex.admin, cards[GLOBEX.id], "Approve: Add a note")
    await globex.reads(asked[GLOBEX.id].ts, "It said: Saved as note #1")
    await acme.home(acme.admin, "Waiting for you (1)")
    await slack.press(acme.admin, cards[ACME.id], "Approve: Add a note")
    await acme.reads(asked[ACME.id].ts, "It said: Saved as note #2")


async def _each_has_servers_and_secrets_of_its_own(
    deployment: Deployment, browser: httpx2.AsyncClient, endpoint: FakeEndpoint
) -> None:
    """A server of one admin, with its secret, is not there for the other workspace; its name is free there."""
    acme, globex = deployment.acme, deployment.globex
    line = f"add tickets --url {endpoint.url} --auth api_key --policy allow"
    offer = await acme.types(acme.admin, "/mcp", line, "waits for the secret")
    link = re.search(r"http://localhost:8080(/secret/[\w-]{43})", offer)
    assert link is not None
    version = re.search(r'name="version" value="(\d+)"', (await browser.get(link[1])).text)
    assert version is not None
    stored = await browser.post(link[1], data={"version": version[1], "secret": SECRET})
    assert stored.status_code == 200, stored.text
    first, second = acme.ask(LOOK_UP), globex.ask(LOOK_UP)
    await acme.reads(first.ts, "It said: ticket 7")
    await globex.reads(second.ts, "I have no such tool here.")
    assert "tickets" in await acme.types(acme.admin, "/mcp", "list", "notes")
    assert "tickets" not in await globex.types(globex.admin, "/mcp", "list", "notes")
    # What is there for both is the operator's.
    deployment.place.rule(f'{STRICT}[servers.weather.tools]\nforecast = "ALWAYS_ALLOW"\n')
    await globex.types(globex.admin, "/mcp", "reload --apply", "The operator reads it again.")
    refusal = await globex.types(globex.asker, "/mcp", "reload", "Only an administrator can do this.")
    assert ONE not in refusal, "the admin of the other workspace is not named"
    for line in ("show tickets", "tools tickets", "verify tickets", "disable tickets", "secret set tickets auth"):
        await globex.types(globex.admin, "/mcp", line, "tickets not found")
    await globex.types(globex.admin, "/mcp", f"add tickets --url {endpoint.url} --policy deny", "tickets")


async def _neither_reads_the_others_records(deployment: Deployment, browser: httpx2.AsyncClient) -> None:
    """Audit, conversations and the HTTP API are of one workspace."""
    acme, globex = deployment.acme, deployment.globex
    for office, other in ((acme, globex), (globex, acme)):
        trail = await office.types(office.admin, "/mcp", "audit", "decided")
        assert other.team.id not in trail
        listed = await office.types(office.admin, "/conversations", "list --all", "deploy")
        assert office.asker.name.lower() in listed
        assert other.asker.name.lower() not in listed
    created = await deployment.countersign("tokens", "create", "ci", "--role", "admin", "--workspace", "slack:T0GLOBEX")
    key = re.search(r"cs_[\w-]{43}", created)
    assert key is not None, created
    headers = {"Authorization": f"Bearer {key[0]}"}
    answer = await browser.get("/api/mcp/servers", headers=headers)
    tickets = [server for server in answer.json() if server["name"] == "tickets"]
    assert [(server["workspace"], server["apiKeySet"]) for server in tickets] == [("slack:T0GLOBEX", False)]
    calls = await browser.get("/api/mcp/tool-calls", headers=headers)
    assert "lookup" not in calls.text
    assert "add" in calls.text


async def _one_is_removed_and_the_other_goes_on(deployment: Deployment, bot: Bot) -> None:
    slack, globex = deployment.slack, deployment.globex
    tokens = [installation.token for installation in slack.app.installations.values()]
    slack.uninstall(ACME)
    await bot.logs("the app was removed from Slack workspace Acme")
    question = globex.ask("still there?")
    await globex.reads(question.ts, "You said: still there?.")
    checks = await deployment.doctor()
    assert checks["workspace Acme"]["finding"] == "skipped"
    assert "The app was removed from T0ACME" in checks["workspace Acme"]["detail"]
    assert checks["workspace Globex"]["finding"] == "ok"
    written = b"".join(deployment.place.folder_files().values())
    for secret in (slack.app.client_secret, SECRET, *tokens):
        assert secret.encode() not in written


async def test_one_process_installs_and_receives_and_another_posts_with_tokens_that_expire(
    tmp_path: Path, model: FakeLanguageModel, postgres: Server
) -> None:
    settings = {"DATABASE_URL": await asyncio.to_thread(postgres.fresh), "MCP_ENCRYPTION_KEY": generate_key()}
    async with a_deployment(tmp_path, model, **settings) as deployment:
        slack, acme, globex = deployment.slack, deployment.acme, deployment.globex
        slack.app.rotation = True
        async with (
            deployment.bot("--only", "slack,web") as (_, browser),
            a_bot(deployment.place, "--only", "worker") as worker,
        ):
            for office in (acme, globex):
                assert (await deployment.install(browser, office.admin)).status_code == 200
            for office in (acme, globex):
                question = office.ask(f"hello from {office.team.name}")
                await office.reads(question.ts, f"You said: hello from {office.team.name}.")
            # The token runs out, and is renewed by one of them.
            slack.app.installations[ACME.id].expires_at = slack.clock.now()
            await asyncio.to_thread(_expire, settings["DATABASE_URL"], settings["MCP_ENCRYPTION_KEY"])
            question = acme.ask("and after twelve hours")
            await acme.reads(question.ts, "You said: and after twelve hours.")
            renewals = [call for call in slack.calls.of("oauth.v2.access") if call.args.get("grant_type")]
            assert len(renewals) == 1
            slack.uninstall(GLOBEX)
            await becomes(lambda: not _has_token(settings["DATABASE_URL"], GLOBEX.id), "no token of Globex", PATIENCE)
            question = acme.ask("still there?")
            await acme.reads(question.ts, "You said: still there?.")
            assert "Traceback" not in worker.log


def _expire(address: str, key: str) -> None:
    """Let the token of Acme be one that is about to expire."""
    box, context = make_box(key), '["installation", "slack", "T0ACME"]'
    with psycopg.connect(address) as connection:
        row = connection.execute("select body from installations where workspace = %s", (ACME.id,)).fetchone()
        assert row is not None
        body = json.loads(box.open(row[0], context)) | {"expires_at": time() + 60}
        change = "update installations set body = %s, version = version + 1 where workspace = %s"
        connection.execute(change, (box.seal(json.dumps(body), context), ACME.id))


def _has_token(address: str, workspace: str) -> bool:
    with psycopg.connect(address) as connection:
        removed = "select removed_at from installations where workspace = %s"
        row = connection.execute(removed, (workspace,)).fetchone()
        assert row is not None
        return row[0] is None
