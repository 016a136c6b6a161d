"""The list of reasons that decisions, events and metrics give; their words do not change."""

from __future__ import annotations

from enum import StrEnum

from app.store.world.events import NewEvent, Severity

__all__ = ["NewEvent", "Reason", "Severity", "event_of", "reason_of", "spell_why"]


class Reason(StrEnum):
    """A reason, its severity, and a sentence that explains it to a person who meets it for the first time."""

    severity: Severity
    sentence: str

    def __new__(cls, word: str, severity: Severity, sentence: str) -> Reason:
        member = str.__new__(cls, word)
        member._value_ = word
        member.severity = severity
        member.sentence = sentence
        return member

    @property
    def camel(self) -> str:
        """The word as conditions spell it: NotWorthItsChurn."""
        return "".join(part.capitalize() for part in self.value.split("_"))

    # What calls for a decision.
    CYCLE = "cycle", "info", "The planning period has passed."
    FIRST_PLAN = "first_plan", "info", "No plan was in force yet."
    JOB_APPLIED = "job_applied", "info", "A job was declared, changed or deleted."
    SERVICE_APPLIED = "service_applied", "info", "A service was declared, changed or deleted."
    FLEET_APPLIED = "fleet_applied", "info", "What is declared was changed."
    LOAD_ROSE = "load_rose", "info", "A service gets more requests than it was planned for."
    OPERATOR = "operator", "info", "A person asked for it."
    ROLLBACK = "rollback", "info", "A person asked to go back to an earlier plan."
    CORRECTED = "corrected", "info", "Measurements changed the correction of a profile enough to make a new plan."

    # The result of a cycle.
    PLANNED = "planned", "info", "A new plan was recorded."
    UNCHANGED = "unchanged", "info", "Nothing that the plan depends on has changed, so it stays in force."
    SOLVER_OUT_OF_TIME = (
        "solver_out_of_time",
        "warning",
        "The solver found no plan by its deadline; the last plan stays in force.",
    )
    SOLVER_CRASHED = "solver_crashed", "alarm", "The solver's process crashed; the last plan stays in force."
    SOLVER_WRONG = "solver_wrong", "alarm", "The judge rejected the solver's plan; the last plan stays in force."
    SOLVER_COMPILING = (
        "solver_compiling",
        "info",
        "The joint solver still compiles its loops, once on each machine; it is asked as soon as it is ready.",
    )
    FALLBACK_PLANNED = (
        "fallback_planned",
        "warning",
        "The joint solver gave no plan, so HetSev's greedy added what the running plan left unserved.",
    )
    OVERTAKEN = "overtaken", "info", "Another decision was recorded meanwhile, so this one was dropped."

    # Leadership.
    LEADER_CHANGED = "leader_changed", "info", "Another planner took the lease and leads now."

    # Changes that are held back.
    TOO_MANY_MOVES = (
        "too_many_moves",
        "info",
        "A cheaper plan would move much of the fleet, so smaller changes are made instead.",
    )
    NOT_WORTH_ITS_CHURN = (
        "not_worth_its_churn",
        "info",
        "The change would save less over the planning horizon than it costs.",
    )
    WAITS_UNTIL_DUE = (
        "waits_until_due", "info", "A cheaper plan waits until waiting has cost as much as its hand-overs.",
    )  # fmt: skip
    NO_ROOM_TO_HAND_OVER = (
        "no_room_to_hand_over", "warning", "No order of steps starts the new copies before the old ones end.",
    )  # fmt: skip
    ADVISORY = "advisory", "info", "The mode is advisory: the change is shown but not made."
    AWAITS_APPROVAL = "awaits_approval", "info", "The mode is approve: the change waits for a person."
    FROZEN = "frozen", "warning", "The tenant's budget is spent, so its services get no more GPUs than they have."
    TOO_FEW_GPUS = (
        "too_few_gpus",
        "warning",
        "Too few GPUs or nodes can run the service for its minInstances or availability; its running copies stay.",
    )
    CORDONED = "cordoned", "info", "The node or GPU is cordoned, so nothing new is placed there."
    NODE_SILENT = (
        "node_silent",
        "warning",
        "A node does not report; the planner assumes that its instances keep running.",
    )
    ROLLOUT_UNDER_WAY = "rollout_under_way", "info", "The rollout of an earlier plan is still in progress."
    CANARY_FIRST = "canary_first", "info", "A new profile or variant is tried on a single instance first."

    # Rollouts.
    STEP_FAILED_LATELY = "step_failed_lately", "info", "Its last step failed recently; it will be retried later."
    ROLLOUT_DONE = "rollout_done", "info", "The rollout is complete."
    ROLLOUT_STOPPED = (
        "rollout_stopped", "alarm", "A step failed its check, so the changes that depend on it were left out.",
    )  # fmt: skip
    ROLLOUT_BLOCKED = (
        "rollout_blocked", "alarm",
        "Changes waited with nothing under way that could free them; they were left out or got another order.",
    )  # fmt: skip
    ROLLOUT_PAUSED = "rollout_paused", "info", "A person paused the rollout."
    ROLLOUT_RESUMED = "rollout_resumed", "info", "A person resumed the rollout."
    ROLLOUT_ABORTED = "rollout_aborted", "warning", "A person aborted the rollout; the steps already taken stay."
    ROLLBACK_REFUSED = (
        "rollback_refused",
        "warning",
        "A rollback was requested, but the earlier plan cannot be restored.",
    )
    ROLLED_BACK = "rolled_back", "warning", "An earlier plan was restored."
    FLEET_RESUMED = "fleet_resumed", "info", "A person lets plans follow the policy's mode again after a rollback."
    STEP_TIMED_OUT = "step_timed_out", "warning", "A node did not make a change within the time limit of a step."
    STEP_RETRIED = (
        "step_retried",
        "info",
        "A node did not make a change within the time limit of a step; it is tried once more.",
    )
    STEP_FAILED = "step_failed", "warning", "A node could not start a copy."
    INSTANCE_DOWN = (
        "instance_down",
        "warning",
        "A copy that had served is down; its load is unserved until a copy elsewhere carries it.",
    )
    SERVICE_SUSPECT = (
        "service_suspect",
        "alarm",
        "A service fails wherever it is started: its file, image or arguments are the likely cause, so it stays.",
    )
    MANY_DOWN = (
        "many_down",
        "alarm",
        "More than a third of all copies or nodes went down within a minute: the cause is shared, so nothing moves.",
    )
    CAPACITY_AT_RISK = (
        "capacity_at_risk",
        "warning",
        "The next step would leave a service with too little capacity, so it waits.",
    )
    CANARY_PASSED = "canary_passed", "info", "The first instance met the SLO, so the others follow."
    CANARY_FAILED = (
        "canary_failed",
        "alarm",
        "The first instance missed the SLO or kept failing, so the others stay as they are.",
    )
    PLAN_PROPOSED = "plan_proposed", "info", "A plan waits for approval."
    PLAN_APPROVED = "plan_approved", "info", "A person approved a plan."
    PLAN_REJECTED = "plan_rejected", "info", "A person rejected a plan."
    PLAN_CONTRADICTED = (
        "plan_contradicted",
        "alarm",
        "CP-SAT, which shares no search with the planner, contradicts a plan or its bound: one of the two is wrong.",
    )
    PLAN_EXPIRED = "plan_expired", "info", "A plan waited for approval until the fleet it was made for had changed."

    # Services.
    ALL_PLANNED = "all_planned", "info", "The plan carries the whole load of a service; copies may still have to start."
    UNSERVED = "unserved", "warning", "The plan does not serve the whole load of a service."
    ALL_ROUTED = "all_routed", "info", "All planned copies of a service run and get requests."
    COPIES_STARTING = "copies_starting", "info", "Planned copies of a service start, or wait for their routes."
    COPIES_MISSING = "copies_missing", "warning", "Fewer copies of a service get requests than are planned."
    SLO_ATTAINED = "slo_attained", "info", "A service meets its SLO."
    SLO_MISSED = "slo_missed", "warning", "Too many requests of a service are answered late."
    BURN_FAST = "burn_fast", "alarm", "A service uses up its allowance of late requests many times too fast."
    QUEUEING = "queueing", "warning", "The gateway queues requests, up to a limit, because capacity is short."
    SHEDDING = (
        "shedding",
        "alarm",
        "Capacity is short: gateways answer 503 where no copy of a service can answer in time.",
    )

    # Jobs.
    JOB_QUEUED = "job_queued", "info", "A job waits for room on a GPU."
    JOB_PLACED = "job_placed", "info", "A job was placed on a GPU."
    JOB_STARTED = "job_started", "info", "A job started to run."
    JOB_PREEMPTED = (
        "job_preempted",
        "info",
        "A job was stopped to make room for more urgent work; it will continue later.",
    )
    JOB_SWAPPED = "job_swapped", "info", "The process of a preempted job waits in the host memory of its node."
    JOB_RESUMED = "job_resumed", "info", "A job continues where it was stopped."
    JOB_SAVES_MISSING = (
        "job_saves_missing",
        "warning",
        "A job continues where its saves are not: nodes that run it need one folder of checkpoints.",
    )
    JOB_FINISHED = "job_finished", "info", "A job is complete."
    JOB_FAILED = "job_failed", "warning", "A job ended before it was complete."
    JOB_LATE = "job_late", "warning", "At its current pace a job will miss its deadline."

    # Nodes and devices.
    NODE_JOINED = "node_joined", "info", "A node reported for the first time."
    NODE_LOST = "node_lost", "alarm", "A node was silent for longer than lostAfterSeconds; its instances are replaced."
    NODE_BACK = "node_back", "info", "A node that was silent or lost reports again."
    COPY_NOT_ROUTED = "copy_not_routed", "alarm", "Copies were reported that no gateway may send requests to."
    NODE_MISMATCH = "node_mismatch", "warning", "A node has other devices than declared, so nothing is planned there."
    NODE_QUARANTINED = "node_quarantined", "alarm", "A node's usage cannot be accounted for; all other nodes' is."
    NODE_RELEASED = "node_released", "info", "The usage of a quarantined node is accounted for again."
    USAGE_REFUSED = "usage_refused", "warning", "A node reported more usage than is possible; that part was refused."
    GPU_FAILED = "gpu_failed", "alarm", "A GPU failed or was fenced; its instances are replaced."
    GPU_REPLACED = (
        "gpu_replaced",
        "warning",
        "An index of a node means another device than before; it is used as before.",
    )
    WATTS_RESERVED = (
        "watts_reserved",
        "warning",
        "A node cannot keep a GPU's cap and SLOs by clock and batch, so plans use fewer watts there than are allowed.",
    )
    WATTS_RELEASED = "watts_released", "info", "A GPU is planned with all watts that it may draw again."
    GPU_BACK = "gpu_back", "info", "A GPU that had failed or was fenced has been healthy for a while."
    NOT_PREEMPTIBLE = "not_preemptible", "warning", "A job that must not be stopped runs there until it ends."
    NO_ROOM_ANYWHERE = (
        "no_room_anywhere",
        "warning",
        "No other place could serve the load of an instance there, so it stays.",
    )
    CORDON = "cordon", "info", "A person cordoned a node or GPU."
    UNCORDON = "uncordon", "info", "A person lifted a cordon."
    DRAIN_STARTED = "drain_started", "info", "A person asked to drain a node or GPU."
    DRAIN_DONE = "drain_done", "info", "The drained node or GPU is empty."
    DRAIN_STUCK = "drain_stuck", "warning", "The drain missed its deadline: something there cannot leave."
    CLUSTER_DRAIN = "cluster_drain", "info", "Who runs a node's cluster drains it; everything there moves."
    RECLAIM_NOTICE = "reclaim_notice", "warning", "The cloud takes a node back soon; everything there moves."
    RECLAIM_WITHDRAWN = "reclaim_withdrawn", "info", "The notice that a node will be reclaimed was withdrawn."
    NODE_RECLAIMED = "node_reclaimed", "info", "The cloud has taken a node back, as it had announced."
    RECLAIM_SHORT = (
        "reclaim_short",
        "alarm",
        "A service loses capacity when a node is reclaimed: no other place can serve it in time.",
    )
    RELEASABLE = "releasable", "info", "A node has been empty for longer than idleMinutes and could be given back."
    RENT_MORE = "rent_more", "info", "Renting more GPUs would serve the unserved load."

    RENT_ORDERED = "rent_ordered", "info", "The hook of a pool accepted the order of a node."
    RENT_TRIED = "rent_tried", "info", "A hook that only tries says what it would have done."
    RENT_JOINED = "rent_joined", "info", "A rented node reports for the first time."
    RENT_REFUSED = "rent_refused", "warning", "The hook of a pool refused the order of a node."
    RENT_HOOK_FAILED = "rent_hook_failed", "warning", "The hook of a pool gave no answer that can be used."
    RENT_CANCELLED = "rent_cancelled", "info", "An order of a node is wanted no longer."
    RENT_LATE = "rent_late", "alarm", "A node was ordered and does not report; it may be paid for."
    RENT_LOST = "rent_lost", "alarm", "A rented node is lost, or its Node was deleted; it is given back."
    RENT_LEAVING = "rent_leaving", "info", "A rented node goes: nothing needs it, or its cloud has taken it back."
    RENT_RETURNED = "rent_returned", "info", "A rented node was given back."
    RENT_STAYS = "rent_stays", "alarm", "A node that should be gone still reports; it may be paid for."
    RENT_UNORDERED = "rent_unordered", "alarm", "A node names a pool, and no order for it is known."

    # Changes by people.
    OBJECT_CREATED = "object_created", "info", "A person declared an object."
    OBJECT_CHANGED = "object_changed", "info", "A person changed an object."
    OBJECT_DELETED = "object_deleted", "info", "A person deleted an object."
    TOKEN_CREATED = "token_created", "info", "A person created a token."
    TOKEN_REVOKED = "token_revoked", "info", "A person revoked a token."
    WEBHOOK_TRIED = "webhook_tried", "info", "An admin tries whether events arrive here."
    WEBHOOK_FAILED = (
        "webhook_failed", "alarm", "A webhook did not get an event, or an entry of the audit, in twelve tries.",
    )  # fmt: skip

    # Tenants.
    OVER_BUDGET = "over_budget", "alarm", "A tenant has spent its monthly budget."
    NEAR_BUDGET = "near_budget", "warning", "At its current pace a tenant will spend its budget before the month ends."
    WITHIN_BUDGET = "within_budget", "info", "A tenant is within its monthly budget."
    BORROWING = "borrowing", "info", "A tenant uses more than its guarantee, on capacity that others leave idle."
    RECLAIMED = "reclaimed", "warning", "Capacity that a tenant had borrowed goes back to the tenants entitled to it."

    # Profiles.
    PROFILE_CORRECTED = "profile_corrected", "info", "Measurements changed the correction of a profile."
    PROFILE_WRONG = (
        "profile_wrong",
        "alarm",
        "A profile differs from the measurements by more than a correction may cover.",
    )

    # Profiling campaigns.
    CAMPAIGN_BEGUN = "campaign_begun", "info", "A GPU is emptied and reserved to measure a model on it."
    CAMPAIGN_DONE = "campaign_done", "info", "A model was measured; plans use the GPU again."
    CAMPAIGN_ENDED = "campaign_ended", "warning", "A campaign ended before its measurements were complete."

    # Replicas of workloads in a Kubernetes cluster.
    REPLICAS_PROPOSED = "replicas_proposed", "info", "Other replicas of a workload wait for approval."
    REPLICAS_APPROVED = "replicas_approved", "info", "A person approved other replicas of a workload."
    REPLICAS_REJECTED = "replicas_rejected", "info", "A person rejected other replicas of a workload."

    REPLICAS_WRITTEN = "replicas_written", "info", "A scaler set the replicas of a workload."
    REPLICAS_REFUSED = "replicas_refused", "warning", "The cluster refused to set the replicas of a workload."
    REPLICAS_OVERTAKEN = (
        "replicas_overtaken",
        "info",
        "Another changed a workload before its replicas were written, so it is decided again.",
    )

    SCALERS_PAUSED = "scalers_paused", "warning", "A person paused all scalers: every workload is advisory."
    SCALERS_RESUMED = "scalers_resumed", "info", "A person resumed all scalers: each workload has its own mode again."

    # Gateways.
    GATEWAY_SILENT = "gateway_silent", "warning", "A gateway no longer reports its counts."
    GATEWAY_BACK = "gateway_back", "info", "A gateway reports its counts again."
    GATEWAY_BEHIND = (
        "gateway_behind",
        "warning",
        "A gateway reports and has not taken the routes of now: copies that leave go on serving until it has.",
    )


