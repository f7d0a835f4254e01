"""Turns over HTTP: parsing of input, event streams and response models."""
