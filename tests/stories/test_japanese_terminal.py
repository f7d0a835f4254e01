"""The terminal of the real program in Japanese: a card, its keys, commands and their list."""

from __future__ import annotations

from pathlib import Path

from tests.stories.installation import Installation


async def test_a_note_is_approved_in_japanese_and_commands_answer_in_it(tmp_path: Path) -> None:
    place = Installation(tmp_path, LANG="ja_JP.UTF-8", TZ="Asia/Tokyo")
    async with place.terminal() as terminal:
        await terminal.asks("add a note: 牛乳を買う")
        await terminal.shows(
            "サーバー notes", "ツール add", "リスク ● データの書き込み", "依頼者： owner", "[Enter] 承認しない"
        )
        assert place.notes == []
        await terminal.presses("y", "承認しました", "✓ notes.add", "Saved as note #1")
        await terminal.prompts()
        assert place.notes == ["牛乳を買う"]
        terminal.type("/mcp list")
        await terminal.shows("MCPサーバー", "接続済み")
        await terminal.prompts()
        terminal.type("/mcp pollicy")
        await terminal.shows("policy のことですか？")
        terminal.type("/quit")
        assert await terminal.wait_for_exit() == 0
