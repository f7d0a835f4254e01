"""The console: servers, approvals, audit and usage as pages for a browser (ADR 65)."""
