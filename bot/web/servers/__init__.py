"""Routes about MCP servers: definitions, actions and reviews."""
