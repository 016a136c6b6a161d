"""`gpuwright profile neighbours` and `predict`: what measurements and Profiles say of what was not measured."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
import yaml

from app.manifests.served import DemandSpec
from tests.app.campaigns.test_reports import PERF_ANALYZER
from tests.cli.conftest import Run
from tests.support.server import RunningServer

PAIRS = """\
gpuType,model,batch,smPercent,neighbours,latencyMs,samples
v100-16gb,a/x,8,50,,20,30
v100-16gb,b/x,8,50,,10,30
v100-16gb,c/x,8,50,,40,30
v100-16gb,a/x,8,50,b/x:50,22,30
v100-16gb,a/x,8,50,c/x:50,24,30
v100-16gb,b/x,8,50,a/x:50,11,30
v100-16gb,b/x,8,50,c/x:50,14,30
v100-16gb,c/x,8,50,a/x:50,42,30
v100-16gb,c/x,8,50,b/x:50,44,30
v100-16gb,a/x,8,50,b/x:50+c/x:50,26,30
"""


@pytest.mark.slow
def test_pairs_become_pressures_and_sensitivities_with_their_spread(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(PAIRS)
    done = run("profile", "neighbours", str(path), "--json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["gpuTypes"]
    assert found["gpuType"] == "v100-16gb"
    assert found["measurements"] == 7
    # c has a pressure of 1, b half of it, a a quarter; b is twice as sensitive as a.
    assert found["profiles"]["c/x"]["pressure"]["50"]["mean"] == 1
    assert found["profiles"]["b/x"]["pressure"]["50"]["mean"] == pytest.approx(0.5, abs=0.01)
    assert found["profiles"]["a/x"]["pressure"]["50"]["mean"] == pytest.approx(0.25, abs=0.01)
    assert found["profiles"]["a/x"]["sensitivity"]["mean"] == pytest.approx(0.2, abs=0.01)
    assert found["profiles"]["b/x"]["sensitivity"]["mean"] == pytest.approx(0.4, abs=0.01)
    spread = found["profiles"]["b/x"]["sensitivity"]
    assert spread["n"] == 60
    assert spread["q90"] >= spread["mean"]
    assert "7 measurements beside neighbours" in run("profile", "neighbours", str(path)).err


@pytest.mark.slow
def test_two_factors_are_written_as_pairs_that_a_profile_may_have(run: Run, tmp_path: Path) -> None:
    rows = ["model,smPercent,neighbours,latencyMs"]
    for mine, other in product(range(6), range(6)):
        pressures = {20: (0.4, 0.8), 50: (1.0, 1.0)}
        for percent, (compute, bandwidth) in pressures.items():
            slowed = (5 - mine) / 8 * other / 5 * compute + mine / 6 * (5 - other) / 5 * bandwidth
            rows.append(f"m{mine}/x,50,m{other}/x:{percent},{10 * (1 + slowed):.4f}")
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join([*rows, *(f"m{mine}/x,50,,10" for mine in range(6))]))
    done = run("profile", "neighbours", str(path), "--json")
    assert done.code == 0, done.err
    (found,) = json.loads(done.out)["gpuTypes"]
    for fields in found["profiles"].values():
        DemandSpec.model_validate(fields)
        assert fields["pressure"].keys() == fields["sensitivity"].keys() == {"compute", "bandwidth"}
    most_compute, least_compute = (found["profiles"][f"m{number}/x"]["pressure"] for number in (5, 0))
    assert most_compute["compute"]["50"]["mean"] == 1
    assert most_compute["bandwidth"]["50"]["mean"] == least_compute["compute"]["50"]["mean"] == 0
    assert least_compute["bandwidth"]["20"]["mean"] == pytest.approx(0.8, abs=0.02)
    assert "(two linear factors) miss a left-out mix by" in run("profile", "neighbours", str(path)).err


@pytest.mark.slow
def test_a_gpu_at_its_power_limit_is_compared_with_the_same_clock(run: Run, tmp_path: Path) -> None:
    rows = PAIRS.splitlines()
    slower = [row.replace("v100-16gb", "v100-16gb,1530") for row in rows[1:4]]
    for row in rows[1:]:
        *head, latency, samples = row.split(",")
        slower.append(",".join([head[0], "1020", *head[1:], f"{1.5 * float(latency):g}", samples]))
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join([rows[0].replace("gpuType,", "gpuType,clockMhz,"), *slower]))
    done = run("profile", "neighbours", str(path), "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)["gpuTypes"][0]["profiles"]
    assert found["b/x"]["sensitivity"]["mean"] == pytest.approx(0.4, abs=0.01)
    path.write_text("\n".join(row for row in path.read_text().splitlines() if ",1020,b/x,8,50,," not in row))
    assert (
        "b/x was not measured alone at batch 8 and 50 % on v100-16gb at 1020 MHz"
        in run("profile", "neighbours", str(path)).err
    )


@pytest.mark.slow
def test_a_file_of_a_spreadsheet_begins_with_a_mark(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("\ufeff" + PAIRS.replace(",", ", "))
    assert "7 measurements beside neighbours" in run("profile", "neighbours", str(path)).err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model,smPercent\n", "lacks the column neighbours"),
        (PAIRS.replace("v100-16gb,b/x,8,50,,10,30\n", ""), "b/x was not measured alone at batch 8 and 50 %"),
        (PAIRS.replace("c/x:50,24", "c/x,24"), "line 6: neighbour 'c/x' has no SM%"),
        (PAIRS.replace("c/x:50,24", "c/x:500,24"), "line 6: SM% 500 is outside 1..100"),
        (PAIRS.replace(",24,", ",fast,"), "line 6: latencyMs 'fast' is not a number; allowed: 1e-06..1e+09"),
        (PAIRS.replace(",24,", ",nan,"), "line 6: latencyMs 'nan' is not a number"),
        (PAIRS.replace(",24,", ",2_4,"), "line 6: latencyMs '2_4' is not a number"),
        (PAIRS.replace(",24,", ",-24,"), "line 6: latencyMs -24 is outside 1e-06..1e+09"),
        (PAIRS.replace(",24,", ",2,4,"), "line 6: it has another number of fields than the header"),
        (PAIRS.replace(",24,30", ",24"), "line 6: it has another number of fields than the header"),
        (PAIRS.replace(",24,", ',"24,'), "line 6: unexpected end of data; fields have commas between them"),
        (PAIRS.replace("a/x,8,50,,20", ",8,50,,20"), "line 2: it names no model"),
        ("", "lacks the column model"),
        ("".join(PAIRS.splitlines(keepends=True)[:4]), "no line has neighbours"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(run: Run, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    done = run("profile", "neighbours", str(path))
    assert done.code == 2
    assert said in done.err
    assert done.out == ""


@pytest.mark.slow
def test_where_every_pair_has_a_profile_nothing_is_predicted(run: Run, tmp_path: Path) -> None:
    fleet = yaml.safe_load_all(Path("examples/fleet.yaml").read_text())
    kept = [each for each in fleet if each["kind"] in ("GpuType", "Model", "Profile")]
    measured = {each["spec"]["gpuType"] for each in kept if each["kind"] == "Profile"}
    only = sorted(measured)[0]
    path = tmp_path / "one.json"
    path.write_text(json.dumps([
        each for each in kept
        if each["kind"] == "Model" or only in (each["metadata"]["name"], each["spec"].get("gpuType"))
    ]))  # fmt: skip
    done = run("profile", "predict", str(path), "--apply")
    assert (done.code, done.out) == (0, ""), done.err
    assert "there is nothing to predict" in done.err


@pytest.mark.slow
def test_profiles_of_other_gpu_types_are_predicted_as_manifests(run: Run, tmp_path: Path) -> None:
    done = run("profile", "predict", "examples/fleet.yaml", "--json")
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["profiles"]
    assert answer["left_out_error"] > 0
    for profile in answer["profiles"]:
        for row in profile["spec"]["latencyMs"].values():
            points = [row[percent]["mean"] for percent in sorted(row, key=int)]
            assert points == sorted(points, reverse=True)
    path = tmp_path / "predicted.json"
    path.write_text(json.dumps(answer["profiles"]))
    assert run("validate", "-f", "examples/fleet.yaml", "-f", str(path)).code == 0


@pytest.mark.slow
def test_predictions_teach_nothing_and_are_made_anew_until_one_is_declared(run: Run, tmp_path: Path) -> None:
    first = json.loads(run("profile", "predict", "examples/fleet.yaml", "--json").out)
    stored = first["profiles"]
    stored[0]["metadata"] = {"name": "mine", "labels": {"by": "us"}}
    for row in stored[0]["spec"]["latencyMs"].values():
        for value in row.values():
            value |= {"mean": 1000.0, "q90": 2000.0}
    stored[0]["spec"]["sensitivity"] = 0.123
    path = tmp_path / "predicted.json"
    path.write_text(json.dumps(stored))
    again = json.loads(run("profile", "predict", "examples/fleet.yaml", str(path), "--json").out)
    assert (again["pairs"], again["left_out_error"]) == (first["pairs"], first["left_out_error"])
    renewed = next(made for made in again["profiles"] if made["metadata"]["name"] == "mine")
    assert renewed["metadata"]["labels"] == {"by": "us"}
    assert renewed["spec"]["sensitivity"] == 0.123, "only latencies are predicted again"
    means = [value["mean"] for row in renewed["spec"]["latencyMs"].values() for value in row.values()]
    assert max(means) < 1000
    next(iter(stored[0]["spec"]["latencyMs"].values()))["100"] = 999.0
    path.write_text(json.dumps(stored))
    declared = json.loads(run("profile", "predict", "examples/fleet.yaml", str(path), "--json").out)
    assert "mine" not in {made["metadata"]["name"] for made in declared["profiles"]}
    assert declared["pairs"] == first["pairs"] + 1


@pytest.mark.slow
def test_what_is_measured_later_changes_predictions_that_are_declared(
    run: Run, server: RunningServer, tmp_path: Path
) -> None:
    world = [
        document
        for document in yaml.safe_load_all(Path("examples/fleet.yaml").read_text())
        if document["kind"] in ("GpuType", "Model", "Profile")
    ]
    assert server.request("POST", "/api/v1/apply", world).status == 200
    done = run("profile", "predict", "examples/fleet.yaml", "--apply", "--as-draft")
    assert "predicted again" not in done.err, "they are new"
    before = {
        item["metadata"]["name"]: item["spec"] for item in server.request("GET", "/api/v1/profiles").json["items"]
    }
    (tmp_path / "b1.csv").write_text(PERF_ANALYZER)
    about = ("--model", "clip-archive/fp16", "--gpu-type", "l4-24gb", "--batches", "1")
    done = run("profile", "import", str(tmp_path / "b1.csv"), *about, "--apply")
    assert done.code == 0, done.err
    assert "profile clip-archive-fp16-l4-24gb is applied" in done.err
    assert "predicted again from 28 Profiles, and applied: clip-archive-fp16-a100-sxm4-80gb, " in done.err
    after = _profiles(server)
    changed = {name for name in before if before[name] != after[name]}
    assert {"clip-archive-fp16-l4-24gb", "clip-archive-fp16-a100-sxm4-80gb"} <= changed
    assert changed.isdisjoint(document["metadata"]["name"] for document in world), "what was measured stays"


def _profiles(server: RunningServer) -> dict[str, object]:
    items = server.request("GET", "/api/v1/profiles").json["items"]
    return {item["metadata"]["name"]: item["spec"] for item in items}


def test_too_few_profiles_teach_nothing(run: Run, tmp_path: Path) -> None:
    done = run("profile", "predict", "lab/testbeds/morak.yaml")
    assert done.code == 2
    assert "too few Profiles to learn from" in done.err
    assert "name the files to read" in run("profile", "predict").err
