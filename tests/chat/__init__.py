"""Tests of the handling of messages and actions that all platforms share."""
