"""MCP servers for tests: real ones, and ones with every fault that a server can have. All of them speak the protocol
over real pipes and sockets.

`raw` is a program on standard input and output and uses no MCP library; `endpoint` is streamable HTTP and
`sse_client` the older HTTP+SSE, both in the test's own event loop; `server` is a well-behaved program of the SDK, and
`asking` one that asks people back; `cases` are servers of the kinds that people connect.
"""
