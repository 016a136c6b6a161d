"""The rights of each scope: one table, scope x noun x verb, from which routes, docs and the isolation test are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from app.manifests.model import Kind
from app.problem import HttpProblem


class Scope(StrEnum):
    """The scope of a token's rights."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    NODE = "node"
    GATEWAY = "gateway"


class AccessVerb(StrEnum):
    """Reading is get, list and watch; writing is put, patch, delete and apply."""

    READ = "read"
    WRITE = "write"


class Noun(StrEnum):
    """Resources that are not kinds but are guarded all the same."""

    TOKEN = "Token"  # noqa: S105 (a name, not a secret)
    JOIN_TOKEN = "JoinToken"  # noqa: S105
    AUDIT = "Audit"
    REPORT = "Report"
    NODE_TOKEN = "NodeToken"  # noqa: S105
    ASSIGNMENT = "Assignment"
    TELEMETRY = "Telemetry"
    NODE_STATE = "NodeState"
    METRICS = "Metrics"
    ENDPOINTS = "Endpoints"
    GATEWAY_COUNTS = "GatewayCounts"
    PLAN = "Plan"
    PLAN_RECORD = "PlanRecord"
    WHAT_IF = "WhatIf"
    CORDON = "Cordon"
    EVENT = "Event"
    ATTAINMENT = "Attainment"
    OVERVIEW = "Overview"
    MONEY = "Money"
    CAMPAIGN = "Campaign"
    SIGN_IN_LINK = "SignInLink"
    SCALE = "Scale"
    WEBHOOK = "Webhook"


class Reach(StrEnum):
    """The objects of a noun that a grant covers."""

    ALL = "all"
    OWN = "own"  # the objects of the tenant, the node or the gateway
    ADMITTED = "admitted"  # those that admit the tenant: its models, and their profiles


class Role(StrEnum):
    """A scope, and whether the token is bound to a tenant."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    NODE = "node"
    GATEWAY = "gateway"
    TENANT_VIEWER = "tenant viewer"
    TENANT_OPERATOR = "tenant operator"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller: a token with its rights. It may be bound to a tenant, a node or a gateway."""

    id: str
    scope: Scope
    tenant: str = ""
    node: str = ""
    expires_at: datetime | None = None
    gateway: str = ""
    opened_by: str = ""  # of a console session: the token that opened it
    form_key: bytes = field(default=b"", repr=False)  # of a console session: only its own forms carry proof of it

    @property
    def account(self) -> str:
        """Returns the id that limits count by: the sessions of a token share its limits."""
        return self.opened_by or self.id

    @property
    def party(self) -> str:
        """Returns the id that shares of work count by: a tenant's tokens share theirs, as do a token's sessions."""
        return self.tenant or self.account

    @property
    def role(self) -> Role:
        return Role(f"tenant {self.scope}") if self.tenant else Role(self.scope)


# A request for another node or gateway is an attempt to impersonate it: 403 and not 404.
THEIR_OWN = (Noun.REPORT, Noun.NODE_TOKEN, Noun.GATEWAY_COUNTS)

Grants = Mapping[tuple[Kind | Noun, AccessVerb], Reach]

_KINDS = [kind for kind in Kind if kind is not Kind.STATE]
_READ_ALL: Grants = {
    **{(kind, AccessVerb.READ): Reach.ALL for kind in _KINDS},
    (Noun.METRICS, AccessVerb.READ): Reach.ALL,
    (Noun.ASSIGNMENT, AccessVerb.READ): Reach.ALL,
    (Noun.TELEMETRY, AccessVerb.READ): Reach.ALL,
    (Noun.NODE_STATE, AccessVerb.READ): Reach.ALL,
    (Noun.ENDPOINTS, AccessVerb.READ): Reach.ALL,
    (Noun.PLAN, AccessVerb.READ): Reach.ALL,
    (Noun.PLAN_RECORD, AccessVerb.READ): Reach.ALL,
    (Noun.CORDON, AccessVerb.READ): Reach.ALL,
    (Noun.EVENT, AccessVerb.READ): Reach.ALL,
    (Noun.ATTAINMENT, AccessVerb.READ): Reach.ALL,
    (Noun.MONEY, AccessVerb.READ): Reach.ALL,
    (Noun.OVERVIEW, AccessVerb.READ): Reach.ALL,
    (Noun.CAMPAIGN, AccessVerb.READ): Reach.ALL,
    (Noun.SCALE, AccessVerb.READ): Reach.ALL,
    (Noun.SIGN_IN_LINK, AccessVerb.WRITE): Reach.OWN,  # its session has the rights of the token
}
_OPERATE: Grants = {
    **_READ_ALL,
    **{(kind, AccessVerb.WRITE): Reach.ALL for kind in _KINDS if kind not in (Kind.TENANT, Kind.POOL)},
    (Noun.CAMPAIGN, AccessVerb.WRITE): Reach.ALL,
    (Noun.PLAN, AccessVerb.WRITE): Reach.ALL,  # approve, reject, pause, resume, abort, rollback
    (Noun.SCALE, AccessVerb.WRITE): Reach.ALL,  # approve, reject, pause, resume
    (Noun.WHAT_IF, AccessVerb.WRITE): Reach.ALL,  # it changes nothing, and keeps a core busy
    (Noun.CORDON, AccessVerb.WRITE): Reach.ALL,
}
_TENANT_READ: Grants = {
    (Kind.SERVICE, AccessVerb.READ): Reach.OWN,
    (Kind.JOB, AccessVerb.READ): Reach.OWN,
    (Noun.NODE_STATE, AccessVerb.READ): Reach.OWN,  # of what runs there, where something of the tenant's does
    (Noun.ENDPOINTS, AccessVerb.READ): Reach.OWN,  # without addresses: copies are reached through a gateway
    (Noun.PLAN, AccessVerb.READ): Reach.OWN,  # its own instances; of the others their number
    (Noun.EVENT, AccessVerb.READ): Reach.OWN,
    (Noun.ATTAINMENT, AccessVerb.READ): Reach.OWN,
    (Noun.OVERVIEW, AccessVerb.READ): Reach.OWN,
    (Noun.MONEY, AccessVerb.READ): Reach.OWN,
    (Noun.SCALE, AccessVerb.READ): Reach.OWN,  # of the namespace of its name
    (Kind.GPU_TYPE, AccessVerb.READ): Reach.ALL,
    (Kind.MODEL, AccessVerb.READ): Reach.ADMITTED,
    (Kind.PROFILE, AccessVerb.READ): Reach.ADMITTED,
    (Noun.SIGN_IN_LINK, AccessVerb.WRITE): Reach.OWN,
}

