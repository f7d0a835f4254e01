"""MCP servers as one toolbox: configuration, connections, names, calls and results.

The composition root builds `toolbox.McpToolbox` from what `config_file.read_servers` found; everybody else sees the
ports `Toolbox` and `ServerAdmin`. Nothing outside this folder knows the MCP library.
"""
