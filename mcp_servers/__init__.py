"""MCP servers that come with Countersign. Each folder is a program of its own that does not import the bot."""
