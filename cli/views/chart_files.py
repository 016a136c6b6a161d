"""Prepares the drawing of charts, and writes them as images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ENDINGS = (".svg", ".png")  # of a file without one


def prepare_drawing() -> None:
    """Makes matplotlib draw without a screen; the same figures give the same file."""
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": "gpuwright", "svg.fonttype": "none"})


def make_plain(axes: Any) -> None:
    """Adds a faint grid, and leaves out the frame's top and right side."""
    axes.grid(visible=True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def save_chart(canvas: Any, file: Path) -> None:
    """Writes a chart to `file`, in two formats if that has no ending, and closes it."""
    from matplotlib import pyplot

    canvas.tight_layout()
    for ending in (file.suffix,) if file.suffix else ENDINGS:
        canvas.savefig(file.with_suffix(ending), metadata={"Date": None} if ending == ".svg" else None)
    pyplot.close(canvas)
