"""An MCP server that searches a folder of Markdown and text files. Run it with `python -m mcp_servers.knowledge`."""
