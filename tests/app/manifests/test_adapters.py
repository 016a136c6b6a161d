"""Manifests of LoRA adapters: what a service may name, and each refusal by name."""

from __future__ import annotations

import pytest

from app.control.formulate.problem import build_problem
from app.manifests.faults import ManifestsRefused
from app.manifests.offline import Input, load
from solvers.planning.language import AdapterPlaces, LoraAdapter
from tests.app.manifests.test_language import ITERATION, LLM, TOKENS, files

PLACES = "adapters: {places: 2, maxRank: 16, placeGib: 0.5, slowdown: 0.1}"
PROFILE = f"iteration: {ITERATION}, overheadGib: 2, {PLACES}"
LORA = "runtime: {template: vllm-lora, args: {model: llama, name: base}}"
TWO = "{name: law, path: adapters/law, rank: 16}, {name: tax, path: adapters/tax, rank: 8}"


def adapted(adapters: str = TWO, **changes: str) -> Input:
    parts = {"tokens": f"tokens: {TOKENS}, adapters: [{adapters}]", "profile": PROFILE, "llm": f"llm: {LLM}, {LORA}"}
    return files(**(parts | changes))


def test_adapters_and_the_places_of_a_server_are_read() -> None:
    problem = build_problem(load([adapted()]))
    tokens = problem.services["shop/chat"].tokens
    assert tokens
    assert tokens.adapters == (LoraAdapter("law", "adapters/law", 16), LoraAdapter("tax", "adapters/tax", 8))
    assert problem.profiles["llama", "fp16", "a100"].adapters == AdapterPlaces(2, 16, 0.5, 0.1)


WRONG = {
    "a profile without places": (
        adapted(profile=f"iteration: {ITERATION}, overheadGib: 2"),
        "spec.adapters",
        "no Profile of Model llama that it may use states adapters",
    ),
    "more than there are places": (
        adapted(f"{TWO}, {{name: tort, path: adapters/tort, rank: 8}}"),
        "spec.adapters",
        "has places for 3 adapters of rank 16",
    ),
    "too large a rank": (
        adapted("{name: law, path: adapters/law, rank: 64}"),
        "spec.adapters",
        "has places for 1 adapters of rank 64",
    ),
    "one name twice": (
        adapted("{name: law, path: adapters/law, rank: 8}, {name: law, path: adapters/tax, rank: 8}"),
        "spec.adapters",
        "law is listed twice",
    ),
    "the name of the model": (
        adapted("{name: llama, path: adapters/law, rank: 8}"),
        "spec.adapters[0].name",
        "requests that name llama get the model",
    ),
    "the name that its server has": (
        adapted("{name: base, path: adapters/law, rank: 8}"),
        "spec.adapters[0].name",
        "requests that name base get the model",
    ),
    "a template that loads none": (
        adapted(llm=f"llm: {LLM}, {LORA.replace('vllm-lora', 'vllm')}"),
        "spec.adapters",
        "variant fp16: template vllm, as it ships, holds no adapters",
    ),
    "a server of one's own": (
        adapted(llm=f"llm: {LLM}, runtime: {{image: 'shop/llm:1'}}"),
        "spec.adapters",
        "variant fp16 has a runtime of its own",
    ),
    "an ordinary service": (
        adapted(slo="{latencyMs: 9, percentile: 95}", tokens=f"adapters: [{TWO}]"),
        "spec.adapters",
        "only a language model holds adapters",
    ),
    "places of latencies": (
        adapted(profile=f"latencyMs: {{1: {{100: 2}}}}, memoryGib: {{1: 1}}, {PLACES}"),
        "spec.adapters",
        "adapters is of a profile with iteration",
    ),
    "a rank that no server takes": (
        adapted(profile=PROFILE.replace("maxRank: 16", "maxRank: 17")),
        "spec.adapters.maxRank",
        "",
    ),
} | {
    f"the path {path}": (
        adapted(f"{{name: law, path: '{path}', rank: 8}}"),
        "spec.adapters[0].path",
        "is not a path inside the folder of models",
    )
    for path in ("/etc/passwd", "../law", "a/../../law", "a//b", "~root", "", "a b", "-law", "law/")
}


@pytest.mark.parametrize("case", WRONG)
def test_each_contradiction_is_named(case: str) -> None:
    given, field, message = WRONG[case]
    with pytest.raises(ManifestsRefused) as refused:
        load([given])
    assert [fault for fault in refused.value.faults if fault.field == field and message in str(fault.message)]
