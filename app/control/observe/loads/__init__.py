"""What services are asked and how they do: heard from gateways and nodes, kept in windows, looked ahead."""

from __future__ import annotations

from app.control.observe.loads.hearing import Cursor, Readings, hear
from app.control.observe.loads.loads import Loads
from app.control.observe.loads.recent import Recent

__all__ = ["Cursor", "Loads", "Readings", "Recent", "hear"]
