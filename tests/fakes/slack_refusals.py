"""How the tests of the fake Slack ask what a refusal says."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest
from slack_sdk.errors import SlackApiError


async def refusal(call: Awaitable[object]) -> dict[str, Any]:
    """The whole answer to a call that is refused."""
    with pytest.raises(SlackApiError) as caught:
        await call
    answer = caught.value.response.data
    assert isinstance(answer, dict)
    return answer


async def code(call: Awaitable[object]) -> str:
    """The error code of a call that is refused."""
    return str((await refusal(call))["error"])
