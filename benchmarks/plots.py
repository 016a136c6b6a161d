"""Draws benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.rows import TimedLines, gap

MOST_PERCENT = 100.0  # plans with unserved load are far above
LEAST_PERCENT = 0.1


def gap_over_time(traces: Mapping[str, TimedLines], title: str, file: Path) -> None:
    """Draws each plan's gap as a step line over its time, both on logarithmic axes."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    lowest = MOST_PERCENT
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, lines in traces.items():
        known = [
            (line["at"], 100 * found)
            for line in lines
            if line["what"] == "better" and (found := gap(line["cost"], line["bound"])) is not None
        ]
        if known:
            end = max(line["at"] for line in lines if "at" in line)
            seconds, percents = zip(*known, (end, known[-1][1]), strict=True)
            lowest = min(lowest, known[-1][1])
            axes.step(seconds, percents, where="post", label=name, linewidth=1.2)
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="gap in %", title=title)
    if axes.lines:
        axes.set_ylim(top=MOST_PERCENT, bottom=max(LEAST_PERCENT, 0.8 * lowest))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(visible=True, which="both", alpha=0.3)
    if axes.lines:
        axes.legend(title="family, seed")
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
