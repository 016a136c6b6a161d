"""Reads the fleet for a step of the rollout, and in the same statement the news of loads, which are answered next."""

from __future__ import annotations

from app.control.domain.leading import FleetView
from app.control.domain.ports import LoadForecaster
from app.control.record.planner_store import PlannerStore


def look_at_fleet(store: PlannerStore, loads: LoadForecaster) -> FleetView:
    """Returns the fleet as of one moment; the loads take the news until then."""
    asked, news = loads.ask(), None
    try:
        view = store.view(asked)
        news = view.news
    finally:
        loads.take(asked, news)
    return view
