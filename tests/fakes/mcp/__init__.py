"""MCP servers for tests, over real pipes and sockets: correct servers, and servers with faults.

`raw` is a program on standard input and output without an MCP library. `endpoint` is streamable HTTP and `event_stream`
the older HTTP+SSE, both in the test's own event loop. `server` is a correct program on the MCP library, and
`elicitation_server` one with elicitations. `cases` are servers of typical kinds.
"""
