"""The web console: one page that reads, drawn on the server, of use without scripts."""
