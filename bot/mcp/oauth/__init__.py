"""OAuth 2.1 client for MCP servers (MCP specification 2026-07-28, basic/authorization).

`sign_ins` runs the sign-in of a user. `tokens` caches and refreshes its token and adds it to requests.
`client` finds the authorization server, registers the bot there and requests tokens, `http` sends these requests.

The MCP library's pure functions are used. Its provider is not, because its lock serializes all requests.
"""
