"""The alerts that watch a fleet, each with its first step for the person on call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert: when it fires, and the first step for the person on call."""

    name: str
    expr: str
    lasts: str
    severity: str  # page: now; ticket: in working hours
    summary: str
    runbook: str


BURNS = 'gpuwright_slo_burn_rate{{window="{}"}} > {}'
FAST = f"{BURNS.format('1h', 14.4)} and ignoring(window) {BURNS.format('5m', 14.4)}"
SLOW = f"{BURNS.format('6h', 6)} and ignoring(window) {BURNS.format('30m', 6)}"
FAILED = 'gpuwright_cycles_total{outcome=~"out_of_time|crashed|wrong"}'

ALERTS = (
    Alert(
        "NoLeader", "(sum(gpuwright_leader) or vector(0)) < 1", "1m", "page",
        "No planner leads: nothing is planned; running copies keep serving.",
        "Check that a planner runs and reaches the database: `gpuwright planner` logs `standing_by` or `leader`.",
    ),
    Alert(
        "CyclesStalled", "time() - max(gpuwright_last_cycle_timestamp_seconds) > 300", "1m", "page",
        "No planning cycle has ended for five minutes.",
        "Look at the leader's log for `planner_failed` and `deposed`, then at the database's slow statements.",
    ),
    Alert(
        "PlannerFailing", "sum by (job) (increase(gpuwright_planner_failed_total[15m])) > 3", "0m", "page",
        "The planner's {{ $labels.job }} fails repeatedly with an unexpected error.",
        "The log has it under `planner_failed`. Restart this planner, so that another one leads.",
    ),
    Alert(
        "ScalerNoLeader",
        "(max(gpuwright_scaler_leader) or 0 * max(max_over_time(gpuwright_scaler_leader[1d]))) < 1", "2m", "page",
        "No scaler leads, though one ran in the last day: replicas in Kubernetes stay as they are, whatever the load.",
        "Check that a scaler runs and reaches the database: `gpuwright scaler` logs `standing_by` or `leader`.",
    ),
    Alert(
        "ScalerStalled", "time() - max(gpuwright_scale_decided_timestamp_seconds) > 300", "1m", "page",
        "Nothing was decided on replicas in Kubernetes for five minutes; gpuwright_desired_replicas is gone.",
        "The log of the scaler that leads says what does not answer: `cluster_away`, `prometheus_away` or "
        "`database_away`.",
    ),
    Alert(
        "ScalerFailing", "sum by (task) (increase(gpuwright_scaler_failed_total[15m])) > 3", "0m", "page",
        "The scaler's {{ $labels.task }} fails repeatedly with an unexpected error.",
        "The log has it under `scaler_failed`. `gpuwright scale pause` stops all writes while you look.",
    ),
    Alert(
        "ScalesRefused", 'sum(increase(gpuwright_scale_writes_total{outcome=~"refused|in doubt"}[30m])) > 5', "15m",
        "ticket", "The API server refuses to set replicas again and again, or does not answer.",
        "`gpuwright scale` shows the workloads as `refused` or `writing`, each with the server's words.",
    ),
    Alert(
        "SolverFailing", f"sum(increase({FAILED}[15m])) >= 3", "0m", "page",
        "The solver failed to return a plan three times; the last good one stays in force, and what it leaves unserved "
        "is added by HetSev's greedy.",
        "`gpuwright explain plan` names each outcome under `lately`. Out of time: give it more seconds or cores. "
        "Crashed or wrong: `gpuwright replay PLAN` repeats the decision offline; report it.",
    ),
    Alert(
        "FallbackPlans", 'sum(increase(gpuwright_fallback_plans_total{failure!="compiling"}[15m])) > 0', "0m", "ticket",
        "The joint solver failed to give a plan while load was unserved, so HetSev's greedy added instances.",
        "As for SolverFailing. What was added costs more than a joint plan would; the next one plans it again.",
    ),
    Alert(
        "CyclesSlow",
        'histogram_quantile(0.9, sum by (le) (rate(gpuwright_cycle_phase_seconds_bucket{phase="cycle"}[30m]))) > 30',
        "15m", "ticket", "A cycle takes longer than 30 seconds.",
        "The panel Cycle phases shows which phase. Observing or recording: the database; solving: its budget.",
    ),
    Alert(
        "RolloutStopped", 'sum(increase(gpuwright_rollouts_total{state="stopped"}[15m])) > 0', "0m", "page",
        "A step of a rollout failed its check; the changes that depend on it were left out.",
        "`gpuwright plan show` and `gpuwright events --reason rollout_stopped` say which step and why. Then "
        "`gpuwright plan rollback`, or repair the node and let the next cycle plan again.",
    ),
    Alert(
        "RolloutBlocked", "sum(increase(gpuwright_rollout_blocked_total[15m])) > 0", "0m", "ticket",
        "Changes of a rollout waited with nothing under way; they were left out, or got another order.",
        "`gpuwright events --reason rollout_blocked` names them and what they waited for. The next plan starts "
        "from what runs.",
    ),
    Alert(
        "RolloutLong", "time() - max(gpuwright_rolling_since_timestamp_seconds) > 1800", "0m", "ticket",
        "A rollout, or several in a row, has been under way for more than half an hour.",
        "`gpuwright plan show` names the changes that wait, and for what. `gpuwright plan abort` ends it where it is, "
        "so that the next cycle plans from what runs.",
    ),
    Alert(
        "NoRoomToHandOver", 'sum(gpuwright_held_back{reason="no_room_to_hand_over"}) > 0', "1h", "ticket",
        "A change has waited for an hour because no order of steps starts the new copy before the old one ends.",
        "`gpuwright plan show` names the smallest room that would help: free that much, or set `handover: overlap`.",
    ),
    Alert(
        "SloBurnsFast", f"({FAST}) or (1 - gpuwright_slo_attainment_ratio > 0.5)", "2m", "page",
        "{{ $labels.tenant }}/{{ $labels.service }} misses its SLO so often that a month's allowance lasts two days.",
        "`gpuwright explain service NAME`: too little capacity (rent, or raise the tenant's limit), a wrong profile, "
        "or a node that is slower than the others.",
    ),
    Alert(
        "SloBurnsSlowly", SLOW, "15m", "ticket",
        "{{ $labels.tenant }}/{{ $labels.service }} misses its SLO so often that a month's allowance lasts five days.",
        "As for SloBurnsFast; it can wait for working hours.",
    ),
    Alert(
        "Unserved", "gpuwright_service_unserved_per_second > 0", "10m", "ticket",
        "The plan leaves part of {{ $labels.tenant }}/{{ $labels.service }} unserved.",
        "Its condition Planned names the reason and the smallest change that would serve it; `gpuwright plan show` "
        "lists GPUs to rent.",
    ),
    Alert(
        "ServiceDown", "gpuwright_service_routed_copies == 0 and gpuwright_service_expected_per_second > 0", "1m",
        "page",
        "No copy of {{ $labels.tenant }}/{{ $labels.service }} gets requests.",
        "Its condition Running names a copy and what its node says of it; `gpuwright logs` shows its output.",
    ),
    Alert(
        "CopiesMissing", "gpuwright_service_routed_copies < gpuwright_service_planned_copies", "10m", "ticket",
        "Fewer copies of {{ $labels.tenant }}/{{ $labels.service }} get requests than are planned.",
        "Its condition Running names one of them and what its node says of it.",
    ),
    Alert(
        "ServiceSuspect", 'sum(increase(gpuwright_events_total{reason="service_suspect"}[15m])) > 0', "0m", "page",
        "A service fails wherever it is started, so its copies are not moved any more.",
        "`gpuwright events --reason service_suspect` names it, where it failed, and the last line of its output.",
    ),
    Alert(
        "ManyDown", 'sum(increase(gpuwright_events_total{reason="many_down"}[15m])) > 0', "0m", "page",
        "More than a third of all copies or nodes went down within a minute; nothing moves for ten minutes.",
        "`gpuwright events --reason many_down` says what they share: a model, a template, a folder. Look there first.",
    ),
    Alert(
        "Shedding", "gpuwright_service_shed_ratio > 0", "5m", "page",
        "Requests of {{ $labels.tenant }}/{{ $labels.service }} are answered 503 for lack of capacity.",
        "As for Unserved. Lower the priority of others, or rent what the event `rent_more` names.",
    ),
    Alert(
        "TenantOverBudget", "gpuwright_tenant_spent >= gpuwright_tenant_budget", "5m", "ticket",
        "{{ $labels.tenant }} has spent its budget for the month.",
        "Raise `budget.perMonth` of the Tenant, or let `overBudget` take effect.",
    ),
    Alert(
        "NodeLost", 'sum(gpuwright_nodes{state="lost"}) > 0', "0m", "page",
        "A node was silent for longer than lostAfterSeconds; its instances are replaced.",
        "`gpuwright get nodes` shows which; check its agent's log and the machine. Drain it before repairing it.",
    ),
    Alert(
        "ReclaimShort", 'sum(increase(gpuwright_events_total{reason="reclaim_short"}[15m])) > 0', "0m", "page",
        "A service loses capacity when a node is reclaimed: no other place can serve it in time.",
        "`gpuwright events --reason reclaim_short` names the services and what they will lack; rent or start nodes for "
        "them before the deadline that `gpuwright get nodes` shows.",
    ),
    Alert(
        "NodeMismatch", 'sum(gpuwright_nodes{state=~"mismatch|incomplete"}) > 0', "10m", "ticket",
        "A node has other devices than declared, or fewer; nothing is planned on those.",
        "The condition InventoryMismatch names the difference: correct the declaration, or repair the machine.",
    ),
    Alert(
        "GpuUnhealthy", "gpuwright_agent_gpu_healthy == 0", "5m", "ticket",
        "GPU {{ $labels.gpu }} of {{ $labels.instance }} is failed or degraded.",
        "docs/health.md says what to do for each reason.",
    ),
    Alert(
        "ProfileWrong", "gpuwright_profile_correction_ratio > 1.45 or gpuwright_profile_correction_ratio < 0.72", "30m",
        "ticket", "Measurements of {{ $labels.model }}/{{ $labels.variant }} on {{ $labels.gpu_type }} are further "
        "from the profile than a correction may go.",
        "Measure it again and apply the Profile.",
    ),
    Alert(
        "PlanFarFromBound", "gpuwright_plan_gap_ratio > 0.5", "1h", "ticket",
        "The plan may cost half as much again as needed.",
        "Give the solver more seconds. On a fleet of few GPUs the bound is loose; that is no fault.",
    ),
    Alert(
        "DatabasePoolFull",
        'gpuwright_database_pool_connections{state="in_use"} >= ignoring(state) '
        'gpuwright_database_pool_connections{state="size"}',
        "5m", "ticket", "Every connection to the database has been in use for five minutes.",
        "Look for slow statements in the log (`slow_query`), then raise GPUWRIGHT_POOL_SIZE.",
    ),
    Alert(
        "ReportsShed", "sum(rate(gpuwright_reports_shed_total[5m])) > 0", "10m", "page",
        "Node reports are rejected because they cannot be stored.",
        "The label `reason` says why: the database's disk is full, or it is too slow.",
    ),
    Alert(
        "HousekeepingFailing", "sum by (job) (increase(gpuwright_housekeeping_failed_total[1h])) > 3", "0m", "ticket",
        "Housekeeping fails repeatedly: {{ $labels.job }}.",
        "The log says why (`housekeeping_failed`). Until it is fixed, old data stays and the disk fills.",
    ),
    Alert(
        "NodeQuarantined", "max(gpuwright_ledger_quarantined_nodes) > 0", "15m", "ticket",
        "The usage of a node cannot be accounted for; all other nodes' is.",
        "`gpuwright events --reason node_quarantined` names the node and the reason.",
    ),
    Alert(
        "NodeTokenReused", "sum(increase(gpuwright_node_token_reuse_total[1h])) > 0", "0m", "page",
        "A node's token was used again after its successor: it may have been copied.",
        "`gpuwright audit --outcome alarm` names the node. `gpuwright token revoke` each token of it, then "
        "`gpuwright token join --node NAME`, and join it again.",
    ),
)  # fmt: skip
