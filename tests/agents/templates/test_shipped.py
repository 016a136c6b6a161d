"""The templates that come with the agent can be read, filled, and start what they name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from agents.templates import Filled
from agents.templates.filling import Builtin, fill
from agents.templates.reading import SHIPPED, parse, read

GIVEN: dict[str, dict[str, object]] = {
    "gpuwright-llm": {"cost": "baseMs=4,tokenMs=0.02", "kvTokens": 50000},
    "gpuwright-serve": {"latency": "1:10=20,100=8;8:22", "claimGib": 1.5},
    "gpuwright-batch": {"requests": "day.jsonl", "url": "http://127.0.0.1:8080/shop/search/v1/infer"},
    "gpuwright-train": {"speeds": "10:2,100:10", "checkpoint": "job.json"},
    "sglang": {"model": "llama", "name": "org/llama-3"},
    "triton": {"repository": ".", "model": "resnet50"},
    "vllm": {"model": "llama", "name": "org/llama-3"},
    "vllm-lora": {"model": "llama", "name": "org/llama-3", "adapterPlaces": 40, "adapterRank": "16"},
}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "models" / "llama").mkdir(parents=True)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "batches").mkdir()
    (tmp_path / "batches" / "day.jsonl").touch()
    return tmp_path / "models"


def filled(name: str, models: Path) -> Filled:
    builtin = Builtin("c1", "GPU-1", 8000, 8002, "0.0.0.0", 4, 16, 2.5, 1.5, key="only-ours")
    made = fill(read(models=models)[name], GIVEN[name], builtin)
    assert isinstance(made, Filled), made
    return made


def test_all_that_is_shipped_is_tried_here() -> None:
    assert read().keys() == GIVEN.keys() == {path.stem for path in SHIPPED.glob("*.yaml")}


@pytest.mark.parametrize("name", GIVEN)
def test_nothing_is_left_to_fill_in(name: str, models: Path) -> None:
    made = filled(name, models)
    probes = [made.health, made.warm_up, made.drain, made.metrics]
    texts = [*made.argv, *(probe.path + probe.body for probe in probes if probe)]
    assert not [text for text in texts if re.search(r"\{\w+\}", text)]
    assert made.health or not made.uses_gpu
    assert made.metrics or not made.uses_gpu


@pytest.mark.parametrize("name", ["gpuwright-llm", "gpuwright-serve", "gpuwright-train", "gpuwright-batch"])
def test_our_own_programs_know_every_word_of_their_templates(name: str, models: Path) -> None:
    made = filled(name, models)
    done = subprocess.run([*made.argv, "--no-such-word"], capture_output=True, text=True, cwd="/")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("unrecognized arguments: --no-such-word")


def test_the_model_server_gets_its_shape(models: Path) -> None:
    argv = filled("gpuwright-serve", models).argv
    assert {"--port=8000", "--batch=4", "--max-batch=16", "--batch-timeout-ms=2.5", "--memory-gib=1.5"} <= set(argv)


def test_triton_has_a_port_for_metrics_and_a_folder_that_a_container_must_see(models: Path) -> None:
    form = read(models=models)["triton"].form
    assert form.metrics and form.metrics.port == "metricsPort"
    made = filled("triton", models)
    assert made.metrics and made.metrics.port == 8002
    assert "--metrics-port=8002" in made.argv
    assert made.warm_up and made.warm_up.path == "/v2/models/resnet50/ready"
    assert made.folders == (f"{models}:ro",)


def test_what_changes_a_server_needs_a_key_or_is_off(models: Path) -> None:
    """Also for those who reach a copy's port without the gateway."""
    closed = "model-repository,model-config,shared-memory,statistics,trace,logging"
    triton = filled("triton", models)
    assert f"--http-restricted-api={closed}:x-gpuwright-key=only-ours" in triton.argv
    assert {"--model-control-mode=explicit", "--load-model=resnet50", "--allow-grpc=false"} <= set(triton.argv)
    assert "--admin-api-key=only-ours" in filled("sglang", models).argv
    vllm = filled("vllm", models)
    assert vllm.environment["VLLM_SERVER_DEV_MODE"] == vllm.environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "0"
    assert not [word for word in vllm.argv if "lora" in word or "profil" in word]


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_servers_of_language_models_are_told_how_many_gpus_they_have(name: str, models: Path) -> None:
    builtin = Builtin("c1", "GPU-1,GPU-2", 8000, gpu_count=2, key="k")
    made = fill(read(models=models)[name], GIVEN[name], builtin)
    assert isinstance(made, Filled)
    assert "--tensor-parallel-size=2" in made.argv
    assert made.metrics and made.metrics_kind == name


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_servers_of_language_models_are_warmed_by_the_name_they_serve_under(name: str, models: Path) -> None:
    made = filled(name, models)
    assert made.warm_up and made.warm_up.body == '{"model": "org/llama-3", "prompt": "warm", "max_tokens": 4}'
    assert made.folders == (f"{models}:ro",)


def test_vllm_with_places_for_adapters_differs_from_vllm_by_them_alone(models: Path) -> None:
    plain, lora = read(models=models)["vllm"].form, read(models=models)["vllm-lora"].form
    assert [word for word in lora.argv if word not in plain.argv] == [
        "--enable-lora", "--max-loras={adapterPlaces}", "--max-lora-rank={adapterRank}",
    ]  # fmt: skip
    assert [word for word in plain.argv if word not in lora.argv] == []
    same = ("image", "health", "warm_up", "metrics", "measures_memory", "start_seconds", "drain_seconds", "paths")
    assert {name: getattr(lora, name) for name in same} == {name: getattr(plain, name) for name in same}
    assert lora.environment == {**plain.environment, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    assert not [rule for rule in lora.paths if "lora" in rule]


def test_a_model_folder_is_where_each_server_reads_it(models: Path) -> None:
    assert filled("vllm", models).argv[:3] == ("vllm", "serve", str(models / "llama"))
    assert f"--model-path={models / 'llama'}" in filled("sglang", models).argv


def test_vllm_lets_requests_end_before_the_agent_loses_patience(models: Path) -> None:
    made = filled("vllm", models)
    (seconds,) = (word.partition("=")[2] for word in made.argv if word.startswith("--shutdown-timeout="))
    assert 0 < int(seconds) < made.drain_seconds


def test_the_example_of_the_documentation_is_a_template() -> None:
    page = Path(__file__).parents[3] / "docs" / "runtimes.md"
    example = re.search(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    assert example
    assert parse(example[1], "resnet", str(page)).args.keys() == {"model", "precision"}


def test_a_job_ends_by_saving_and_writes_under_its_own_root(models: Path) -> None:
    made = filled("gpuwright-train", models)
    assert made.checkpoint_signal == "SIGTERM"
    assert f"--checkpoint={models.parent / 'checkpoints' / 'job.json'}" in made.argv
