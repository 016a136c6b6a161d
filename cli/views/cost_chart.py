"""Writes what a simulated fleet cost over time as CSV, and draws it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.currency import head_amounts
from cli.views.chart_files import make_plain, prepare_drawing, save_chart

if TYPE_CHECKING:
    from simulation.measure.figures import RunSamples

COLOURS = {"held": "tab:blue", "planned": "tab:cyan", "fresh": "tab:orange", "bound": "tab:gray"}
COLUMNS = (
    "seconds", "heldPerHour", "plannedPerHour", "freshPerHour", "boundPerHour",
    "freshInHindsightPerHour", "boundInHindsightPerHour",
)  # fmt: skip


def write_costs(samples: RunSamples, file: Path) -> None:
    """Writes a row for each moment at which a cost changed; what the fleet could cost holds from sample to sample."""
    with file.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(COLUMNS)
        rows.writerows(_rows(samples))


def draw_costs(samples: RunSamples, figures: Mapping[str, Any], title: str, currency: str, file: Path) -> None:
    """Draws held, planned, fresh and bound as step lines over the hours."""
    prepare_drawing()
    from matplotlib import pyplot

    lines = {
        "held": [(moment.at, moment.held) for moment in samples.costs],
        "planned": [(moment.at, moment.planned) for moment in samples.costs],
        "fresh": [(moment.at, moment.fresh) for moment in samples.fresh],
        "bound": [(moment.at, moment.bound) for moment in samples.fresh],
    }
    canvas, axes = pyplot.subplots(figsize=(10, 4.5))
    for name, points in lines.items():
        if points:
            hours, values = zip(*[*points, (samples.ended, points[-1][1])], strict=True)
            label = f"{name} ({figures[f'{name}PerHour']:.4g} on average)"
            hours = tuple(at / 3600 for at in hours)
            axes.step(hours, values, where="post", label=label, color=COLOURS[name], linewidth=1.3)
    axes.set(xlabel="hours", ylabel=head_amounts("cost an hour", currency))
    axes.set_ylim(bottom=0)
    axes.set_title(title, loc="left", fontsize=10)
    make_plain(axes)
    axes.legend(fontsize=8, loc="lower right")
    save_chart(canvas, file)


def _rows(samples: RunSamples) -> Iterator[tuple[float, ...]]:
    costs = {moment.at: (moment.held, moment.planned) for moment in samples.costs}
    could = {m.at: (m.fresh, m.bound, m.fresh_in_hindsight, m.bound_in_hindsight) for m in samples.fresh}
    cost, best = (0.0, 0.0), (0.0, 0.0, 0.0, 0.0)
    for at in sorted({*costs, *could}):
        cost, best = costs.get(at, cost), could.get(at, best)
        yield (at, *cost, *(round(value, 6) for value in best))
