"""Discord: what is drawn there, and what comes in."""
