"""Reads what other tools have measured: Triton's tools (CSV), genai-perf, AIPerf and vLLM (JSON), MLPerf (text)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.campaigns.reports.figures import Figures, ReportRefused, ToolReport
from app.campaigns.reports.genai_perf import read_genai_perf
from app.campaigns.reports.mlperf import MARK, read_mlperf
from app.campaigns.reports.triton import read_triton

__all__ = ["Figures", "ReportRefused", "ToolReport", "add_memory", "read_report"]


def read_report(report: ToolReport) -> list[Figures]:
    """Returns the figures of a report, whose form its content shows. Raises ReportRefused."""
    text = report.text.lstrip("\ufeff").lstrip()
    if text.startswith(("{", "[")):
        return read_genai_perf(report)
    return read_mlperf(report) if MARK in text[:1000] else read_triton(report)


def add_memory(figures: Sequence[Figures]) -> list[Figures]:
    """Returns the figures that have a latency, with the memory that a file of GPUs alone states of their batch."""
    memory: dict[int, float] = {}
    for found in figures:
        memory[found.batch] = max(memory.get(found.batch, 0.0), found.memory_gib)
    return [replace(found, memory_gib=memory[found.batch]) for found in figures if found.latency_ms > 0]