MOST_MESSAGE_CHARACTERS = 2000
# Plans for these reasons have a message of what was wrong, changed or asked for.
TOLD_BY_MESSAGE = (
    Reason.CYCLE, Reason.SERVICE_APPLIED, Reason.FLEET_APPLIED, Reason.JOB_APPLIED,
    Reason.OPERATOR, Reason.RECLAIM_NOTICE,
)  # fmt: skip
_WORDS = {reason.value: reason for reason in Reason}


def reason_of(word: str) -> Reason | None:
    """Returns the reason with this word, or None for an unknown word."""
    return _WORDS.get(word)


def spell_why(word: str, message: str) -> str:
    """Returns what called for a plan: its message, where that says more than the reason; empty if neither is known."""
    reason = reason_of(word)
    if message and (reason is None or reason in TOLD_BY_MESSAGE):
        return message
    return reason.sentence if reason else word


def event_of(
    reason: Reason, message: str = "", *, kind: str = "", name: str = "", tenant: str = "",
    generation: int | None = None, about: str = "", severity: Severity | None = None,
) -> NewEvent:  # fmt: skip
    """Returns an event that carries the message, or else the reason's sentence. `name` may be `tenant/name`."""
    if not tenant and "/" in name:
        tenant, name = name.split("/", 1)
    text = (message or reason.sentence)[:MOST_MESSAGE_CHARACTERS]
    return NewEvent(reason.value, severity or reason.severity, text, kind, tenant, name, generation, about)
