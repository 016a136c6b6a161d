"""The error of a Postgres of our own; its message is the sentence that the user reads."""

from __future__ import annotations


class PostgresError(Exception):
    """The message names the folder or program, what is wrong with it, and what to do."""
