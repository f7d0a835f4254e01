"""Profiles, and agents that users ask by name."""
