"""The API conforms to its OpenAPI document: valid requests get a described response, invalid requests are rejected.

schemathesis generates the requests from the served document, the same ones in every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.web.api_server import ADMIN_TOKEN, opened_api
from tests.web.local_server import ON_THIS_MACHINE, SERVERS, add_server, opened_jira

if TYPE_CHECKING:
    from schemathesis import GenerationMode

EXAMPLES = 4
"""Number of valid and of invalid requests to each route."""
KNOWN = {"ref": "jira", "serverId": "jira", "toolName": "find_issue", "uri": "jira://board"}
"""Values of existing objects, for parameters that a generator cannot guess."""
ENDLESS = ("/status/stream",)
"""Endings of the addresses that stream until the client leaves; their events are in test_server_actions_api.py."""
BY_OTHERS = (502, 504)
"""Described responses for the failure of another server."""
ORDER = ("GET", "POST", "PUT", "DELETE")
"""Order of methods: existing objects are read before they are changed, and deleted last."""
CONFIG = {"generation": {"allow-extra-parameters": False}}
"""Undescribed parameters of a query or header are ignored, as is usual in HTTP."""


def finite_operations(document: dict[str, Any]) -> Iterator[Any]:
    """Return all operations that end without a disconnect of the client."""
    import schemathesis  # noqa: PLC0415 - every worker loads this module, and one of them uses this
    from schemathesis.core.result import Ok  # noqa: PLC0415

    operations = []
    schema = schemathesis.openapi.from_dict(document, config=schemathesis.Config.from_dict(CONFIG))
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), found
        operations.append(found.ok())
    for operation in sorted(operations, key=lambda each: ORDER.index(each.method.upper())):
        if not operation.path.endswith(ENDLESS):
            yield operation


def ask(document: dict[str, Any], address: str, mode: GenerationMode) -> tuple[int, list[str]]:
    """Send all requests. Return their number and the errors in the responses."""
    from schemathesis import GenerationMode  # noqa: PLC0415 - see above
    from schemathesis.core.failures import FailureGroup  # noqa: PLC0415
    from schemathesis.specs.openapi import checks as conformance  # noqa: PLC0415

    count, wrong = 0, []
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    checks = [
        conformance.status_code_conformance,
        conformance.content_type_conformance,
        conformance.response_schema_conformance,
    ]
    if mode is GenerationMode.NEGATIVE:
        checks.append(conformance.negative_data_rejection)
    for operation in finite_operations(document):
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
            continue  # any text is a valid id

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode, headers=headers))
        def one(case: Any) -> None:
            nonlocal count
            if mode is GenerationMode.POSITIVE:
                with_what_there_is(case)
            answer = case.call(base_url=address, headers=headers, timeout=30)
            count += 1
            said = f"{mode.value}: {case.as_curl_command()}\n{answer.status_code} {answer.text[:500]}"
            if answer.status_code >= 500 and answer.status_code not in BY_OTHERS:
                wrong.append(said)
            try:
                case.validate_response(answer, checks=checks)
            except FailureGroup as group:
                wrong.append(f"{said}\n{[str(exception)[:500] for exception in group.exceptions]}")

        one()
    return count, wrong


def with_what_there_is(case: Any) -> None:
    """Point a request at existing objects and have it answered at once in a single response."""
    for place in (case.path_parameters, case.body):
        if isinstance(place, dict):
            place.update({name: value for name, value in KNOWN.items() if name in place})
    match case.body:
        case {"payload": dict() as payload}:
            payload["stream"] = False
        case {"toolName": _}:
            case.body["waitSeconds"] = 0
        case {"tool_name": _}:
            case.query = {**(case.query or {}), "wait": 0}
    if isinstance(case.query, dict) and "wait" in case.query:
        case.query["wait"] = 0


@pytest.mark.timeout(300)
# schemathesis calls `random`, although hypothesis recommends its own strategies.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
async def test_valid_requests_get_described_responses_and_others_are_refused(folder: Path) -> None:
    async with opened_jira() as jira, opened_api(folder, mcp_allowed_hosts=ON_THIS_MACHINE, api_docs=True) as api:
        await add_server(api, jira)
        document = (await api.get("/openapi.json", token=None)).json()
        assert SERVERS in document["paths"]
        endless = [operations for path, operations in document["paths"].items() if path.endswith(ENDLESS)]
        assert endless
        for operations in endless:
            assert list(operations["get"]["responses"]["200"]["content"]) == ["text/event-stream"]
        from schemathesis import GenerationMode  # noqa: PLC0415 - see above

        for mode in (GenerationMode.NEGATIVE, GenerationMode.POSITIVE):
            count, wrong = await asyncio.to_thread(ask, document, f"http://127.0.0.1:{api.port}", mode)
            assert not wrong, "\n\n".join(wrong)
            assert count > 100
