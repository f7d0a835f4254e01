"""Tests of the Discord platform: deliveries and incoming events."""
