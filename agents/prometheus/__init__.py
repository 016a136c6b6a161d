"""The agent's own /metrics: `render` writes an `AgentView` as text for Prometheus."""

from agents.prometheus.text import render
from agents.prometheus.view import AgentView, CopyView, GpuView

__all__ = ["AgentView", "CopyView", "GpuView", "render"]
