"""Compares a variant's runtime with the templates that ship with the agent: which arguments they take and need, whether
a request as long as a language model's context is served, and how long a start may take.

A node may have another template of the same name, so an argument that does not fit causes a warning only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.manifests.model import WrittenSpec


@dataclass(frozen=True, slots=True)
class ShippedTemplate:
    """A template's arguments, those without a default, the one that bounds a request, and the limit of a start."""

    takes: frozenset[str]
    needs: frozenset[str] = frozenset()
    longest: tuple[str, int] = ("", 0)  # in tokens, with its default
    start_seconds: float = 120.0  # for which an agent waits until it is warm
    holds_adapters: bool = False  # LoRA adapters, which the agent loads and unloads


SHIPPED = {
    "gpuwright-llm": ShippedTemplate(
        frozenset(
            {
                "adapterPlaces", "answerTokens", "claimGib", "context", "cost", "kvTokens", "model", "prefixShare",
                "profile", "queue", "queueTokens", "startSeconds", "tokensPerIteration",
            }
        ),
        longest=("context", 8192),
        holds_adapters=True,
    ),
    "gpuwright-serve": ShippedTemplate(
        frozenset(
            {"claimGib", "device", "file", "kernel", "latency", "model", "profile", "queue", "shape", "startSeconds"}
        )
    ),
    "sglang": ShippedTemplate(
        frozenset({"dtype", "maxLength", "memoryShare", "model", "name", "tokensPerIteration"}),
        frozenset({"model"}),
        longest=("maxLength", 4096),
        start_seconds=900.0,
    ),
    "triton": ShippedTemplate(
        frozenset({"cudaPoolBytes", "model", "pinnedPoolBytes", "repository"}), frozenset({"model"}),
        start_seconds=300.0,
    ),
    "vllm": ShippedTemplate(
        frozenset({"dtype", "kvCacheBytes", "maxLength", "memoryShare", "model", "name", "tokensPerIteration"}),
        frozenset({"model"}),
        longest=("maxLength", 4096),
        start_seconds=900.0,
    ),
    "vllm-lora": ShippedTemplate(
        frozenset(
            {
                "adapterPlaces", "adapterRank", "dtype", "kvCacheBytes", "maxLength", "memoryShare", "model", "name",
                "tokensPerIteration",
            }
        ),
        frozenset({"model"}),
        longest=("maxLength", 4096),
        start_seconds=900.0,
        holds_adapters=True,
    ),
}  # fmt: skip


def find_unfit(model: WrittenSpec) -> Iterator[str]:
    """Yields what a node with the shipped templates, or the server that they start, would refuse."""
    for variant in model.get("variants", ()):
        runtime = variant.get("runtime") or {}
        name, args = str(runtime.get("template", "")), set(runtime.get("args") or ())
        known = SHIPPED.get(name)
        if known is None:
            continue
        place = f"variant {variant['name']}: template {name}, as it ships,"
        takes = ", ".join(sorted(known.takes))
        for wrong in sorted(args - known.takes):
            yield f"{place} has no argument {wrong}; it takes {takes}"
        for missing in sorted(known.needs - args):
            yield f"{place} needs the argument {missing}"
        argument, default = known.longest
        longest, context = (
            (runtime.get("args") or {}).get(argument, default),
            (variant.get("llm") or {}).get("contextTokens"),
        )
        if argument and isinstance(longest, int | float) and context is not None and longest < context:
            yield f"{place} refuses requests above {argument} {longest:g}, fewer tokens than contextTokens {context:g}"
