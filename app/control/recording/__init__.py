"""Decisions on record: read back, and made again."""
