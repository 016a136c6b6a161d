"""The benchmarks of plans print what the contract says, from processes of their own."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from benchmarks.families import FAMILIES, family
from benchmarks.rows import row
from benchmarks.timed import TimedRun, plan_jointly
from cli.bench.other_planners import planners
from cli.bench.plan_arguments import add_family_argument
from cli.bench.timed_plan import time_plan
from cli.main import main

Bench: TypeAlias = Callable[..., tuple[Any, str]]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    """What `gpuwright bench` prints as JSON, and its progress; it starts processes of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[Any, str]:
        assert main(["bench", *words, "--json"]) == 0
        printed = capsys.readouterr()
        return json.loads(printed.out), printed.err

    return run


@pytest.mark.slow
def test_a_plan_is_timed_in_a_separate_process_and_its_memory_watched() -> None:
    heard: list[str] = []
    problem = family("A", 8, 4, 0)
    told, peak_mb = time_plan(problem, TimedRun(plan_jointly, 1.0), lambda line: heard.append(line["what"]))
    assert [what for what in heard if what != "better"] == ["loaded", "planned", "judged"]
    assert 20 < peak_mb < 2000
    assert row(told, peak_mb, 1.0)["violations"] == []


@pytest.mark.slow
def test_other_planners_are_set_beside_the_joint_planner_with_the_price_of_what_they_leave(bench: Bench) -> None:
    size = ("--gpus", "8", "--services", "4", "--family", "A", "--seeds", "1", "--seconds", "1")
    found, progress = bench("solve", *size, "--planners", "melange,largest")
    (one,) = found["rows"]
    assert list(one["planners"]) == ["melange", "largest"]
    for name, figures in one["planners"].items():
        assert figures["cost"] >= figures["unserved_cost"]
        assert figures["ratio"] == pytest.approx(figures["cost"] / one["cost"])
        assert f"{name}: cost" in progress
    with pytest.raises(argparse.ArgumentTypeError, match="joint plans in any case"):
        planners("melange,joint")


@pytest.mark.slow
def test_bench_solve_prints_the_rows_of_its_contract_and_draws_them(bench: Bench, tmp_path: Path) -> None:
    size = ("--gpus", "8", "--services", "4", "--family", "A", "--seeds", "1", "--seconds", "1")
    found, progress = bench("solve", *size, "--plot", "gap.png")
    (one,) = found["rows"]
    wanted = {"gpus", "services", "family", "seed", "first_seconds", "first_gap", "seconds", "cost", "bound", "gap"}
    assert wanted | {"peak_mb", "gap_1s", "complete_seconds", "proved", "cpu_seconds"} <= one.keys()
    assert (one["gpus"], one["services"], one["family"], one["seed"]) == (8, 4, "A", 0)
    assert one["violations"] == []
    assert found["medians"]["A"]["of"] == 1
    assert "judged" in progress
    assert f"A: proved {int(one['proved'])} of 1; " in progress
    assert (tmp_path / "gap.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_bench_solve_plans_each_file_and_bills_a_blind_plan_by_node(bench: Bench) -> None:
    bench("family", "--gpus", "8", "--services", "4", "--family", "G", "--seeds", "2", "--out", ".")
    files = [f"family-g30-8-4-{seed}.json" for seed in range(2)]
    order = ("--pricing", "node", "--blind", "--work", "20", "--seconds", "60")
    found, progress = bench("solve", "-f", *files, *order)
    assert [(one["file"], one["family"], one["seed"], one["gpus"]) for one in found["rows"]] == [
        (file, None, 0, 8) for file in files
    ]
    for one in found["rows"]:
        assert (one["unserved"], one["violations"], one["blind_violations"]) == (0, [], [])
        assert one["complete_seconds"] >= one["first_seconds"]
        assert one["bound"] <= one["blind_cost"]
        assert one["saving"] == 1 - one["cost"] / one["blind_cost"]
    assert found["medians"]["files"]["of"] == 2
    assert "break a rule" in progress


@pytest.mark.slow
def test_bench_solve_moves_the_rates_of_a_file_by_seed(bench: Bench) -> None:
    bench("family", "--gpus", "4", "--services", "2", "--out", ".")
    found, _ = bench("solve", "-f", "family-a-4-2-0.json", "--moved", "2", "--work", "1")
    assert [one["seed"] for one in found["rows"]] == [0, 1]
    assert found["rows"][0]["bound"] != found["rows"][1]["bound"]
    assert found["medians"]["family-a-4-2-0.json"]["of"] == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-f", "fleet.yaml", "--gpus", "100"), "--gpus draws a family and -f reads files"),
        (("--moved", "2"), "--moved moves the rates of files: name them with -f"),
        (("-f", "nowhere.yaml"), "nowhere.yaml"),
        (("--blind", "--gpus", "4", "--services", "2", "--seeds", "1"), "add --pricing node"),
        (("--pricing", "rack"), "'rack'"),
    ],
)
def test_bench_solve_refuses_what_it_cannot_measure(
    words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "solve", *words]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.slow
