"""Harnesses of commands."""

from __future__ import annotations

import pytest

from tests.admin.servers import CommandHarness, command_harness, with_jira


@pytest.fixture
def held() -> CommandHarness:
    """A harness with the two servers of the operator's file."""
    return command_harness()


@pytest.fixture
async def jira() -> CommandHarness:
    """A harness in which an admin has added `jira`."""
    return await with_jira()
