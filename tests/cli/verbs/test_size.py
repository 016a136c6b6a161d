"""`size` from files alone: the rental against judge and simulation, what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from app.control.formulate.problem import build_problem
from app.manifests.model import Kind
from cli.main import main
from cli.pools import spell_pools
from cli.verbs import size
from simulation.world import read_documents, read_files
from solvers.planning.judge import judge
from solvers.planning.solve import SolveBudget, find
from tests.cli.offline import process
from tests.simulation.sizing.worlds import HEADER, ROWS, curves, documents, fleet_of
from tests.simulation.worlds import document

PRICES = {"small": 1.0, "big": 2.5}
PROMISED = 0.98


class Answered(NamedTuple):
    """What the verb printed and wrote."""

    figures: dict[str, Any]
    progress: str
    nodes: Path


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Answered:
    folder = tmp_path_factory.mktemp("size")
    (folder / "fleet.json").write_text(json.dumps(documents()))
    (folder / "rates.csv").write_text(HEADER + ROWS)
    words = ["--rates", str(folder / "rates.csv"), "--work", "1", "--json", "-o", str(folder / "rented.yaml")]
    done = process(folder, "size", "-f", str(folder / "fleet.json"), *words)
    assert done.code == 0, done.err
    return Answered(json.loads(done.out), done.err, folder / "rented.yaml")


def unserved_at(counts: dict[str, int], second: float) -> tuple[bool, float]:
    """Returns whether a right plan of these GPUs leaves nothing unserved at a second, and the bound of any plan."""
    rates = {name: curve.at(second) for name, curve in curves().items()}
    problem = build_problem(fleet_of(counts, rates))
    plan = find(problem, SolveBudget(None, 40), alone=True).plan
    assert plan.certificate
    return bool(plan.unserved) or not judge(problem, plan).is_right, plan.certificate.bound or 0.0


@pytest.mark.slow
def test_the_answer_was_confirmed_and_costs_what_its_gpus_cost(answered: Answered) -> None:
    found = answered.figures
    assert found["confirmedBySimulation"] is True
    assert found["costPerHour"] == sum(PRICES[name] * count for name, count in found["gpus"].items())
    assert found["boundPerHour"] <= found["costPerHour"]
    assert set(found["attainment"]) == {"shop/a", "shop/b"}
    assert min(shares["share"] for shares in found["attainment"].values()) >= PROMISED
    (kept,) = [trial for trial in found["tried"] if trial["gpus"] == found["gpus"]]
    assert (kept["kept"], kept["shedRequests"], kept["why"]) == (True, 0, "")
    assert kept["requests"] > 100_000
    assert "simulation 1 of at most 20: " in answered.progress


@pytest.mark.slow
def test_the_rental_carries_every_moment_by_the_judge(answered: Answered) -> None:
    for second in (0, 60, 120, 180):
        assert unserved_at(answered.figures["gpus"], second)[0] is False, second


@pytest.mark.slow
def test_one_gpu_less_of_each_type_is_refused_by_judge_or_simulation(answered: Answered) -> None:
    found = answered.figures
    assert found["oneLessFails"] is True
    for name, count in found["gpus"].items():
        fewer = {kind: gpus for kind, gpus in {**found["gpus"], name: count - 1}.items() if gpus}
        (trial,) = [trial for trial in found["tried"] if trial["gpus"] == fewer]
        assert trial["kept"] is False
        assert trial["why"]
        if trial["simulated"]:
            assert min(shares["share"] for shares in trial["attainment"].values()) < PROMISED or trial["shedRequests"]
        else:
            price = sum(PRICES[kind] * gpus for kind, gpus in fewer.items())
            judged = [unserved_at(fewer, at) for at in (0, 60, 180)]
            assert any(is_short and bound > price for is_short, bound in judged)


@pytest.mark.slow
def test_the_rented_nodes_are_written_as_manifests_that_complete_the_fleet(answered: Answered, tmp_path: Path) -> None:
    (tmp_path / "fleet.json").write_text(json.dumps(documents()))
    fleet = read_files(tmp_path / "fleet.json", answered.nodes)
    rented = [str(node.spec["gpuType"]) for node in fleet.of(Kind.NODE)]
    assert {name: rented.count(name) for name in set(rented)} == answered.figures["gpus"]
    assert fleet.manifests.keys() > read_documents(documents()).manifests.keys()


@pytest.mark.slow
def test_the_table_for_people_has_services_what_was_tried_and_the_answer(
    answered: Answered, capsys: pytest.CaptureFixture[str]
) -> None:
    size._show(answered.figures, "CHF")
    shown = capsys.readouterr().out
    assert "SERVICE" in shown
    assert re.search("TRIED +AN HOUR CHF +TURNED AWAY", shown)
    assert shown.splitlines()[-1].startswith(
        "rent 1 big and 1 small at 3.5 CHF an hour: confirmed by simulation; one GPU less"
    )


@pytest.mark.slow
def test_an_answer_that_no_simulation_confirmed_says_so(answered: Answered, capsys: pytest.CaptureFixture[str]) -> None:
    size._show({**answered.figures, "confirmedBySimulation": False}, "CHF")
    assert "no rental was confirmed; the nearest is 1 big and 1 small" in capsys.readouterr().out
    size._show({**answered.figures, "confirmedBySimulation": False, "moreHelps": False}, "CHF")
    assert capsys.readouterr().out.endswith("more GPUs do not help\n")


@pytest.mark.slow
def test_where_declared_nodes_carry_the_load_nothing_is_rented(
    answered: Answered, capsys: pytest.CaptureFixture[str]
) -> None:
    size._show({**answered.figures, "gpus": {}, "costPerHour": 0.0, "boundPerHour": 0.0}, "CHF")
    assert capsys.readouterr().out.endswith(
        "rent nothing: the declared Nodes carry the load, confirmed by simulation\n"
    )


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "fleet.json").write_text(json.dumps(documents()))
    (tmp_path / "rates.csv").write_text(HEADER + ROWS)
    return str(tmp_path / "fleet.json"), str(tmp_path / "rates.csv")


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["size", *words]) == 2
    return capsys.readouterr().err


def test_what_cannot_be_sized_is_refused_before_anything_starts(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, rates = files
    assert "--rates" in refused(capsys, "-f", fleet)
    lost = tmp_path / "lost.csv"
    lost.write_text(HEADER + "0,shop/lost,3\n")
    assert "service 'shop/lost' is not declared in the manifests" in refused(capsys, "-f", fleet, "--rates", str(lost))
    lost.write_text(HEADER + "1e8,shop/a,3\n")
    assert "ends after 27777.8 hours: at most 744" in refused(capsys, "-f", fleet, "--rates", str(lost))
    Path(fleet).write_text(json.dumps(documents(small=0, big=0)))
    nothing = refused(capsys, "-f", fleet, "--rates", rates)
    assert "no GPU may be rented: give at least one GpuType spec.rentable" in nothing
    pool = {"gpuType": "big", "gpusPerNode": 2, "cpuCores": 8, "memoryGib": 64, "max": 3, "hook": "cloud"}
    Path(fleet).write_text(json.dumps([*documents(), document("Pool", "burst", pool)]))
    pools = refused(capsys, "-f", fleet, "--rates", rates)
    assert "Pool burst: size rents GPUs one by one, and no nodes of pools" in pools
    assert "state rentable 6 of GpuType big in their place" in pools
    assert "a whole number from 1 to 1000" in refused(capsys, "-f", fleet, "--rates", rates, "--simulations", "0")
    nowhere = refused(capsys, "-f", fleet, "--rates", rates, "-o", f"{tmp_path}/none/rented.yaml")
    assert f"cannot write {tmp_path}/none/rented.yaml: there is no folder {tmp_path}/none" in nowhere


@pytest.mark.slow
def test_a_load_that_all_gpus_do_not_carry_names_the_service_and_what_is_missing(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates = tmp_path / "much.csv"
    rates.write_text(HEADER + "0,shop/a,20\n0,shop/b,20\n60,shop/b,9000\n")
    written = tmp_path / "rented.yaml"
    assert main(["size", "-f", files[0], "--rates", str(rates), "--work", "1", "--json", "-o", str(written)]) == 3
    output = capsys.readouterr()
    assert (f"{written} is not written: nothing is rented" in output.err, written.exists()) == (True, False)
    found = json.loads(output.out)
    assert (found["gpus"], found["costPerHour"], found["confirmedBySimulation"]) == ({}, None, False)
    entry = next(entry for entry in found["unserved"] if entry["service"] == "shop/b")
    assert 7000 < entry["ratePerSecond"] < 9000
    assert entry["reason"]
    size._show(found, "CHF")
    assert "unserved with all that may be rented: shop/b: " in capsys.readouterr().out


NETWORK = {"kind": "network", "gbitPerSecond": 200, "costPerHour": 0}


def write_language_models(folder: Path, *services: str, gpus: int = 64) -> Path:
    """Writes the example with these of its services, and so many GPUs of each type to rent."""
    example = Path(__file__).parents[3] / "examples" / "language-models.yaml"
    kept = []
    for entry in yaml.safe_load(example.read_text()):
        if entry["kind"] == "GpuType":
            entry["spec"]["rentable"] = gpus
        if entry["kind"] != "Service" or entry["metadata"]["name"] in services:
            kept.append(entry)
    (folder / "models.json").write_text(json.dumps(kept))
    return folder / "models.json"


@pytest.mark.slow
def test_language_models_get_servers_of_their_own_and_two_pools_beside_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rates.csv").write_text(HEADER + "0,shop/summaries,20\n600,shop/summaries,90\n")
    fleet, written = write_language_models(tmp_path, "assistant", "summaries"), tmp_path / "rented.yaml"
    words = ["size", "-f", str(fleet), "--rates", str(tmp_path / "rates.csv")]
    assert main([*words, "--json", "-o", str(written)]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["service"]: row for row in found["languageModels"]}
    assert {name: row["ratePerSecond"] for name, row in rows.items()} == {"shop/assistant": 2, "shop/summaries": 90}
    assert all(row["apart"]["sentMs"] > 0 for row in rows.values())
    assert all(row["apart"]["link"] == NETWORK for row in rows.values())
    assert found["total"]["costPerHour"] == sum(row["together"]["costPerHour"] for row in rows.values())
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "PREFILL APART" in shown
    assert "an hour in all" in shown
    problem = build_problem(read_files(fleet, written))
    rented = {name: node for name, node in problem.nodes.items() if name.startswith("rent-")}
    assert sum(node.gpu_count for node in rented.values()) == sum(found["total"]["gpus"].values())
    services = {
        name: replace(service, rate_per_second=rows[name]["ratePerSecond"])
        for name, service in problem.services.items()
    }
    on_rented = replace(problem, nodes=rented, services=services)
    plan = find(on_rented, SolveBudget(None, 2), alone=True).plan
    assert plan.unserved == ()
    assert judge(on_rented, plan).is_right


@pytest.mark.slow
def test_other_services_are_sized_by_what_language_models_leave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rates.csv").write_text(HEADER + "0,shop/photos,300\n60,shop/photos,300\n0,shop/summaries,9\n")
    words = ["--rates", str(tmp_path / "rates.csv"), "--work", "1", "--json"]
    assert main(["size", "-f", str(write_language_models(tmp_path, "summaries", "photos")), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    models = sum(row["together"]["costPerHour"] for row in found["languageModels"])
    assert found["total"]["costPerHour"] == pytest.approx(models + found["costPerHour"])
    assert set(found["attainment"]) == {"shop/photos"}


@pytest.mark.slow
def test_a_language_model_that_nothing_to_rent_serves_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rates.csv").write_text(HEADER + "0,shop/assistant,90\n")
    fleet = write_language_models(tmp_path, "assistant", gpus=4)
    assert main(["size", "-f", str(fleet), "--rates", str(tmp_path / "rates.csv"), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    size._show(found, "CHF")
    assert capsys.readouterr().out.endswith("rent nothing at 0 CHF an hour in all, without shop/assistant\n\n")
    (row,) = found["languageModels"]
    assert (row["together"], row["apart"], row["savingPerHour"]) == (None, None, 0)


@pytest.mark.slow
def test_the_verb_loads_nothing_large_before_it_knows_what_is_asked(tmp_path: Path) -> None:
    helped = process(tmp_path, "size", "--help")
    assert helped.code == 0
    assert "gpuwright size -f fleet.yaml --rates yesterday.csv --json" in helped.out
    assert helped.peak_mb < 60


def test_two_pools_that_save_are_told_with_their_link_and_what_it_costs() -> None:
    apart = {
        "prefill": [{"count": 3, "gpus": 1, "gpuType": "a"}], "decode": [{"count": 6, "gpus": 2, "gpuType": "a"}],
        "gpus": {"a": 15}, "cells": 3, "sentMs": 4.7, "link": {"kind": "pcie", "gbitPerSecond": 252, "costPerHour": 0},
    }  # fmt: skip
    assert spell_pools(apart) == (
        "run prefill on 3 x 1 a and decode on 6 x 2 a; keys and values go by pcie within 3 x 5 GPUs at 252 Gbit/s of"
        " each GPU: 4.7 ms a prompt"
    )
    paid = apart | {"cells": None, "link": {"kind": "network", "gbitPerSecond": 50, "costPerHour": 12.5}}
    assert spell_pools(paid).endswith("by network at 50 Gbit/s of each GPU: 4.7 ms a prompt and 12.5 an hour")
