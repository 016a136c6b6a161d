"""The agent's own /metrics: `render` makes the text of a `View`, `serve` answers with it on loopback."""

from agents.prometheus.answering import Answering, serve
from agents.prometheus.text import render
from agents.prometheus.view import CopyView, GpuView, View

__all__ = ["Answering", "CopyView", "GpuView", "View", "render", "serve"]
