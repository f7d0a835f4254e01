"""A sample grant for the commands."""

from __future__ import annotations

from typing import Any

from bot.domain.grants import Grant
from tests.admin.memory_stores import NOW


def a_grant(
    grant_id: str = "0123456789ab", *, place: str = "test:w:hall:1", person: str = "test:ben", by: str = "test:ana",
    **more: Any,
) -> Grant:  # fmt: skip
    given = {"scope": "thread", "idle": True, "created_at": NOW - 300, "expires_at": NOW + 3300, **more}
    return Grant(
        grant_id, server="s-1", server_name="jira", tool="create_issue", definition="d", place=place, person=person,
        granted_by=by, granted_name=by.partition(":")[2], approval_id="card-1", **given,
    )  # fmt: skip
