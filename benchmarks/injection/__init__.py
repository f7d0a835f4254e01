"""Approvals on the tasks of AgentDojo: for attacks and for legitimate tasks."""
