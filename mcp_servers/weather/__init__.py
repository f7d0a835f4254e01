"""An MCP server for the forecasts of the Japan Meteorological Agency. Run it with `python -m mcp_servers.weather`."""
