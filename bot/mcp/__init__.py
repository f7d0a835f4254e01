"""MCP servers as one toolbox: configuration, connections, names, calls and results.

The composition root builds `toolbox.McpToolbox` and tells it which servers to keep: those that
`config_file.read_servers` found, and those that admins have defined, made ready by `authentication`. Everybody else
sees the ports `Toolbox` and `ServerAdmin`. Nothing outside this folder knows the MCP library.
"""
