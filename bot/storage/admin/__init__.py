"""Stores of what admins define: servers and their secrets, rules, profiles, grants, tokens and installations."""
