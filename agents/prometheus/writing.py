"""Writes families of samples in Prometheus' text format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One metric and its samples, each with labels and value; a suffix of the name may precede the labels."""

    name: str
    kind: str  # gauge, counter, histogram
    help: str  # may be empty
    samples: Sequence[tuple[str, float | None]]


def single(name: str, kind: str, value: float | None, text: str = "", labels: str = "") -> Family:
    """Returns a metric of one sample."""
    return Family(name, kind, text, [(labels, value)])


def make_buckets(
    edges: Iterable[str], counts: Sequence[int], labels: str = "", total: float | None = None
) -> list[tuple[str, float | None]]:
    """Returns a histogram's samples from its counts between edges; those left out are 0. `total`: its sum."""
    samples: list[tuple[str, float | None]] = []
    start = f"_bucket{labels[:-1]}," if labels else "_bucket{"  # not by add_labels: a model server's loop waits for it
    below = 0
    for edge, count in zip(edges, counts, strict=False):
        below += count
        samples.append((f'{start}le="{edge}"}}', below))
    answered = sum(counts)
    samples.append((f'{start}le="+Inf"}}', answered))
    return [*samples, ("_sum" + labels, total and round(total, 6)), ("_count" + labels, answered)]


def format_families(families: Iterable[Family]) -> str:
    """Returns the page. Samples without a finite value are left out, rather than shown as zero."""
    lines: list[str] = []
    for family in families:
        samples = [(labels, value) for labels, value in family.samples if value is not None and math.isfinite(value)]
        if samples and family.help:
            lines.append(f"# HELP {family.name} {family.help}")
        if samples:
            lines.append(f"# TYPE {family.name} {family.kind}")
            lines.extend(f"{family.name}{labels} {_number(value)}" for labels, value in samples)
    return "\n".join(lines) + "\n"


def format_labels(**values: str) -> str:
    """Formats labels in braces; an empty label is left out."""
    labels = ",".join(f'{name}="{_escape(value)}"' for name, value in values.items() if value)
    return labels and f"{{{labels}}}"


def add_labels(labels: str, **values: str) -> str:
    """Adds labels to formatted ones."""
    more = format_labels(**values)
    return f"{labels[:-1]},{more[1:]}" if labels and more else labels or more


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    """Formats whole numbers exactly: an energy counter exceeds the precision of a float."""
    return str(int(value)) if isinstance(value, int) else repr(value)
