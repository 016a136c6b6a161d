"""Reads files of public data."""
