"""The ParvaGPU benchmark on small profiles of our own."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from lab.data.missing_data import DataMissing
from lab.published import parvagpu
from lab.published.parvagpu import LAYOUTS, ModelDemand, Segment, SliceMeasurement


def options(per_slice: dict[int, int]) -> dict[int, Segment]:
    return {size: Segment(size, 1, 1, Fraction(rate)) for size, rate in per_slice.items()}


def test_the_layouts_are_those_of_an_a100() -> None:
    assert (7,) in LAYOUTS
    assert (3, 3) in LAYOUTS
    assert (4, 3) in LAYOUTS
    assert (3, 3, 1) not in LAYOUTS  # the first 3 takes half of the memory
    assert max(sum(layout) for layout in LAYOUTS) == 7
    assert len(LAYOUTS) == 16


def test_the_best_segment_keeps_the_slo_and_counts_all_processes() -> None:
    rows = (
        SliceMeasurement(1, 1, 1, Fraction(50), Fraction(20, 1000)),
        SliceMeasurement(1, 1, 3, Fraction(30), Fraction(33, 1000)),
        SliceMeasurement(1, 8, 1, Fraction(200), Fraction(45, 1000)),
    )
    assert parvagpu.segments(rows, Fraction(100)) == {1: Segment(1, 1, 3, Fraction(90))}  # 45 ms is not under 45
    assert parvagpu.segments(rows, Fraction(10)) == {}


def test_demands_share_a_gpu_where_the_slices_allow_it() -> None:
    both = {"a": options({3: 100}), "b": options({3: 100, 4: 150})}
    answer = parvagpu.solve(
        both, (ModelDemand("a", Fraction(1), Fraction(100)), ModelDemand("b", Fraction(1), Fraction(150)))
    )
    assert answer is not None
    assert (len(answer.layouts), answer.bound, answer.is_proved) == (1, 1, True)
    assert answer.slices == {("a", 3): 1, ("b", 4): 1}


def test_a_rate_needs_as_many_gpus_as_its_slices_fill() -> None:
    demands = (ModelDemand("a", Fraction(1), Fraction(1500)),)
    answer = parvagpu.solve({"a": options({1: 100, 7: 650})}, demands)
    assert answer is not None
    assert answer.bound == len(answer.layouts) == 3
    assert parvagpu.violations({"a": options({1: 100, 7: 650})}, demands, answer) == []


def test_an_slo_that_no_slice_keeps_has_no_answer() -> None:
    assert parvagpu.solve({"a": {}}, (ModelDemand("a", Fraction(1), Fraction(1)),)) is None


def test_the_files_are_read_and_models_without_a_promise_left_out(tmp_path: Path) -> None:
    (tmp_path / "prof_data").mkdir()
    for name in ("bert", "vgg"):
        (tmp_path / f"prof_data/{name}.csv").write_text("Mig,Batch,Number,Throughput,Latency\n1,1,1,10.5,0.1\n")
    (tmp_path / "slo_latency_ms.csv").write_text("400,N/A\n400,400\n\n")
    (tmp_path / "slo_request_rate.csv").write_text("21,N/A\n73.5,21\n\n")
    rows = parvagpu.run(tmp_path)["scenarios"]
    assert [(row["name"], row["models"], row["gpus"], row["proved"]) for row in rows] == [
        ("S1", 1, 1, True), ("S2", 2, 2, True)
    ]  # fmt: skip


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="holds no profile"):
        parvagpu.read(tmp_path)
