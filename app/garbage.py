"""The garbage collector in long-lived processes.

With the usual threshold of 700 new objects it scans everything several times a cycle, and a server spends more time on
collection than on reading reports. Nearly all of our objects are freed by their reference count.
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
def settle_for() -> Iterator[None]:
    """Does the same for the duration of a block."""
    before = gc.get_threshold()
    settle()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
