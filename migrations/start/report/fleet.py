"""Views of the whole fleet: utilisation, savings, and nodes that could be given back."""

# ruff: noqa: S608 (put together from constants)
from __future__ import annotations

from migrations.start.report.cost import DIMENSIONS, NANO
from migrations.start.report.view import Column, Grain, View, at_each_grain, grouped

ONLY_FLEET = "(SELECT report.reads_fleet())"  # from a tenant's rows alone these would be wrong


def _utilisation(grain: Grain) -> View:
    keys = [
        grain.column(),
        Column("node", "node", DIMENSIONS["node"]),
        Column("gpu_type", "max(gpu_type)", DIMENSIONS["gpu_type"]),
        Column("region", "max(region)", DIMENSIONS["region"]),
    ]
    sums = [
        *keys[2:],
        Column("gpu_hours", "round(sum(microseconds) / 3600000000.0, 6)", "GPU-hours that were paid for."),
        Column("used_gpu_hours", "round(sum(used) / 3600000000.0, 6)", "GPU-hours that services and jobs held."),
        Column("allocated_share", "round(sum(used) / nullif(sum(microseconds), 0), 6)", "What they held of it."),
        Column("measured_gpu_hours", "round(sum(minutes) / 60.0, 6)", "GPU-hours that agents measured."),
        Column("busy_gpu_hours", "round(CAST(sum(busy) / 60.0 AS numeric), 6)",
               "GPU-hours of those that the GPU was executing, as its driver tells."),
        Column("sm_utilisation", "round(CAST(sum(busy) / nullif(sum(minutes), 0) AS numeric), 6)",
               "The share of the measured time that GPUs were executing."),
        Column("memory_used_gib", "round(CAST(sum(gib) / nullif(sum(minutes), 0) AS numeric), 3)",
               "Mean over GPUs and hours of the most memory in use in an hour."),
        Column("power_w", "round(CAST(sum(watts) / nullif(sum(minutes), 0) AS numeric), 1)",
               "Mean power of a GPU in watts."),
    ]  # fmt: skip
    columns, source = grouped(
        sums,
        keys[:2],
        f"""FROM (
    SELECT {grain.period}, node, gpu_type, region, gpu_microseconds AS microseconds,
        CASE WHEN kind = 'used' THEN gpu_microseconds ELSE 0 END AS used,
        0 AS minutes, 0.0 AS busy, 0.0 AS gib, 0.0 AS watts
    FROM report.cost{grain.suffix}
    UNION ALL
    SELECT {grain.of_fact}, fact.node, NULL, NULL, 0, 0, fact.gpu_minutes, fact.busy_minutes, fact.gib_minutes,
        fact.watt_minutes
    FROM {grain.of_hours("node_hour")}
) AS told WHERE {ONLY_FLEET}""",
    )
    comment = f"How far each node is used, {grain.adjective}. For who reads the whole fleet."
    return View(f"utilisation{grain.suffix}", comment, columns, source)


def _savings(grain: Grain) -> View:
    keys = [
        grain.column(grain.of_fact),
        Column("tenant", "fact.tenant", "Whose services."),
        Column("baseline", "baseline.name",
               "one_instance_per_gpu: each has a GPU of its own, of the type where its service costs least; "
               "hetsev: types and counts by HetSev's greedy, on shared GPUs; largest_gpu: shared, all of the largest."),
    ]  # fmt: skip
    sums = [
        Column("cost", f"sum(fact.plan_nano) * {NANO}", "What the plan in force pays for services in this time."),
        Column("baseline_cost", f"sum(baseline.nano) * {NANO}", "What the baseline would pay for the same load."),
        Column("saved", f"sum(baseline.nano - fact.plan_nano) * {NANO}",
               "Used saving: plan against baseline. It is no money back: see savings_realised for that."),
    ]  # fmt: skip
    columns, source = grouped(
        sums,
        keys,
        f"""FROM {grain.of_hours("saving")} CROSS JOIN LATERAL (VALUES
    ('one_instance_per_gpu', fact.one_per_gpu_nano), ('hetsev', fact.hetsev_nano), ('largest_gpu', fact.largest_nano)
) AS baseline (name, nano)""",
    )
    comment = (
        f"What plans save against three ways of planning, {grain.adjective}: judged each hour on the snapshot of the "
        "plan in force. Baselines are alternatives: add up rows of one of them only."
    )
    return View(f"savings{grain.suffix}", comment, columns, source)


def _realised(grain: Grain) -> View:
    keys = [
        grain.column(grain.of_fact),
        *(Column(name, f"fact.{name}", DIMENSIONS[name]) for name in ("gpu_type", "region", "purchase")),
    ]
    sums = [
        Column("released_gpu_hours", "sum(fact.gpus_before - fact.gpus_now)",
               "Hours of GPUs that were paid for at some time of the 30 days before, and no longer are."),
        Column("saved", f"sum(fact.nano) * {NANO}",
               "Realised saving: the price of those hours. Only nodes that were given back, only onDemand and spot."),
    ]  # fmt: skip
    columns, source = grouped(sums, keys, f"FROM {grain.of_hours('release_hour')} WHERE {ONLY_FLEET}")
    comment = f"What is no longer paid since nodes were given back, {grain.adjective}. For who reads the whole fleet."
    return View(f"savings_realised{grain.suffix}", comment, columns, source)


HOURS_A_MONTH = 730
RELEASABLE = View(
    "releasable",
    "Nodes that nothing has run on for longer than the policy's idleMinutes, and that could be given back.",
    [
        Column("node", "node", DIMENSIONS["node"]),
        Column("gpu_type", "gpu_type", DIMENSIONS["gpu_type"]),
        Column("region", "region", DIMENSIONS["region"]),
        Column("purchase", "purchase", "onDemand or spot."),
        Column("gpus", "gpus", "How many GPUs it has."),
        Column("idle_since", "since", "Since when nothing runs there."),
        Column("idle_hours", "round(extract(epoch FROM moment() - since) / 3600, 3)", "How long that is."),
        Column("cost_per_hour", f"gpus * nano_per_hour * {NANO}", "What it costs an hour now."),
        Column("cost_per_month", f"gpus * nano_per_hour * {NANO} * {HOURS_A_MONTH}",
               f"What that is in a month of {HOURS_A_MONTH} hours."),
        Column("paid_while_idle",
               f"round(gpus * nano_per_hour * extract(epoch FROM moment() - since) / 3600 * {NANO}, 9)",
               "What it cost since, at this price."),
    ],
    f"""FROM idle_node JOIN gpu_owned AS owned USING (node) LEFT JOIN LATERAL (
    SELECT nano_per_hour FROM price
    WHERE (price.gpu_type, price.region, price.purchase) = (owned.gpu_type, owned.region, owned.purchase)
        AND price.valid_to IS NULL
) AS price ON true
WHERE owned.valid_to IS NULL AND owned.purchase IN ('onDemand', 'spot') AND {ONLY_FLEET}
    AND since <= moment() - interval '1 minute' * coalesce((
        SELECT CAST(spec ->> 'idleMinutes' AS double precision) FROM object
        WHERE kind = 'Policy' AND name = 'default'), 15)""",
)  # fmt: skip
FLEET_VIEWS = [*at_each_grain(_utilisation), *at_each_grain(_savings), *at_each_grain(_realised), RELEASABLE]
