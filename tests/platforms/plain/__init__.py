"""A platform for tests: a chat service over plain HTTP, with text and typed commands only."""
