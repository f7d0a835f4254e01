"""MCP servers as one toolbox: configuration, connections, names, calls and results.

Build `toolbox.McpToolbox` and give it the servers of `config_file.load_servers` and those that admins have defined,
completed by `credentials.inject_secrets`. Other packages use the ports `Toolbox` and `ServerAdmin`. Only this package
imports the MCP library.
"""
