"""Manifests of language models: two forms of an SLO and of a profile, and each contradiction by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.manifests.attainable import SloReason, slo_condition
from app.manifests.faults import ManifestsRefused
from app.manifests.offline import Input, load
from app.manifests.uncertain import profile_at

GPU = "{memoryGib: 80, smCount: 108, pricePerHour: 3, idleW: 60, maxW: 400, clocksMhz: [1410]}"
LLM = "{weightsGib: 128, layers: 80, kvBytesPerToken: 327680, contextTokens: 4096, parallel: [4, 8]}"
ITERATION = "{4: {baseMs: 6, tokenMs: 0.05, weightsMs: 22, kvTokenMs: 0.0001}}"
TOKENS = "{input: {mean: 1155, p95: 3800}, output: {mean: 211, p95: 480}, prefixShare: 0.1}"


def files(**changes: str) -> Input:
    """Returns a service on a language model, with these parts written differently."""
    parts = {
        "gpu": GPU,
        "node": "{gpuType: a100, gpus: 8, cpuCores: 64, memoryGib: 512, nvlinkGroup: 4}",
        "llm": f"llm: {LLM}",
        "profile": f"iteration: {ITERATION}, overheadGib: 2, tokensPerIteration: 2048",
        "slo": "{ttftMs: 1000, tpotMs: 50, percentile: 95}",
        "tokens": f"tokens: {TOKENS}",
        "state": "{}",
    } | changes
    variant = ", ".join(part for part in ("name: fp16, accuracy: 0.7", parts["llm"]) if part)
    service = ", ".join(part for part in ("model: llama", f"slo: {parts['slo']}", parts["tokens"]) if part)
    specs = [
        ("GpuType", "{name: a100}", parts["gpu"]),
        ("Node", "{name: n}", parts["node"]),
        ("Model", "{name: llama}", f"{{variants: [{{{variant}}}]}}"),
        ("Profile", "{name: p}", f"{{model: llama, variant: fp16, gpuType: a100, {parts['profile']}}}"),
        ("Service", "{name: chat, tenant: shop}", f"{{{service}}}"),
        ("State", "{name: now}", parts["state"]),
    ]
    head = "apiVersion: gpuwright/v1"
    text = "---\n".join(f"{head}\nkind: {kind}\nmetadata: {name}\nspec: {spec}\n" for kind, name, spec in specs)
    return Input("files.yaml", text.encode())


def test_a_language_model_is_declared_with_its_memory_its_iterations_and_the_lengths_of_its_requests() -> None:
    world = load([files()])
    assert [manifest.name for manifest in world.manifests.values()] == ["a100", "n", "llama", "p", "chat", "now"]


WRONG = {
    "a latency beside tokens": (
        {"slo": "{latencyMs: 1, ttftMs: 1, tpotMs: 1, percentile: 95}"},
        "spec.slo.latencyMs",
        "an SLO has latencyMs or ttftMs, not both",
    ),
    "half a promise": ({"slo": "{ttftMs: 1, percentile: 95}"}, "spec.slo.tpotMs", "an SLO with ttftMs needs tpotMs"),
    "the other half": ({"slo": "{tpotMs: 1, percentile: 95}"}, "spec.slo.ttftMs", "an SLO with tpotMs needs ttftMs"),
    "no promise": ({"slo": "{percentile: 95}", "tokens": ""}, "spec.slo.latencyMs", "required"),
    "no lengths": ({"tokens": ""}, "spec.tokens", "needs the lengths of its requests"),
    "lengths without a promise": (
        {"slo": "{latencyMs: 1, percentile: 95}"},
        "spec.tokens",
        "only an SLO of ttftMs and tpotMs counts tokens",
    ),
    "lengths that no distribution has": (
        {"tokens": "tokens: {input: {mean: 100, p95: 500}, output: {mean: 10, p95: 20}}"},
        "spec.tokens.input",
        "no log-normal distribution",
    ),
    "a p95 below its mean": (
        {"tokens": "tokens: {input: {mean: 100, p95: 50}, output: {mean: 10, p95: 20}}"},
        "spec.tokens.input",
        "no log-normal distribution",
    ),
    "more than the context": (
        {"tokens": "tokens: {input: {mean: 4000, p95: 5000}, output: {mean: 100, p95: 200}}"},
        "spec.tokens",
        "over the contextTokens 4096",
    ),
    "bursts": ({"tokens": f"tokens: {TOKENS}, burstiness: 4"}, "spec.burstiness", "arrive as Poisson"),
    "a lost node": (
        {"tokens": f"tokens: {TOKENS}, availability: {{surviveNodes: 1}}"},
        "spec.availability.surviveNodes",
        "a lost node is not planned for",
    ),
    "a model without llm": ({"llm": ""}, "spec.slo.ttftMs", "no variant of Model llama states llm"),
    "a profile of another degree": (
        {"profile": "iteration: {2: {baseMs: 1, tokenMs: 1}}"},
        "spec.iteration.2",
        "cannot be spread over 2 GPUs",
    ),
    "a degree of three": ({"profile": "iteration: {3: {baseMs: 1, tokenMs: 1}}"}, "spec.iteration.3", "1, 2, 4, 8"),
    "a variant over three GPUs": (
        {"llm": f"llm: {LLM.replace('4, 8', '3')}"},
        "spec.variants[0].llm.parallel[0]",
        "1, 2",
    ),
    "both forms of a profile": (
        {"profile": f"iteration: {ITERATION}, latencyMs: {{1: {{100: 2}}}}, memoryGib: {{1: 1}}"},
        "spec.latencyMs",
        "latencyMs or iteration, not both",
    ),
    "no form of a profile": ({"profile": "cpuCores: 1"}, "spec.latencyMs", "required"),
    "an overhead of latencies": (
        {"profile": "latencyMs: {1: {100: 2}}, memoryGib: {1: 1}, overheadGib: 1"},
        "spec.overheadGib",
        "of a profile with iteration",
    ),
    "ranks of too many GPUs": (
        {"profile": f"iteration: {ITERATION}, engine: {{4: {{cacheTokens: 9000, dataRanks: 4, pipelineRanks: 2}}}}"},
        "spec.engine.4",
        "its ranks take 8 GPUs, not 4",
    ),
    "an engine of latencies": (
        {"profile": "latencyMs: {1: {100: 2}}, memoryGib: {1: 1}, engine: {1: {cacheTokens: 9000}}"},
        "spec.engine",
        "of a profile with iteration",
    ),
    "neighbours": ({"profile": f"iteration: {ITERATION}, pressure: 0.5"}, "spec.pressure", "no neighbours"),
    "all of the input as prefix": (
        {"tokens": f"tokens: {TOKENS.replace('0.1', '1')}"},
        "spec.tokens.prefixShare",
        "out of range (a number 0..1, without 1)",
    ),
    "a negative coefficient": (
        {"profile": "iteration: {4: {baseMs: -1, tokenMs: 1}}"},
        "spec.iteration.4.baseMs",
        "out of range",
    ),
    "a running instance on one GPU and on several": (
        {
            "state": "{running: [{service: shop/chat, node: n, gpu: 0, gpus: [0, 1], variant: fp16, batch: 8, "
            "smPercent: 100, memoryGib: 80}]}"
        },
        "spec.running[0].gpu",
        "gpu or gpus, not both",
    ),
    "a running instance on no GPU": (
        {"state": "{running: [{service: shop/chat, node: n, variant: fp16, batch: 8, smPercent: 100, memoryGib: 80}]}"},
        "spec.running[0].gpu",
        "required",
    ),
    "a running instance on a GPU that its node lacks": (
        {
            "state": "{running: [{service: shop/chat, node: n, gpus: [4, 5, 6, 8], variant: fp16, batch: 8, "
            "smPercent: 100, memoryGib: 80}]}"
        },
        "spec.running[0].gpus",
        "Node n has no GPU 8",
    ),
    "links of no GPU": (
        {"node": "{gpuType: a100, gpus: 8, cpuCores: 64, memoryGib: 512, nvlinkGroup: 0}"},
        "spec.nvlinkGroup",
        "out of range",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_each_contradiction_is_refused_by_its_field(case: str) -> None:
    changes, field, says = WRONG[case]
    with pytest.raises(ManifestsRefused) as refused:
        load([files(**changes)])
    said = {fault.field: f"{fault.message} ({fault.allowed})" for fault in refused.value.faults}
    assert field in said, said
    assert says in said[field]


def test_an_uncertain_coefficient_counts_with_the_quantile_of_the_policy() -> None:
    cost = {"baseMs": {"mean": 6, "q90": 9}, "tokenMs": 0.05}
    assert profile_at({"iteration": {"4": cost}}, 0.9)["iteration"] == {"4": {"baseMs": 9.0, "tokenMs": 0.05}}
    assert profile_at({"iteration": {"4": cost}}, 0.5)["iteration"] == {"4": {"baseMs": 6.0, "tokenMs": 0.05}}


def test_a_promise_below_the_fastest_iteration_is_named_when_it_is_applied() -> None:
    model = {"variants": [{"name": "fp16", "accuracy": 0.7, "llm": {}}]}
    profile = {
        "variant": "fp16",
        "gpuType": "a100",
        "iteration": {"4": {"baseMs": 6, "tokenMs": 0.05, "weightsMs": 22}},
    }
    service = {"model": "llama", "slo": {"ttftMs": 1000.0, "tpotMs": 50.0, "percentile": 95}}
    assert slo_condition(service, model, [profile]).reason is SloReason.ATTAINABLE
    hurried = {**service, "slo": {"ttftMs": 1000.0, "tpotMs": 20.0, "percentile": 95}}
    found = slo_condition(hurried, model, [profile])
    assert found.reason is SloReason.SLO_BELOW_FASTEST_EXEC
    assert "the fastest iteration is 28 ms (fp16 on 4 x a100)" in found.message
    assert slo_condition(service, model, []).reason is SloReason.NO_PROFILE


def test_a_file_without_language_models_is_read_as_before(tmp_path: Path) -> None:
    assert load([files(slo="{latencyMs: 80, percentile: 95}", tokens="", llm="", profile="latencyMs: {1: {100: 2}}, "
                       "memoryGib: {1: 1}")])  # fmt: skip
