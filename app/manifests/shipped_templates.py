"""Compares a variant's runtime with the templates that ship with the agent: which arguments they take and need.

A node may have another template of the same name, so an argument that does not fit causes a warning only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ShippedTemplate:
    """The names of a template's arguments, and of those that have no default."""

    takes: frozenset[str]
    needs: frozenset[str] = frozenset()


SHIPPED = {
    "gpuwright-llm": ShippedTemplate(
        frozenset(
            {
                "answerTokens", "claimGib", "context", "cost", "kvTokens", "model", "prefixShare", "profile", "queue",
                "queueTokens", "startSeconds", "tokensPerIteration",
            }
        )
    ),
    "gpuwright-serve": ShippedTemplate(
        frozenset(
            {"claimGib", "device", "file", "kernel", "latency", "model", "profile", "queue", "shape", "startSeconds"}
        )
    ),
    "triton": ShippedTemplate(
        frozenset({"cudaPoolBytes", "model", "pinnedPoolBytes", "repository"}), frozenset({"model"})
    ),
    "vllm": ShippedTemplate(
        frozenset({"dtype", "kvCacheBytes", "maxLength", "model", "name"}), frozenset({"model"})
    ),
}  # fmt: skip


def find_unfit(model: Mapping[str, Any]) -> Iterator[str]:
    """Yields what a node with the shipped templates would refuse in a Model's runtimes."""
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
