"""Why things happen, in words that do not change: the one list of reasons for decisions, events and metrics."""

from __future__ import annotations

from enum import StrEnum

from app.store.world.events import NewEvent, Severity

__all__ = ["NewEvent", "Reason", "Severity", "event_of", "reason_of"]


class Reason(StrEnum):
    """A reason, how much it matters, and the sentence that explains it to whoever meets it first."""

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
    CYCLE = "cycle", "info", "The period between full plans was over."
    FIRST_PLAN = "first_plan", "info", "Nothing was planned before."
    JOB_APPLIED = "job_applied", "info", "A job was declared, changed or deleted."
    FLEET_APPLIED = "fleet_applied", "info", "Nodes, GPU types, models, profiles, tenants or the policy were changed."
    LOAD_ROSE = "load_rose", "info", "More is asked of a service than its plan was made for."
    OPERATOR = "operator", "info", "A person asked for it."
    ROLLBACK = "rollback", "info", "A person asked for an earlier plan again."
    CORRECTED = "corrected", "info", "Measuring moved the correction of a profile far enough to plan anew."

    # What came of a cycle.
    PLANNED = "planned", "info", "A new plan was made and recorded."
    UNCHANGED = "unchanged", "info", "Nothing that decides a plan has changed, so the plan in force stands."
    NOTHING_TO_PLAN = "nothing_to_plan", "info", "There is no GPU to plan on, or nothing to place."
    SOLVER_OUT_OF_TIME = "solver_out_of_time", "warning", "The solver had no plan by its deadline; the last one stands."
    SOLVER_CRASHED = "solver_crashed", "alarm", "The solver's process died; the last plan stands."
    SOLVER_WRONG = "solver_wrong", "alarm", "The judge refused the solver's plan; the last one stands."
    OVERTAKEN = "overtaken", "info", "Another decision was recorded after this one's snapshot: it was not recorded."

    # Who leads.
    LEADER_CHANGED = "leader_changed", "info", "Another planner took the lease and leads under a new epoch."

    # What is held back.
    TOO_MANY_MOVES = (
        "too_many_moves",
        "info",
        "A cheaper plan would hand over much of the fleet: a small one was taken.",
    )
    NOT_WORTH_ITS_CHURN = "not_worth_its_churn", "info", "What the change saves over the horizon is less than it costs."
    NO_ROOM_TO_HAND_OVER = (
        "no_room_to_hand_over", "warning", "No order of steps makes the new copies before the old ones end.",
    )  # fmt: skip
    ADVISORY = "advisory", "info", "The mode is advisory: the change is shown and not made."
    AWAITS_APPROVAL = "awaits_approval", "info", "The mode is approve: the change waits for a person."
    FROZEN = "frozen", "warning", "The tenant's budget is spent: its services get nothing more than they have."
    TOO_FEW_GPUS = "too_few_gpus", "warning", "Fewer GPUs may run a service than its minInstances: what stands stays."
    CORDONED = "cordoned", "info", "The node or GPU is cordoned: nothing new is placed there."
    NODE_SILENT = "node_silent", "warning", "A node is not heard of: what runs there is presumed to go on."
    ROLLOUT_UNDER_WAY = "rollout_under_way", "info", "The rollout of an earlier plan is not through yet."
    CANARY_FIRST = "canary_first", "info", "A new profile or variant is tried on one instance before the others."

    # Rollouts.
    STEP_FAILED_LATELY = (
        "step_failed_lately",
        "info",
        "Its last step failed a while ago: it rests.",
    )
    ROLLOUT_DONE = "rollout_done", "info", "What runs is what the plan says."
    ROLLOUT_STOPPED = "rollout_stopped", "alarm", "A step failed its check: nothing further is changed."
    ROLLOUT_PAUSED = "rollout_paused", "info", "A person paused the rollout."
    ROLLOUT_RESUMED = "rollout_resumed", "info", "A person let the rollout go on."
    ROLLOUT_ABORTED = "rollout_aborted", "warning", "A person ended the rollout; what was reached stays."
    ROLLBACK_REFUSED = "rollback_refused", "warning", "An earlier plan was asked for, and cannot be brought back."
    ROLLED_BACK = "rolled_back", "warning", "An earlier plan was brought back."
    STEP_TIMED_OUT = "step_timed_out", "warning", "A node did not bring a copy up in the time that a step has."
    STEP_FAILED = "step_failed", "warning", "A node could not bring a copy up."
    CAPACITY_AT_RISK = "capacity_at_risk", "warning", "The next step would leave a service too little: it waits."
    CANARY_PASSED = "canary_passed", "info", "The first instance kept the SLO: the others follow."
    CANARY_FAILED = "canary_failed", "alarm", "The first instance missed the SLO: the others stay as they are."
    PLAN_PROPOSED = "plan_proposed", "info", "A plan waits for approval."
    PLAN_APPROVED = "plan_approved", "info", "A person approved a plan."
    PLAN_REJECTED = "plan_rejected", "info", "A person rejected a plan."
    PLAN_EXPIRED = "plan_expired", "info", "A plan waited until what it was made from no longer held."

    # Services.
    SERVED = "served", "info", "The plan carries the whole of what is asked."
    UNSERVED = "unserved", "warning", "The plan does not carry all that is asked of a service."
    SLO_ATTAINED = "slo_attained", "info", "A service answers as its SLO says."
    SLO_MISSED = "slo_missed", "warning", "Too many of a service's requests are late."
    BURN_FAST = "burn_fast", "alarm", "A service spends its allowance of late requests many times too fast."
    QUEUEING = "queueing", "warning", "Requests wait at the gateway, up to a limit, for lack of capacity."
    SHEDDING = "shedding", "alarm", "A share of a service's requests is answered 503 for lack of capacity."

    # Jobs.
    JOB_QUEUED = "job_queued", "info", "A job waits for a place."
    JOB_PLACED = "job_placed", "info", "A job got a place."
    JOB_STARTED = "job_started", "info", "A job runs."
    JOB_PREEMPTED = "job_preempted", "info", "A job was stopped for what is more urgent, and goes on later."
    JOB_RESUMED = "job_resumed", "info", "A job goes on where it was stopped."
    JOB_FINISHED = "job_finished", "info", "A job is done."
    JOB_FAILED = "job_failed", "warning", "A job ended without being done."
    JOB_LATE = "job_late", "warning", "At its pace a job will miss its deadline."

    # Nodes and devices.
    NODE_JOINED = "node_joined", "info", "A node reports for the first time."
    NODE_LOST = "node_lost", "alarm", "A node was silent for longer than lostAfterSeconds: what ran there is replaced."
    NODE_BACK = "node_back", "info", "A node that was silent or lost reports again."
    NODE_MISMATCH = "node_mismatch", "warning", "A node has other devices than were declared: nothing is planned there."
    GPU_FAILED = "gpu_failed", "alarm", "A GPU is failed or fenced: what ran there is replaced."
    GPU_BACK = "gpu_back", "info", "A GPU that was failed or fenced is well again, and has been for a while."
    NOT_PREEMPTIBLE = "not_preemptible", "warning", "A job that may not be stopped runs there: it goes on to its end."
    NO_ROOM_ANYWHERE = "no_room_anywhere", "warning", "What runs there would be served nowhere else: it stays."
    CORDON = "cordon", "info", "A person cordoned a node or GPU."
    UNCORDON = "uncordon", "info", "A person lifted a cordon."
    DRAIN_STARTED = "drain_started", "info", "A person asked for a node or GPU to be emptied."
    DRAIN_DONE = "drain_done", "info", "Nothing runs any more on what was to be emptied."
    DRAIN_STUCK = "drain_stuck", "warning", "Something cannot leave what is to be emptied by its deadline."
    RELEASABLE = "releasable", "info", "A node has been empty for longer than idleMinutes: it could be given back."
    RENT_MORE = "rent_more", "info", "GPUs that could be rented would serve what is left unserved."

    # Tenants.
    OVER_BUDGET = "over_budget", "alarm", "A tenant has spent its budget of the month."
    NEAR_BUDGET = "near_budget", "warning", "At its pace a tenant will have spent its budget before the month ends."
    WITHIN_BUDGET = "within_budget", "info", "A tenant has not spent its budget of the month."
    BORROWING = "borrowing", "info", "A tenant uses more than its guarantee, of what others leave idle."
    RECLAIMED = "reclaimed", "warning", "What a tenant had borrowed goes back to those who are entitled to it."

    # Profiles.
    PROFILE_CORRECTED = "profile_corrected", "info", "What was measured moved the correction of a profile."
    PROFILE_WRONG = "profile_wrong", "alarm", "A profile is further from what is measured than a correction may go."

    # Gateways.
    GATEWAY_SILENT = "gateway_silent", "warning", "A gateway no longer says what it counts."
    GATEWAY_BACK = "gateway_back", "info", "A gateway says again what it counts."


_WORDS = {reason.value: reason for reason in Reason}


def reason_of(word: str) -> Reason | None:
    """The reason of this word; None where it is none of ours."""
    return _WORDS.get(word)


def event_of(
    reason: Reason, message: str = "", *, kind: str = "", name: str = "", tenant: str = "",
    generation: int | None = None, about: str = "", severity: Severity | None = None,
) -> NewEvent:  # fmt: skip
    """The event of a reason; without a message its sentence. `name` may be as plans have it, `tenant/name`."""
    if not tenant and "/" in name:
        tenant, name = name.split("/", 1)
    said = (message or reason.sentence)[:2000]
    return NewEvent(reason.value, severity or reason.severity, said, kind, tenant, name, generation, about)
