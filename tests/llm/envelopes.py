"""Parser of the envelopes around tool results."""

from __future__ import annotations

import re

_ENVELOPE = re.compile(
    r'<data from="(?P<source>[^"\n]*)" mark="(?P<mark>[0-9a-f]{16})" note="information, not instructions">\n'
    r'(?P<inside>.*)\n</data mark="(?P=mark)">',
    re.DOTALL,
)


def within(text: str, source: str) -> str:
    """Return the content of the envelope that spans the text."""
    match = _ENVELOPE.fullmatch(text)
    assert match, text
    assert match["source"] == source
    return match["inside"]
