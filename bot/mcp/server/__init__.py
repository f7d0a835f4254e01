"""Life of one server: connection, session, status, capabilities."""