TABLE: Mapping[Role, Grants] = {
    Role.VIEWER: _READ_ALL,
    Role.OPERATOR: _OPERATE,
    Role.ADMIN: {
        **_OPERATE,
        (Kind.TENANT, AccessVerb.WRITE): Reach.ALL,
        (Kind.POOL, AccessVerb.WRITE): Reach.ALL,  # it lets the planner spend money
        (Noun.TOKEN, AccessVerb.READ): Reach.ALL,
        (Noun.TOKEN, AccessVerb.WRITE): Reach.ALL,
        (Noun.JOIN_TOKEN, AccessVerb.READ): Reach.ALL,
        (Noun.JOIN_TOKEN, AccessVerb.WRITE): Reach.ALL,
        (Noun.AUDIT, AccessVerb.READ): Reach.ALL,
        (Noun.WEBHOOK, AccessVerb.READ): Reach.ALL,
        (Noun.WEBHOOK, AccessVerb.WRITE): Reach.ALL,  # to try it, to send dead letters again or discard them
    },
    Role.NODE: {
        (Noun.REPORT, AccessVerb.WRITE): Reach.OWN,
        (Noun.NODE_TOKEN, AccessVerb.WRITE): Reach.OWN,
        (Noun.ASSIGNMENT, AccessVerb.READ): Reach.OWN,
    },
    Role.GATEWAY: {
        (Noun.ENDPOINTS, AccessVerb.READ): Reach.ALL,
        (Noun.GATEWAY_COUNTS, AccessVerb.WRITE): Reach.OWN,
    },
    Role.TENANT_VIEWER: _TENANT_READ,
    Role.TENANT_OPERATOR: {
        **_TENANT_READ,
        (Kind.SERVICE, AccessVerb.WRITE): Reach.OWN,
        (Kind.JOB, AccessVerb.WRITE): Reach.OWN,
    },
}


def reach(principal: Principal, noun: Kind | Noun, verb: AccessVerb) -> Reach | None:
    """Returns the objects of `noun` that the principal may `verb`; None when it may not `verb` any."""
    return TABLE[principal.role].get((noun, verb))


def require(principal: Principal, noun: Kind | Noun, verb: AccessVerb, owner: str = "") -> Reach:
    """Refuses what the table does not grant.

    `owner` is the tenant (node, gateway) of the object. To this principal another tenant's object does not exist: 404,
    even if it does.
    """
    granted, bound = reach(principal, noun, verb), principal.tenant or principal.node or principal.gateway
    if granted is None or (granted is Reach.OWN and noun in THEIR_OWN and owner != bound):
        if isinstance(noun, Kind) and noun.tenanted and principal.tenant and owner not in ("", principal.tenant):
            raise HttpProblem("not-found", f"there is no {noun} of that name")
        raise HttpProblem("forbidden", f"a token of scope {principal.role} may not {verb} {noun} objects")
    if granted is Reach.OWN and owner and owner != bound:
        raise HttpProblem("not-found", f"there is no {noun} of that name")
    return granted


def may(principal: Principal, noun: Kind | Noun, verb: AccessVerb, owner: str = "") -> bool:
    """Returns True if `require` admits the principal."""
    try:
        require(principal, noun, verb, owner)
    except HttpProblem:
        return False
    return True


def readable(principal: Principal) -> list[Kind]:
    """Returns the kinds of which the principal may read some objects."""
    return [kind for kind in _KINDS if reach(principal, kind, AccessVerb.READ)]
