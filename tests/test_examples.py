"""Examples and testbeds are valid, can be served, apply, and are what their first lines say."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agents.templates import Filled
from agents.templates.filling import Builtin, fill
from agents.templates.reading import read as read_templates
from app.manifests.model import Kind, Manifest
from app.manifests.reader import read
from app.manifests.validate import validate
from cli.main import main
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "examples"
PATHS = {path.name: path for folder in (FOLDER, ROOT / "lab" / "testbeds") for path in folder.glob("*.yaml")}
FILES = sorted(PATHS)
TESTBEDS = {
    "hetsev.yaml": ({"v100-sxm2-32gb": 8, "t4-16gb": 8}, [400, 600, 900, 1200]),
    "testbed.yaml": ({"v100-sxm2-32gb": 4, "l4-24gb": 4, "t4-16gb": 4}, [400, 600, 900, 1200]),
    "mudi.yaml": ({"a100-sxm4-40gb": 12}, [150, 120, 100, 330, 110, 2200]),
    "inss.yaml": ({"rtx-2060-super-8gb": 2, "rtx-2060-6gb": 2}, [25, 80, 150, 50, 60, 40, 60, 200]),
    "morak.yaml": ({"rtx-2080-ti-11gb": 4}, [100] * 4),
    "oltunes.yaml": (
        {"a100-pcie-40gb": 5, "a30-24gb": 2, "rtx-4090-24gb": 1},
        [10, 25, 45, 80, 170, 150, 200],
    ),
}
SEVERAL = "several-gpus.yaml"
EXEC_WITHIN_SLO = 2.2  # below 2 x exec a batch server has next to no capacity


def test_what_the_quickstart_runs_starts_from_the_shipped_templates(tmp_path: Path) -> None:
    templates = read_templates(models=tmp_path)
    models = of_kind("quickstart.yaml", Kind.MODEL)
    runtimes = [variant["runtime"] for model in models for variant in model.spec["variants"]]
    assert runtimes
    for runtime in runtimes:
        filled = fill(templates[runtime["template"]], runtime["args"], Builtin("copy", "GPU-0", port=8000))
        assert isinstance(filled, Filled), filled


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    url = postgres.create()
    with running_server(url) as running:
        yield running
    postgres.drop(url)


@cache
def manifests_of(file: str) -> tuple[Manifest, ...]:
    manifests, faults = validate(read(PATHS[file].read_bytes(), "yaml", source=file))
    assert faults == []
    return tuple(manifests)


def of_kind(file: str, kind: Kind) -> list[Any]:
    return [manifest for manifest in manifests_of(file) if manifest.kind == kind]


def of_latency(file: str, kind: Kind) -> list[Any]:
    """Those that are not of language models."""
    of_tokens = ("tokens", "iteration")
    return [each for each in of_kind(file, kind) if not any(field in each.spec for field in of_tokens)]


def gpus(file: str) -> Counter[str]:
    counted: Counter[str] = Counter()
    for node in of_kind(file, Kind.NODE):
        counted[node.spec["gpuType"]] += node.spec["gpus"]
    for pool in of_kind(file, Kind.POOL):
        counted[pool.spec["gpuType"]] += pool.spec["max"] * pool.spec["gpusPerNode"]
    return counted


def profiles_of(file: str, service: Manifest) -> list[Any]:
    """The profiles a service may run by."""
    spec: Any = service.spec
    model = next(each for each in of_kind(file, Kind.MODEL) if each.name == spec["model"])
    variants = {
        variant["name"]
        for variant in model.spec["variants"]
        if variant["accuracy"] >= spec.get("minAccuracy", 0)
        and variant["name"] in spec.get("variants", [variant["name"]])
    }
    return [
        profile
        for profile in of_kind(file, Kind.PROFILE)
        if profile.spec["model"] == spec["model"]
        and profile.spec["variant"] in variants
        and profile.spec["gpuType"] in spec.get("gpuTypes", gpus(file))
    ]


def test_there_is_a_quickstart_the_fleet_of_up_and_a_file_a_paper() -> None:
    others = {"quickstart.yaml", "fleet.yaml", "pools.yaml", "spot.yaml", "two-gpus.yaml", SEVERAL}
    others |= {"llm.yaml", "language-models.yaml", "rag.yaml", "adapters.yaml"}
    assert set(FILES) == {*others, *TESTBEDS}


def test_vllm_on_several_gpus_starts_as_it_is_planned(tmp_path: Path) -> None:
    templates = read_templates(models=tmp_path)
    types = {gpu_type.name: gpu_type.spec for gpu_type in of_kind(SEVERAL, Kind.GPU_TYPE)}
    profiles = {profile.spec["model"]: profile.spec for profile in of_kind(SEVERAL, Kind.PROFILE)}
    for model in of_kind(SEVERAL, Kind.MODEL):
        (variant,) = model.spec["variants"]
        args, profile = variant["runtime"]["args"], profiles[model.name]
        (tmp_path / args["model"]).mkdir()
        made = fill(templates[variant["runtime"]["template"]], args, Builtin("copy", "GPU-0,GPU-1", 8000, gpu_count=2))
        assert isinstance(made, Filled), made
        assert args["maxLength"] == variant["llm"]["contextTokens"]
        assert args["tokensPerIteration"] == profile["tokensPerIteration"]
        assert profile["overheadGib"] > (1 - args["memoryShare"]) * types[profile["gpuType"]]["memoryGib"]


@pytest.mark.slow
def test_the_example_of_several_gpus_is_planned_on_several(
    capsys: pytest.CaptureFixture[str], cli_config: Path
) -> None:
    file = str(FOLDER / SEVERAL)
    assert main(["validate", "-f", file]) == 0
    capsys.readouterr()
    assert main(["solve", "-f", file, "--json", "--seconds", "0"]) == 0
    plan = json.loads(capsys.readouterr().out)
    instances = {instance["service"]: instance for instance in plan["instances"]}
    assert len(instances["shop/assistant"]["gpus"]) == 4
    assert "gpu" in instances["shop/drafts"]
    assert plan["unserved"] == plan["unplaced"] == []


@pytest.mark.parametrize("file", FILES)
def test_an_example_is_valid_and_refers_to_nothing_outside_itself(file: str) -> None:
    types = {manifest.name for manifest in of_kind(file, Kind.GPU_TYPE)}
    assert set(gpus(file)) == types
    models = {model.name: {v["name"] for v in model.spec["variants"]} for model in of_kind(file, Kind.MODEL)}
    for profile in of_kind(file, Kind.PROFILE):
        assert profile.spec["variant"] in models[profile.spec["model"]]
        assert profile.spec["gpuType"] in types
    for job in of_kind(file, Kind.JOB):
        assert set(job.spec["profiles"]) <= types


@pytest.mark.parametrize("file", FILES)
def test_an_example_says_at_its_top_what_was_derived(file: str) -> None:
    head = PATHS[file].read_text().split("apiVersion")[0]
    assert "derived" in head
    if file in TESTBEDS:
        assert "Table" in head or "Section" in head


@pytest.mark.parametrize("file", FILES)
def test_every_service_has_a_shape_that_keeps_its_slo_with_room(file: str) -> None:
    for service in of_latency(file, Kind.SERVICE):
        fastest = min(
            latency_ms
            for profile in profiles_of(file, service)
            for by_share in profile.spec["latencyMs"].values()
            for latency_ms in by_share.values()
        )
        assert EXEC_WITHIN_SLO * fastest <= service.spec["slo"]["latencyMs"], service.name


@pytest.mark.parametrize("file", FILES)
def test_every_profile_fits_its_gpu_and_a_full_gpu_keeps_its_power_limit(file: str) -> None:
    types = {manifest.name: manifest.spec for manifest in of_kind(file, Kind.GPU_TYPE)}
    capped = file == "morak.yaml"  # there the cap binds: that is its point
    for profile in of_latency(file, Kind.PROFILE):
        gpu = types[profile.spec["gpuType"]]
        assert max(profile.spec["memoryGib"].values()) <= gpu["memoryGib"], profile.name
        watts = max(profile.spec.get("powerW", {"100": 0}).values())
        assert capped or gpu["idleW"] + watts <= gpu["maxW"], profile.name


@pytest.mark.parametrize("file", [file for file in FILES if "kind: Service" in PATHS[file].read_text()])
def test_the_weights_of_a_language_model_fit_and_an_iteration_keeps_the_pace(file: str) -> None:
    sizes = {gpu_type.name: gpu_type.spec["memoryGib"] for gpu_type in of_kind(file, Kind.GPU_TYPE)}
    for service in of_kind(file, Kind.SERVICE):
        if "tokens" not in service.spec:
            continue
        model = next(each for each in of_kind(file, Kind.MODEL) if each.name == service.spec["model"])
        for profile in profiles_of(file, service):
            llm = next(each["llm"] for each in model.spec["variants"] if each["name"] == profile.spec["variant"])
            for degree, cost in profile.spec["iteration"].items():
                each_gib = sizes[profile.spec["gpuType"]] - profile.spec.get("overheadGib", 0)
                assert llm["weightsGib"] < int(degree) * each_gib
                assert cost["baseMs"] + cost.get("weightsMs", 0) < service.spec["slo"]["tpotMs"]


@pytest.mark.parametrize("file", FILES)
def test_the_load_of_an_example_fits_three_quarters_of_its_fleet(file: str) -> None:
    """One service after the other takes what is free of the GPU type that serves it best, then of the next."""
    free = {gpu_type: 0.75 * count for gpu_type, count in gpus(file).items()}
    for service in of_latency(file, Kind.SERVICE):
        unserved = 1.0
        for needed_gpus, gpu_type in sorted(
            (
                _gpus_for(profile.spec["latencyMs"], service.spec["slo"]["latencyMs"], service.spec["ratePerSecond"]),
                profile.spec["gpuType"],
            )
            for profile in profiles_of(file, service)
        ):
            served = min(unserved, free[gpu_type] / needed_gpus)
            free[gpu_type] -= served * needed_gpus
            unserved -= served
        assert unserved < 1e-9, service.name


def _gpus_for(latency_ms: dict[str, dict[str, float]], slo_ms: float, rate_per_second: float) -> float:
    """GPUs that carry the rate at utilization 0.8; infinitely many where the type cannot keep the SLO."""
    shares = [
        float(share) / 100 * rate_per_second * exec_ms / 1000 / float(batch) / 0.8
        for batch, by_share in latency_ms.items()
        for share, exec_ms in by_share.items()
        if EXEC_WITHIN_SLO * exec_ms <= slo_ms
    ]
    return min(shares, default=math.inf)


@pytest.mark.parametrize("file", sorted(TESTBEDS))
def test_a_testbed_has_the_gpus_and_slos_of_its_paper(file: str) -> None:
    fleet, slos_ms = TESTBEDS[file]
    assert gpus(file) == fleet
    assert sorted(service.spec["slo"]["latencyMs"] for service in of_kind(file, Kind.SERVICE)) == sorted(slos_ms)


def test_the_quickstart_has_16_gpus_of_3_types_12_services_and_2_jobs_of_2_tenants() -> None:
    file = "quickstart.yaml"
    assert len(gpus(file)) == 3
    assert gpus(file).total() == 16
    assert len(of_kind(file, Kind.SERVICE)) == 12
    assert len(of_kind(file, Kind.JOB)) == 2
    assert len(of_kind(file, Kind.POLICY)) == 1
    tenants = {tenant.name for tenant in of_kind(file, Kind.TENANT)}
    assert {each.tenant for each in of_kind(file, Kind.SERVICE) + of_kind(file, Kind.JOB)} == tenants
    assert len(tenants) == 2


@pytest.mark.parametrize("file", FILES)
def test_the_server_accepts_an_example_without_a_warning(
    file: str,
    server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cli_config: Path,
) -> None:
    monkeypatch.setenv("GPUWRIGHT_SERVER", server.url)
    monkeypatch.setenv("GPUWRIGHT_TOKEN", server.admin_token)
    assert main(["apply", "-f", str(PATHS[file]), "--dry-run"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == len(manifests_of(file))
    assert printed.err == ""


@pytest.mark.slow
def test_applying_the_quickstart_twice_changes_nothing(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cli_config: Path
) -> None:
    with running_server(database_url) as server:
        monkeypatch.setenv("GPUWRIGHT_SERVER", server.url)
        monkeypatch.setenv("GPUWRIGHT_TOKEN", server.admin_token)
        words = ["apply", "-f", str(FOLDER / "quickstart.yaml")]
        assert main(words) == 0
        assert capsys.readouterr().out.count(" created") == len(manifests_of("quickstart.yaml"))
        assert main(words) == 0
        assert capsys.readouterr().out.count(" unchanged") == len(manifests_of("quickstart.yaml"))
