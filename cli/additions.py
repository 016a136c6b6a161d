"""Finds what other distributions add to this program, by their entry points; the lab, with its research, is one."""

from __future__ import annotations

from typing import Any

IS_OF_THE_LAB = "comes with the lab, which is not installed: pip install ./lab in a checkout of gpuwright"


def additions(group: str) -> dict[str, Any]:
    """Returns by name what is registered as `gpuwright.GROUP`: verbs are modules, benchmarks are tables."""
    from importlib.metadata import entry_points  # slow, hence here

    return {entry.name: entry.load() for entry in entry_points(group=f"gpuwright.{group}")}
