"""Pages of lists: their query parameters, and the answer with the cursor of the next page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query, Response

from app.api import cursors
from app.api.requests import answer

Limit = Annotated[int, Query(ge=1, le=500)]
Cursor = Annotated[str, Query(max_length=1000, description="`metadata.next` of the previous page")]
NEWEST = 2**62  # above every id and generation

Row = TypeVar("Row")
Mark = TypeVar("Mark", str, int)


def mark_of(cursor: str, first: Mark) -> Mark:
    """Returns where the previous page ended; `first` without a cursor."""
    mark: Mark = cursors.decode(cursor, type(first))[0] if cursor else first
    return mark


def answer_page(
    kind: str, rows: Sequence[Row], limit: int, mark: Callable[[Row], str | int], wire: Callable[[Row], dict[str, Any]]
) -> Response:
    """Answers with up to `limit` rows; one row more than that shows that another page follows."""
    following = cursors.encode(mark(rows[limit - 1])) if len(rows) > limit else None
    return answer({"kind": kind, "metadata": {"next": following}, "items": [wire(row) for row in rows[:limit]]})
