"""The garbage collector in processes that live long.

At its usual 700 objects gained it looks through everything several times a cycle, and a server collects reports more
than it reads them; nearly all of ours is freed by its count of references.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

GAINED = 50_000  # objects, between two collections


def settle() -> None:
    """Exempts all present objects from garbage collection, and makes collections of new objects rarer."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GAINED)


@contextmanager
def settled() -> Iterator[None]:
    """The same for a while."""
    before = gc.get_threshold()
    settle()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
