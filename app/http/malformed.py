"""Refuses a request whose head or framing cannot be accepted."""

from __future__ import annotations


class MalformedRequest(Exception):
    """The head or framing of a request is not acceptable; raised out of the parser's callbacks."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
