"""Tests of `bot.llm`."""
