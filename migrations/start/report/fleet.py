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
        Column("used_gpu_hours", "round(sum(used) / 3600000000.0, 6)", "GPU-hours allocated to services and jobs."),
        Column("allocated_share", "round(sum(used) / nullif(sum(microseconds), 0), 6)",
               "The share that was allocated to services and jobs."),
        Column("measured_gpu_hours", "round(sum(minutes) / 60.0, 6)", "GPU-hours that agents measured."),
        Column("busy_gpu_hours", "round(CAST(sum(busy) / 60.0 AS numeric), 6)",
               "Measured GPU-hours in which the driver reports the GPU as executing."),
        Column("sm_utilisation", "round(CAST(sum(busy) / nullif(sum(minutes), 0) AS numeric), 6)",
               "The share of the measured time in which GPUs were executing."),
        Column("memory_used_gib", "round(CAST(sum(gib) / nullif(sum(minutes), 0) AS numeric), 3)",
               "The peak memory in use in an hour, as the mean over GPUs and hours."),
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
) AS facts WHERE {ONLY_FLEET}""",
    )
    comment = f"Utilisation of each node, {grain.adjective}. Only for readers of the whole fleet."
    return View(f"utilisation{grain.suffix}", comment, columns, source)


def _savings(grain: Grain) -> View:
    keys = [
        grain.column(grain.of_fact),
        Column("tenant", "fact.tenant", "The tenant of the services."),
        Column("baseline", "baseline.name",
               "one_instance_per_gpu: each instance has a GPU of its own, of the type where its service costs least; "
               "hetsev: types and counts by HetSev's greedy, on shared GPUs; largest_gpu: shared, all of the largest."),
    ]  # fmt: skip
    sums = [
        Column("cost", f"sum(fact.plan_nano) * {NANO}", "The cost of services in this period by the plan in force."),
        Column("baseline_cost", f"sum(baseline.nano) * {NANO}", "The cost of the same load by the baseline."),
        Column("saved", f"sum(baseline.nano - fact.plan_nano) * {NANO}",
               "The used saving: baseline minus plan. No bill falls by it: see savings_realised for that."),
        Column("held_cost",
               f"CASE WHEN count(fact.held_nano) = count(*) THEN sum(fact.held_nano) * {NANO} END",
               "The price of the GPUs on which copies of the services really were, each once, both of a hand-over; the "
               "same for every baseline. Null where it is unknown for any hour."),
    ]  # fmt: skip
    columns, source = grouped(
        sums,
        keys,
        f"""FROM {grain.of_hours("saving")} CROSS JOIN LATERAL (VALUES
    ('one_instance_per_gpu', fact.one_per_gpu_nano), ('hetsev', fact.hetsev_nano), ('largest_gpu', fact.largest_nano)
) AS baseline (name, nano)""",
    )
    comment = (
        f"Savings of plans against three baselines, {grain.adjective}: judged each hour on the snapshot of the plan in "
        "force. Baselines are alternatives: add up rows of a single baseline only."
    )
    return View(f"savings{grain.suffix}", comment, columns, source)


def _realised(grain: Grain) -> View:
    keys = [
        grain.column(grain.of_fact),
        *(Column(name, f"fact.{name}", DIMENSIONS[name]) for name in ("gpu_type", "region", "purchase")),
    ]
    sums = [
        Column("released_gpu_hours", "sum(fact.gpus_before - fact.gpus_now)",
               "Hours of GPUs that were paid for within the 30 days before and no longer are."),
        Column("saved", f"sum(fact.nano) * {NANO}",
               "The realised saving: the price of those hours, for onDemand and spot nodes that were given back."),
    ]  # fmt: skip
    columns, source = grouped(sums, keys, f"FROM {grain.of_hours('release_hour')} WHERE {ONLY_FLEET}")
    comment = f"Costs that ended as nodes were given back, {grain.adjective}. Only for readers of the whole fleet."
    return View(f"savings_realised{grain.suffix}", comment, columns, source)


HOURS_A_MONTH = 730
RELEASABLE = View(
    "releasable",
    "Nodes that have been empty for longer than the policy's idleMinutes and could be given back.",
    [
        Column("node", "node", DIMENSIONS["node"]),
        Column("gpu_type", "gpu_type", DIMENSIONS["gpu_type"]),
        Column("region", "region", DIMENSIONS["region"]),
        Column("purchase", "purchase", "onDemand or spot."),
        Column("gpus", "gpus", "The number of its GPUs."),
        Column("idle_since", "since", "When it became empty."),
        Column("idle_hours", "round(extract(epoch FROM moment() - since) / 3600, 3)", "The hours since then."),
        Column("cost_per_hour", f"gpus * nano_per_hour * {NANO}", "The cost of an hour at the present price."),
        Column("cost_per_month", f"gpus * nano_per_hour * {NANO} * {HOURS_A_MONTH}",
               f"The cost of a month of {HOURS_A_MONTH} hours."),
        Column("paid_while_idle",
               f"round(gpus * nano_per_hour * extract(epoch FROM moment() - since) / 3600 * {NANO}, 9)",
               "The cost since then, at the present price."),
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
