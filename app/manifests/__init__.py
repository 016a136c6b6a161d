"""Reads bytes into validated manifests and names every fault at once; needs no database and no web server."""
