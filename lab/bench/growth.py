"""Measures how time grows with the fleet: to the first plan, and to the gap that every size reaches."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from math import log
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from cli.arguments import whole
from cli.bench.plan_arguments import Say, add_family_argument, add_plan_arguments
from cli.bench.solve import progress
from cli.bench.timed_plan import time_plan

if TYPE_CHECKING:
    from benchmarks.rows import Row, TimedLines

SIZES = ((100, 20), (300, 60), (1_000, 200), (3_000, 600), (10_000, 2_000))
SHOWN = ("gpus", "services", "seed", "first_seconds", "seconds", "gap", "gap_seconds")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_family_argument(parser)
    parser.add_argument("--seeds", metavar="K", type=whole(1), default=3, help="seeds 0 to K - 1; default 3")
    least, most = SIZES[0][0], SIZES[-1][0]
    about = f"largest fleet, {least} at least; default {most}"
    parser.add_argument("--most", metavar="G", type=whole(least), default=most, help=about)
    add_plan_arguments(parser)


def measure(args: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Returns a row for each size and seed, and exponents of services ** e fitted to the medians by size."""
    from benchmarks.families import family
    from benchmarks.rows import row
    from benchmarks.timed import TimedRun, plan_jointly

    rows: list[dict[str, Any]] = []
    traces = []
    sizes = [size for size in SIZES if size[0] <= args.most]
    for gpus, services in sizes:
        for seed in range(args.seeds):
            say(f"{gpus} GPUs, {services} services, seed {seed}")
            order = TimedRun(plan_jointly, args.seconds, args.work, seed)
            problem = family(args.family, gpus, services, seed)
            messages, peak_mb = time_plan(problem, order, lambda line: say(progress(line)))
            found = row(messages, peak_mb, args.seconds)
            rows.append({"gpus": gpus, "services": services, "seed": seed} | found)
            traces.append(messages)
    gaps = [row["gap"] for row in rows if row["gap"] is not None]
    same_gap = max(gaps) if gaps else None
    for found, messages in zip(rows, traces, strict=True):
        found["gap_seconds"] = gap_seconds(messages, found, same_gap)

    def fitted(figure: str) -> float | None:
        points = []
        for _, services in sizes:
            values = [row[figure] for row in rows if row["services"] == services and row[figure] is not None]
            if values:
                points.append((services, median(values)))
        return exponent(points)

    return {
        "rows": rows,
        "same_gap": same_gap,
        "exponent_first": fitted("first_seconds"),
        "exponent_same_gap": fitted("gap_seconds"),
    }


def gap_seconds(lines: TimedLines, found: Row, wanted: float | None) -> float | None:
    """Returns when a gap was first known to be reached."""
    from benchmarks.rows import gap

    if wanted is None or found["gap"] is None:
        return None
    for line in lines:
        if line["what"] == "better" and (known := gap(line["cost"], line["bound"])) is not None and known <= wanted:
            return float(line["at"])
    return float(found["seconds"])


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """Returns the e of y ~ x ** e, by least squares on logarithms."""
    if len(points) < 2:
        return None
    xs, ys = [log(x) for x, _ in points], [log(y) for _, y in points]
    middle_x, middle_y = fmean(xs), fmean(ys)
    return sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / sum(
        (x - middle_x) ** 2 for x in xs
    )
