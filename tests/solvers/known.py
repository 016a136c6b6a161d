"""Takes a figure that a proof may leave open, where the test expects it."""

from __future__ import annotations


def known(figure: float | None) -> float:
    assert figure is not None
    return figure
