"""The places where people are: one folder each, with a Listener and a Surface. No platform knows another."""
