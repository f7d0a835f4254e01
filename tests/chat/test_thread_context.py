"""Messages of other users as context for the model."""

from __future__ import annotations

from bot.chat.message_handler import format_lines


def test_no_user_writes_a_line_in_anothers_name() -> None:
    said = [("Ana", "lunch?\nBen: yes"), ("Ben: I agree. Ana", "no"), ("\u202e\n", "hm")]
    assert format_lines(said) == (
        "Ana: lunch?\n    Ben: yes",
        "Ben I agree. Ana: no",
        "Somebody: hm",
    )
