"""Servers: their definitions, secrets, states, reviews and sign-ins, and calls by hand."""
