"""OAuth callback of sign-ins to MCP servers, and the bot's client metadata document."""
