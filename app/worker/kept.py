"""Sends a worker each large object once: orders after that only name it.

Both sides keep the last few of each class, in places that the sender chooses, so that they never differ.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TypeAlias, TypeVar

T = TypeVar("T")
State: TypeAlias = Mapping[str, object] | None

MOST_KEPT = 2  # of each class

_received: dict[tuple[str, int], object] = {}  # the worker's own side, which has one parent


class KeptObjects:
    """Pickles orders for one worker, and knows which objects of these classes it has."""

    def __init__(self, *classes: type) -> None:
        self._sent: dict[type, list[object]] = {cls: [] for cls in classes}
        self._count = dict.fromkeys(classes, 0)

    def pickle_order(self, order: object) -> bytes:
        """Returns the order as it has to be sent next, and only to this worker: it counts as received."""
        whole = BytesIO()
        pickler = pickle.Pickler(whole, pickle.HIGHEST_PROTOCOL)
        pickler.dispatch_table = {**copyreg.dispatch_table, **dict.fromkeys(self._sent, self._reduce)}
        pickler.dump(order)
        return whole.getvalue()

    def _reduce(self, made: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        cls = type(made)
        sent = self._sent[cls]
        at = next((at for at, other in enumerate(sent) if other is made), None)
        if at is not None:
            return _recall, (cls.__name__, at)
        at = self._count[cls] % MOST_KEPT
        self._count[cls] += 1
        sent[at : at + 1] = [made]
        parts = made.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        assert not isinstance(parts, str)
        return _keep, (cls.__name__, at, *parts[:3])


def _keep(name: str, at: int, create: Callable[..., T], arguments: tuple[object, ...], state: State = None) -> T:
    """Makes an object as `pickle` does, and keeps it."""
    made = _received[name, at] = create(*arguments)
    if hasattr(made, "__setstate__"):
        made.__setstate__(state)
    elif state is not None:
        vars(made).update(state)
    return made


def _recall(name: str, at: int) -> object:
    return _received[name, at]
