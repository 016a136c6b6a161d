"""What can go wrong with a Postgres of our own, each with the sentence the user reads."""

from __future__ import annotations


class PostgresError(Exception):
    """The message names the folder or program, what is wrong with it, and what to do."""
