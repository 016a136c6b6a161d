"""The REST API: one router a noun. Nothing is decided here."""
