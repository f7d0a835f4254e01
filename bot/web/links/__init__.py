"""One-time links: the page in the browser. It takes no API token."""
