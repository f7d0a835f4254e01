"""Checks of Slack by `countersign doctor`, with cause and fix."""

from __future__ import annotations

from dataclasses import replace

from bot.examination import Check, CheckStatus
from bot.platforms.slack.diagnostics import SCOPES, SECRET, UNSAID, WAYS, diagnose, missing
from bot.platforms.slack.rate_limits import RateLimiter
from bot.platforms.slack.web_api import WebApi
from tests.fakes.slack import FakeSlack
from tests.platforms.slack.connected_bot import ConnectedBot


async def run_checks(place: ConnectedBot, app_token: str = "", signing_secret: str = "") -> list[Check]:
    return [check async for check in diagnose(place.api, app_token=app_token, signing_secret=signing_secret)]


def summary(checks: list[Check]) -> list[tuple[str, CheckStatus]]:
    return [(check.name, check.finding) for check in checks]


async def test_a_complete_setup_reports_user_and_workspace_without_a_connection(worker: ConnectedBot) -> None:
    slack = worker.slack
    checks = await run_checks(worker, slack.app.app_token, "s3cret")
    assert summary(checks) == [
        ("token", CheckStatus.WELL),
        ("scopes", CheckStatus.WELL),
        ("Socket Mode", CheckStatus.WELL),
        ("HTTP", CheckStatus.SKIPPED),
    ]
    assert slack.workspace.team.id in checks[0].detail
    assert slack.bot.name.lower() in checks[0].detail
    assert checks[3].detail == SECRET
    assert slack.sockets.ever == 0
    assert "s3cret" not in str(checks)
    assert slack.app.app_token not in str(checks)


async def test_every_missing_scope_is_named_with_its_purpose(worker: ConnectedBot) -> None:
    assert missing(f" {scope.name}" for scope in SCOPES) == ()
    granted = worker.slack.app.installations[worker.slack.workspace.team.id].scopes
    granted -= {"files:read", "usergroups:read"}
    checks = [check for check in await run_checks(worker, worker.slack.app.app_token) if check.name.startswith("scope")]
    without = {scope.name: scope.without for scope in SCOPES}
    assert [(check.name, check.finding, check.detail) for check in checks] == [
        (f"scope {name}", CheckStatus.BROKEN, f"It is missing: without it {without[name]}.")
        for name in ("files:read", "usergroups:read")
    ]
    assert all(check.fix.startswith(f"add {check.name.removeprefix('scope ')} under") for check in checks)


async def test_scopes_of_absent_features_are_not_reported(worker: ConnectedBot) -> None:
    granted = worker.slack.app.installations[worker.slack.workspace.team.id].scopes
    granted -= {"commands", "im:history", "mpim:history", "assistant:write"}
    checks = [check async for check in diagnose(worker.api, without={"direct"})]
    assert [check.name for check in checks if check.finding is CheckStatus.BROKEN] == ["scope commands", "way in"]
    checks = [check async for check in diagnose(worker.api, without={"direct", "commands"})]
    assert ("scopes", CheckStatus.WELL) in summary(checks)


async def test_a_token_that_slack_does_not_know_is_told_and_the_rest_is_looked_at_all_the_same() -> None:
    async with (
        FakeSlack() as slack,
        WebApi("xoxb-wrong", url=slack.url, pacing=RateLimiter(clock=slack.clock.now)) as api,
    ):
        checks = [check async for check in diagnose(api, app_token=slack.app.app_token)]
        assert summary(checks) == [("token", CheckStatus.BROKEN), ("Socket Mode", CheckStatus.WELL)]
        assert "invalid_auth" in checks[0].detail
        assert checks[0].fix
        assert "xoxb-wrong" not in str(checks)


async def test_a_persons_token_is_not_the_bots(worker: ConnectedBot) -> None:
    worker.api._identity = replace(await worker.api.identity(), bot="", scopes=frozenset())
    checks = await run_checks(worker, worker.slack.app.app_token)
    assert checks[0].finding is CheckStatus.BROKEN
    assert "xoxb-" in checks[0].fix
    assert checks[1] == Check("scopes", CheckStatus.DOUBTFUL, UNSAID)


async def test_an_app_token_without_a_connection_has_a_fix(worker: ConnectedBot) -> None:
    wrong = (await run_checks(worker, "xapp-wrong"))[-1]
    worker.slack.app.app_scopes.clear()
    scopeless = (await run_checks(worker, worker.slack.app.app_token))[-1]
    for check in (wrong, scopeless):
        assert (check.name, check.finding) == ("Socket Mode", CheckStatus.BROKEN)
        assert "connections:write" in check.fix
    assert "xapp-wrong" not in str(wrong)


async def test_without_any_way_in_it_says_which_there_are(worker: ConnectedBot) -> None:
    last = (await run_checks(worker))[-1]
    assert (last.name, last.finding, last.fix) == ("way in", CheckStatus.BROKEN, WAYS)
