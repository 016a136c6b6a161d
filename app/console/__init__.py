"""The web console: a single read-only page, rendered on the server, usable without scripts."""
