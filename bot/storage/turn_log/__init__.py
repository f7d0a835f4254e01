"""The turn log: turns, their calls, approvals, elicitations and deliveries, on any database."""
