"""Pages of lists: their query parameters, and the items with the cursor of the next page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import Query

from app.api import cursors
from app.wire import PageMetadataWire

Limit = Annotated[int, Query(ge=1, le=500)]
Cursor = Annotated[str, Query(max_length=1000, description="`metadata.next` of the previous page")]
NEWEST = 2**62  # above every id and generation

Row = TypeVar("Row")
Item = TypeVar("Item")
Mark = TypeVar("Mark", str, int)


def mark_of(cursor: str, first: Mark) -> Mark:
    """Returns where the previous page ended; `first` without a cursor."""
    mark: Mark = cursors.decode(cursor, type(first))[0] if cursor else first
    return mark


def cut_page(
    rows: Sequence[Row], limit: int, mark: Callable[[Row], str | int], wire: Callable[[Row], Item]
) -> tuple[PageMetadataWire, list[Item]]:
    """Returns the cursor and up to `limit` rows; one row more than that shows that another page follows."""
    following = cursors.encode(mark(rows[limit - 1])) if len(rows) > limit else None
    return {"next": following}, [wire(row) for row in rows[:limit]]
