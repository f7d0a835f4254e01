"""An MCP server that keeps notes in one file. Run it with `python -m mcp_servers.notes`."""
