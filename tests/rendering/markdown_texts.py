"""Valid and malformed Markdown, for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

LINES = st.sampled_from([
    "", "", " ", "word", "two words here", "# Title", "## ", "#no title", "- item", "* item", "1. one", "10) ten",
    "  inner", "    code", "   - nested", "      deeper text", "```", "```python", "````", "~~~", "``` a`b", "  ```",
    "- ```js", "---", "***", "| a | b |", "|---|--:|", "| 1 | **2** |", "> quote", "> - quoted item", ">> deep",
    "**bold** and *italic* ~~struck~~ `code <!here>`", "<!channel> <@U123> <#C1|x> @here @channel #general",
    "[text](https://example.com/a)", "[google.com](https://evil.example)", "![pic](https://evil.example/x.png)",
    "[x](javascript:alert)", "[x](slack://open)", "see https://example.com/path?q=1&r=2.", "<https://example.com>",
    "<https://evil.example|https://bank.example>", "&lt;!everyone&gt;", "[ref]: https://example.com", "[ref]",
    "\\*no\\*", "日本語の文章です。", "emoji 🎉 :tada:", "x" * 90, "long " * 40, "- [ ] todo", "a  ",
    "<b>html</b>", "a & b < c > d",
])  # fmt: skip
TEXTS = st.builds(lambda lines, end: "\n".join(lines) + end, st.lists(LINES, max_size=30), st.sampled_from(["", "\n"]))
LARGE = st.builds(
    lambda lines, times, tail: "\n".join(lines * times) + tail,
    st.lists(LINES, min_size=1, max_size=12),
    st.integers(1, 60),
    st.text(max_size=30),
)
ANY = st.one_of(TEXTS, LARGE, st.text(max_size=300))
