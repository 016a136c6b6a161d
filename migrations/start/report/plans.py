"""Views of what is known of plans beside themselves: other planners' plans, and what CP-SAT found."""

from __future__ import annotations

from migrations.start.report.view import Column, View

OTHER_PLANNERS = View(
    "other_planners",
    "What other planners' plans cost and serve, for the newest problem that any was asked about. Only "
    "for readers of the whole fleet.",
    [
        Column("generation", "plan.generation", "The newest plan whose certificate lists them."),
        Column("planner", "other.planner", "The planner by whose rules, as we read them, the plan was made."),
        Column("cost_per_hour", "round(other.\"resourceCost\", 9)",
               "The price of its GPUs, of an hour. Null if the plan breaks a rule, or there is none."),
        Column("churn_cost", "round(other.\"churnCost\", 9)", "The price of its changes to what ran, once."),
        Column("served_share", "CASE WHEN other.\"resourceCost\" IS NOT NULL THEN round(other.\"servedShare\", 6) END",
               "The part of all requests that it serves. A plan that serves less is no cheaper."),
        Column("refused", "other.refused", "The rules that it breaks, or why there is none; empty otherwise."),
        Column("asked_at", "plan.at - other.\"ageSeconds\" * interval '1 second'", "When it was made."),
        Column("age_seconds",
               "round(CAST(extract(epoch FROM moment() - plan.at) + other.\"ageSeconds\" AS numeric), 3)",
               "The seconds since then."),
    ],
    """FROM plan CROSS JOIN LATERAL jsonb_to_recordset(plan.others) AS other (
    planner text, "resourceCost" numeric, "churnCost" numeric, "servedShare" numeric, refused text,
    "ageSeconds" double precision)
WHERE plan.generation = (SELECT max(generation) FROM plan WHERE others <> '[]')""",
)  # fmt: skip
CROSS_CHECKS = View(
    "cross_checks",
    "What CP-SAT found of plans of fleets of at most 8 GPUs and 6 services. Only for readers of the whole fleet.",
    [
        Column("generation", "plan.generation", "The plan."),
        Column("checked_at", "checked.at", "When it was checked."),
        Column("outcome", "checked.outcome",
               "`same`: no plan is cheaper. `dearer`: one is. `unproved`: CP-SAT ran out of work. `contradiction`: one "
               "of the two is wrong. `unchecked`: see the message."),
        Column("cost_per_hour", "round(checked.cost, 9)", "What the plan costs an hour, hand-overs and jobs aside."),
        Column("bound_per_hour", "round(checked.bound, 9)", "What any plan costs at least, by CP-SAT."),
        Column("message", "checked.message", "The outcome in words."),
    ],
    """FROM plan CROSS JOIN LATERAL jsonb_to_record(plan.cross_check) AS checked (
    outcome text, message text, cost numeric, bound numeric, at timestamptz)
WHERE plan.cross_check IS NOT NULL""",
)  # fmt: skip
PLAN_VIEWS = [OTHER_PLANNERS, CROSS_CHECKS]
