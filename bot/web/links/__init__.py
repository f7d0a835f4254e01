"""One-time links: the page behind one, for a person with a browser. Knows no token and no API."""
