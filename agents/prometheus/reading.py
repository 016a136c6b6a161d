"""Parses Prometheus text that cannot be trusted: only wanted metrics, and only finite amounts of at least 0."""

from __future__ import annotations

import math
from bisect import bisect_left

from agents.contract.fields import LATENCY_EDGES_MS

LARGEST_VALUE = 1e15
LONGEST_LINE_BYTES = 4096
MOST_SAMPLES = 20_000
MOST_LINES = 100_000  # of the whole text; the rest counts as one line that is too long
_EDGES = tuple(LATENCY_EDGES_MS)
Labels = dict[str, str]
Samples = dict[str, list[tuple[Labels, float]]]


def read(text: bytes, wanted: frozenset[str]) -> tuple[Samples, int]:
    """Returns the samples of these metrics, and how many of their lines were dropped."""
    starts = tuple(name.encode() for name in wanted)
    samples: Samples = {}
    dropped = taken = 0
    for line in text.split(b"\n", MOST_LINES):
        if not line.startswith(starts):
            continue
        sample = _sample(line) if taken < MOST_SAMPLES else None
        taken += 1
        if sample is None:
            dropped += 1
        elif sample[0] in wanted:
            samples.setdefault(sample[0], []).append(sample[1:])
    return samples, dropped


def _sample(line: bytes) -> tuple[str, Labels, float] | None:
    """Parses `name{a="b"} 1.5 [timestamp]`; returns None if it is malformed or its value is not an amount."""
    if len(line) > LONGEST_LINE_BYTES:
        return None
    try:
        text = line.decode().rstrip("\r")
    except UnicodeDecodeError:
        return None
    labels: Labels = {}
    brace = text.find("{")
    if brace >= 0:
        name = text[:brace].rstrip()
        end = _labels(text, brace + 1, labels)
        if end < 0:
            return None
        rest = text[end:].split()
    else:
        name, _, remainder = text.partition(" ")
        rest = remainder.split()
    if not 1 <= len(rest) <= 2:
        return None
    try:
        # float() would also accept 1_000 and non-ASCII digits.
        value = float(rest[0]) if rest[0].isascii() and "_" not in rest[0] else math.nan
    except ValueError:
        return None
    if not 0 <= value <= LARGEST_VALUE:  # false for NaN, too
        return None
    return name, labels, value


def _labels(text: str, at: int, labels: Labels) -> int:
    """Reads labels from `at` on; returns the index after the closing brace, or -1."""
    while at < len(text):
        if text[at] == "}":
            return at + 1
        equals = text.find('="', at)
        if equals < 0:
            return -1
        name = text[at:equals].strip()
        at = equals + 2
        pieces: list[str] = []
        while True:
            end = at
            while end < len(text) and text[end] not in '"\\':
                end += 1
            pieces.append(text[at:end])
            if end + 1 >= len(text):
                return -1
            if text[end] == '"':
                at = end + 1
                break
            escaped = text[end + 1]
            pieces.append("\n" if escaped == "n" else escaped)
            at = end + 2
        labels[name] = "".join(pieces)
        while at < len(text) and text[at] in ", ":
            at += 1
    return -1


def total(samples: Samples, name: str) -> float | None:
    """Returns the sum over all label sets; None if there is no sample."""
    found = samples.get(name)
    return sum(value for _, value in found) if found else None


def histogram(samples: Samples, name: str, ms_per_unit: float) -> tuple[tuple[int, ...], int]:
    """Returns a cumulative histogram's counts by LATENCY_EDGES_MS, and how many of its buckets were invalid.

    A source's bucket is counted where its upper edge falls, so that no latency looks shorter than it was.
    """
    cumulative: dict[float, float] = {}
    dropped = 0
    for labels, value in samples.get(name + "_bucket", ()):
        try:
            edge = float(labels.get("le", ""))
        except ValueError:
            edge = math.nan
        if not edge >= 0:
            dropped += 1
            continue
        cumulative[edge] = cumulative.get(edge, 0.0) + value
    counts = [0] * (len(_EDGES) + 1)
    before = 0.0
    for edge in sorted(cumulative):
        if cumulative[edge] < before:
            dropped += 1  # a cumulative count cannot fall
            continue
        counts[bisect_left(_EDGES, edge * ms_per_unit * (1 - 1e-9))] += int(cumulative[edge] - before)
        before = cumulative[edge]
    while counts and counts[-1] == 0:
        counts.pop()
    return tuple(counts), dropped
