"""Reads what other tools have measured: Triton's perf_analyzer and model analyzer (CSV), genai-perf (JSON)."""

from __future__ import annotations

from app.campaigns.reports.figures import Figures, ReportRefused, ToolReport
from app.campaigns.reports.genai_perf import read_genai_perf
from app.campaigns.reports.triton import read_triton

__all__ = ["Figures", "ReportRefused", "ToolReport", "read_report"]


def read_report(report: ToolReport) -> list[Figures]:
    """Returns the figures of a report, whose form its content shows. Raises ReportRefused."""
    text = report.text.lstrip("\ufeff")
    return read_genai_perf(report) if text.lstrip().startswith(("{", "[")) else read_triton(report)
