"""The model a person meets with no key at all: a deterministic planner that picks tools by the words of a question.

Built by the composition root through `create(Config())`. It is not an AI and says so. It works with whatever tools are
offered and must not know any tool or server by name.
"""

from bot.llm.demo.model import Config, DemoModel, create

__all__ = ["Config", "DemoModel", "create"]
