"""Where people come back to who have signed the bot in to an MCP server, and where the bot describes itself."""
