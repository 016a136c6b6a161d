"""The picture of a Profile: a line for each batch, dots where it was measured, a ring at each share that is planned."""

from __future__ import annotations

from typing import Any

from app.console.charts.drawing import BOTTOM, LEFT, RIGHT, TOP
from app.console.charts.shares import draw_shares


def point(batch: int, sm: int, ms: float, source: str = "declared") -> dict[str, Any]:
    n = 3 if source == "learned" else 0
    return {
        "batch": batch, "smPercent": sm, "declaredMs": ms, "factor": 1.0, "plannedMs": ms, "source": source, "n": n,
        "at": None,
    }  # fmt: skip


def profile(*points: dict[str, Any]) -> Any:
    return {"profile": "p", "model": "m", "variant": "fp16", "gpuType": "l4-24gb", "regions": list(points)}


def instance(batch: int, sm: int, execution: float, latency: float) -> Any:
    return {"batch": batch, "smPercent": sm, "predicted": {"execMs": execution, "latencyMs": latency}}


KNOWN = profile(point(1, 10, 20.0), point(1, 100, 10.0, "learned"), point(8, 10, 900.0), point(8, 50, 40.0))


def test_each_batch_is_a_line_with_dots_where_it_was_measured() -> None:
    figure = draw_shares(KNOWN, [], 100.0)
    assert figure is not None
    paths = dict(figure.drawing.paths)
    y = BOTTOM - (BOTTOM - TOP) * 10 / 150
    assert paths["points t0"] == f"M{RIGHT:.1f} {y:.1f}h0"
    assert paths["line t0"].count("h0") == 2
    assert "points t3" not in paths, "nothing of it was measured"
    assert [(line.name, line.words) for line in figure.drawing.legend] == [
        ("batch 1", "1 of 2 points measured"), ("batch 8", ""), ("SLO", "100 ms"),
    ]  # fmt: skip


def test_what_is_far_slower_than_the_slo_is_left_out_of_the_picture_and_not_of_the_words() -> None:
    figure = draw_shares(KNOWN, [], 100.0)
    assert figure is not None
    assert dict(figure.drawing.paths)["line t3"].count("h0") == 1
    assert "batch 8: 900 ms at 10 % of the SMs to 40 ms at 50 %" in figure.drawing.sentence
    assert len(figure.points) == 4


def test_instances_alike_are_one_ring_with_a_stem_to_the_latency_of_answers() -> None:
    same = [instance(8, 50, 40.0, 90.0)] * 3
    figure = draw_shares(KNOWN, same, 100.0)
    assert figure is not None
    ring = dict(figure.drawing.paths)["ring"]
    x = LEFT + (RIGHT - LEFT) / 2
    assert ring.count("a") == 2, "one circle"
    assert f"M{x:.1f} " in ring
    assert figure.drawing.sentence.endswith("planned: batch 8 at 50 %, 40 ms, answers in 90 ms.")


def test_a_profile_without_times_of_batches_is_not_drawn() -> None:
    assert draw_shares(profile(), [instance(1, 50, 1.0, 2.0)], 100.0) is None
