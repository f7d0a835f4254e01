"""The guide to Discord asks for the permissions that the program asks for, with their purpose."""

from __future__ import annotations

import re
from pathlib import Path

from bot.platforms.discord.diagnostics import PERMISSIONS, permission_integer

GUIDE = (Path(__file__).parents[2] / "docs" / "discord.md").read_text(encoding="utf-8")


def test_the_table_of_permissions_is_the_one_that_the_doctor_goes_by() -> None:
    (section,) = re.findall(r"^## Permissions\n(.*?)(?=^## )", GUIDE, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| ([A-Z][^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    assert rows == [(permission.name, permission.without) for permission in PERMISSIONS]
    assert str(permission_integer()) in section
