"""The web console: pages that the server renders, usable without scripts."""
