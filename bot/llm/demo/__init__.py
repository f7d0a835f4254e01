"""The model for use without any key: a deterministic planner that picks tools by the words of a question.

The composition root builds it with `create(Config())`. It is not an AI and says so. It works with all tools that are
offered and knows no tool or server by name.
"""

from bot.llm.demo.model import Config, DemoModel, create

__all__ = ["Config", "DemoModel", "create"]
