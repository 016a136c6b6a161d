"""Blocks that the tests write are read by Prometheus as those that its own tool writes."""

from __future__ import annotations

import random
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from tests.clusters.history import SCRAPE_SECONDS, PastSeries, prometheus_over, prometheus_with
from tests.kubernetes.estates.blocks import encode_chunks, write_block

START = 1_795_780_800  # a block begins there
MINUTES = 360


def _draw_samples(seed: int) -> dict[float, float]:
    """A series with gaps, values that stay, grow, fall to nothing and have many digits."""
    drawn, value, found = random.Random(seed), 0.0, {}
    for minute in range(MINUTES):
        value = drawn.choice((value, value + drawn.randrange(100_000), drawn.gauss(0, 1e6), 0.0))
        if drawn.random() > 0.02 or minute in (0, MINUTES - 1):
            found[float(START + minute * SCRAPE_SECONDS)] = value
    return found


def _ask(url: str) -> bytes:
    asked = {"query": '{__name__=~".+"}[6h]', "time": str(START + MINUTES * SCRAPE_SECONDS)}
    with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode(asked)}", timeout=60) as answer:
        return bytes(answer.read())


@pytest.mark.slow
def test_prometheus_reads_a_block_as_one_that_promtool_wrote(tmp_path: Path) -> None:
    samples = {(f"metric_{seed % 3}", f"pod-{seed}", "ü" * seed): _draw_samples(seed) for seed in range(40)}
    series = []
    for (name, pod, more), values in samples.items():
        labels = tuple(sorted({"__name__": name, "pod": pod, **({"more": more} if more else {})}.items()))
        moments = [round(moment * 1000) for moment in values]
        series.append((labels, encode_chunks(moments, [*values.values()], SCRAPE_SECONDS * 1000)))
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    theirs.mkdir()
    write_block(ours / "data", 1, (START * 1000, (START + MINUTES * SCRAPE_SECONDS) * 1000), sorted(series))
    past = [
        PastSeries(name, {"pod": pod, **({"more": more} if more else {})}, values.get)
        for (name, pod, more), values in samples.items()
    ]
    with prometheus_over(ours) as url:
        found = _ask(url)
    with prometheus_with(past, theirs, START, START + (MINUTES - 1) * SCRAPE_SECONDS) as url:
        assert _ask(url) == found
