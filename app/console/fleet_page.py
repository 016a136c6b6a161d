"""Words the first page: what needs attention, figures, the map with its legend, events. Pure."""

from __future__ import annotations

from app.console.boxes import HUES
from app.console.data import ConsoleData
from app.console.events import group_events
from app.console.fleet import draw_fleet
from app.console.money import Money
from app.console.page_request import FleetQuery
from app.console.services import count_served, count_states, make_rows
from app.console.trouble import find_troubles
from app.manifests.model import Free


def fleet_values(data: ConsoleData, money: Money, query: FleetQuery) -> Free:
    """Returns what `fleet_page.html` shows."""
    rows, fleet = make_rows(data), draw_fleet(data, query)
    shown = next((row for row in rows if row.name == query.service), None)
    return {
        "data": data,
        "query": query,
        "unknown": bool(query.service) and shown is None,
        "troubles": find_troubles(data, rows, fleet),
        "counts": count_states(rows),
        "served": count_served(rows),
        "total": len(rows),
        "fleet": fleet,
        "legend": sorted(rows, key=lambda row: row.name)[:HUES],
        "unlisted": max(0, len(rows) - HUES),
        "has_jobs": bool(data.body["jobs"]),
        "news": group_events(data.events),
        "shown": shown,
        "rate": read_planned_cost(data),
        "money": money,
    }


def read_planned_cost(data: ConsoleData) -> float | None:
    """Returns the cost per hour of the plan in force; for a tenant that of its own services."""
    if not data.tenant:
        certificate = data.body.get("certificate")
        return certificate["resourceCost"] if certificate else None
    prices = [service["pricePerHour"] for service in data.services if service["pricePerHour"] is not None]
    return sum(prices) if prices else None
