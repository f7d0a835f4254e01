"""MCP servers that come with Countersign. Each folder is a program of its own; nothing here imports the bot."""
