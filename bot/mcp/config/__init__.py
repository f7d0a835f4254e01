"""Definitions of servers: the operator's files, launch templates, secrets, checks."""
