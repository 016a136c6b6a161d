"""The agent's own /metrics: `render` makes the text of an `AgentView`, `serve` answers with it on loopback."""

from agents.prometheus.answering import Answering, serve
from agents.prometheus.text import render
from agents.prometheus.view import AgentView, CopyView, GpuView

__all__ = ["AgentView", "Answering", "CopyView", "GpuView", "render", "serve"]