def test_bench_replan_prints_the_rows_of_its_contract(bench: Bench) -> None:
    size = ("--gpus", "8", "--services", "4", "--work", "1", "--rounds", "2")
    found, progress = bench("replan", *size)
    assert [one["round"] for one in found["rows"]] == [0, 1]
    for one in found["rows"]:
        assert {"ms", "started", "stopped", "resized", "untouched_moved"} <= one.keys()
        assert one["untouched_moved"] == 0
        assert one["violations"] == []
    first, last = found["rows"]
    assert first["drift"] is None and last["drift"] == found["drift"]
    assert found["full_plan_due"] == bool(last["full_plan_due"])
    assert "against a cold plan" in progress


@pytest.mark.slow
def test_bench_hetsev_compares_costs_where_both_serve_everything(bench: Bench) -> None:
    found, _ = bench("hetsev", "--gpus", "8", "--services", "4", "--seeds", "1", "--seconds", "1")
    (one,) = found["rows"]
    assert found["ratio"] == one["ratio"] == one["cost"] / one["hetsev_cost"]


@pytest.mark.slow
def test_a_family_is_written_as_files_that_verify_and_solve_read(bench: Bench, tmp_path: Path) -> None:
    found, _ = bench("family", "--gpus", "8", "--services", "4", "--seeds", "2", "--out", "files")
    assert [one["file"] for one in found["rows"]] == ["files/family-a-8-4-0.json", "files/family-a-8-4-1.json"]
    kinds = {entry["kind"] for entry in json.loads((tmp_path / "files/family-a-8-4-0.json").read_text())}
    assert kinds == {"GpuType", "Node", "Model", "Profile", "Service", "Policy"}


def test_a_missing_data_folder_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "place", "--data", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("growth", "--family", "Z"), "G95, "),
        (("growth", "--family", "G"), "G30, "),  # two loads, and one is measured
        (("growth", "--most", "99"), "a whole number from 100 to"),
        (("replan", "--family", "a"), "A, "),
        (("replan", "--seed", "-1"), "a whole number from 0 to"),
        (("replan", "--changed", "nan"), "a share over 0"),
        (("hetsev", "--fleet", "0"), "a whole number from 1 to"),
        (("sharing", "--seed", "x"), "a whole number from 0 to"),
        (("solve", "--family", "G30"), "G, "),
        (("solve", "--gpus", "1" * 5000), "a whole number from 1 to"),
        (("solve", "--seconds", "inf"), "a number of at least 0"),
        (("api", "--agents", "100001"), "a whole number from 1 to 100000"),
        (("api", "--rate", "0"), "a number over 0"),
    ],
)
def test_a_size_that_cannot_be_measured_is_refused_with_what_can(
    words: tuple[str, ...], allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert allowed in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_reported_before_any_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    for words in (
        ("family", "--out", f"{file}/in"),
        ("solve", "--plot", f"{file}/a.png"),
        ("solve", "--plot", "a.nope"),
    ):
        assert main(["bench", *words]) == 2
        printed = capsys.readouterr().err
        assert words[1] in printed and "seed 0" not in printed


def test_every_family_may_be_named_where_one_is_measured() -> None:
    parser = argparse.ArgumentParser()
    add_family_argument(parser)
    assert [parser.parse_args(["--family", name]).family for name in FAMILIES] == list(FAMILIES)


@pytest.mark.slow
def test_bench_fallback_adds_what_risen_rates_lack_and_moves_nothing(bench: Bench) -> None:
    size = ("--gpus", "8", "--services", "4", "--work", "1", "--rounds", "2", "--changed", "0.5")
    found, progress = bench("fallback", *size)
    assert [one["round"] for one in found["rows"]] == [1, 2]
    assert (found["moved"], found["violations"]) == (0, 0)
    for one in found["rows"]:
        assert 0 <= one["left"] <= one["lacked"]
    assert "ready after" in progress
