"""Keeps a few values that take long to make and much memory, such as the plan of a large fleet."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

MOST_RECENT = 3

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The values of the few latest keys."""

    def __init__(self) -> None:
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Returns the value of the key; makes it if it is missing. Other callers wait meanwhile."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            self._values.move_to_end(key)
            if len(self._values) > MOST_RECENT:
                self._values.popitem(last=False)
            return self._values[key]
