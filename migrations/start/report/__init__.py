"""The schema `report`: its tables, who may read what, and every view with its comments."""

from __future__ import annotations

from migrations.start.report import cost, fleet, loads, money, plans, services, tables

VIEWS = [
    *cost.PERIOD_VIEWS, *cost.COST_VIEWS, *services.SERVICE_VIEWS, *fleet.FLEET_VIEWS, *money.MONEY_VIEWS,
    *plans.PLAN_VIEWS, *loads.LOAD_VIEWS,
]  # fmt: skip
# All views in one statement: a test kills the migration at each statement.
UP = [*tables.TABLES, *tables.SCHEMA, ";\n".join(view.statement for view in VIEWS), *tables.READERS]
DOWN = tables.DOWN
