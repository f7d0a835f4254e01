"""The gateway: other agents ask for approvals of their calls."""
