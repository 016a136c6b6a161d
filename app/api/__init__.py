"""The REST API: a router for each noun. Nothing is decided here."""
