"""Plans for replicas of workloads in a Kubernetes cluster, and what became of each write."""

from __future__ import annotations

UP = [
    """
    CREATE TABLE scale_plan (
        generation bigint PRIMARY KEY,
        epoch bigint NOT NULL,
        at timestamptz NOT NULL,
        confirmed_at timestamptz NOT NULL
    ) WITH (fillfactor = 50)
    """,
    "CREATE INDEX scale_plan_at ON scale_plan (at)",
    """
    CREATE TABLE scale_decision (
        generation bigint NOT NULL REFERENCES scale_plan ON DELETE CASCADE,
        namespace text COLLATE "C" NOT NULL,
        kind text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        since bigint NOT NULL,
        service text NOT NULL,
        mode text NOT NULL CHECK (mode IN ('advisory', 'approve', 'auto')),
        replicas int,
        wanted int,
        why text NOT NULL,
        hold text NOT NULL DEFAULT '',
        object_generation bigint NOT NULL,
        uid text NOT NULL,
        state text NOT NULL CHECK (state IN (
            'steady', 'held', 'advised', 'proposed', 'rejected', 'approved', 'writing', 'written', 'refused',
            'overtaken')),
        decided_by text NOT NULL DEFAULT '',
        decided_at timestamptz,
        resource_version text NOT NULL DEFAULT '',
        written_at timestamptz,
        settled_at timestamptz,
        outcome text NOT NULL DEFAULT '',
        resumes text NOT NULL DEFAULT '',
        is_blind boolean NOT NULL DEFAULT false,
        tries int NOT NULL DEFAULT 0,
        retry_at timestamptz,
        PRIMARY KEY (generation, namespace, kind, name)
    )
    """,
    # A workload has one write at most whose outcome is unknown.
    "CREATE UNIQUE INDEX scale_decision_writing ON scale_decision (namespace, kind, name) WHERE state = 'writing'",
    "CREATE INDEX scale_decision_open ON scale_decision (generation) WHERE state IN ('proposed', 'approved')",
    # Decisions that only repeat an earlier plan's are forgotten first.
    """
    CREATE INDEX scale_decision_carried ON scale_decision (generation)
        WHERE since < generation AND resource_version = ''
    """,
    # The step after one waits, also where another scaler leads by then.
    "CREATE INDEX scale_decision_written ON scale_decision (settled_at) WHERE state = 'written'",
    # A person puts all scalers into advisory until a person resumes them; the row says who did, since when, and why.
    """
    CREATE TABLE scale_pause (
        only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
        paused_by text NOT NULL,
        since timestamptz NOT NULL,
        message text NOT NULL
    )
    """,
]

DOWN = ["DROP TABLE scale_pause, scale_decision, scale_plan"]
