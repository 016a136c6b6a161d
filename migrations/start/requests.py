"""Requests to nodes: cordons, notices of reclaim, profiling campaigns with what they measured, and logs."""

from __future__ import annotations

UP = [
    """
    CREATE TABLE cordon (
        node text COLLATE "C" NOT NULL,
        gpu smallint NOT NULL DEFAULT -1,
        mode text NOT NULL CHECK (mode IN ('cordon', 'drain')),
        deadline timestamptz,
        asked_by text NOT NULL,
        asked_at timestamptz NOT NULL DEFAULT now(),
        message text NOT NULL DEFAULT '',
        PRIMARY KEY (node, gpu)
    )
    """,
    # Notices that a node will be reclaimed, by those who give them; without a time, its cluster drains it. A notice of
    # the node's agent stays when an operator withdraws it, so that the next report does not give it again.
    """
    CREATE TABLE reclaim_notice (
        node text COLLATE "C" NOT NULL,
        source text NOT NULL CHECK (source IN ('request', 'node')),
        deadline timestamptz,
        is_withdrawn boolean NOT NULL DEFAULT false,
        asked_by text NOT NULL,
        asked_at timestamptz NOT NULL DEFAULT now(),
        message text NOT NULL DEFAULT '',
        PRIMARY KEY (node, source),
        CONSTRAINT asked_with_time CHECK (deadline IS NOT NULL OR source = 'node')
    )
    """,
    """
    CREATE TABLE campaign (
        id text COLLATE "C" PRIMARY KEY,
        node text COLLATE "C" NOT NULL,
        gpu int NOT NULL,
        model text COLLATE "C" NOT NULL,
        variant text COLLATE "C" NOT NULL,
        gpu_type text COLLATE "C" NOT NULL,
        request jsonb NOT NULL,
        state text NOT NULL CHECK (state IN ('waiting', 'measuring', 'done', 'stopped', 'failed')),
        reason text NOT NULL DEFAULT '',
        message text NOT NULL DEFAULT '',
        asked_by text NOT NULL,
        asked_at timestamptz NOT NULL DEFAULT now(),
        began_at timestamptz,
        ended_at timestamptz,
        pending jsonb,
        failures jsonb NOT NULL DEFAULT '[]',
        CHECK ((ended_at IS NOT NULL) = (state IN ('done', 'stopped', 'failed')))
    )
    """,
    # A node measures for one campaign at a time.
    "CREATE UNIQUE INDEX campaign_live ON campaign (node) WHERE state IN ('waiting', 'measuring')",
    "CREATE INDEX campaign_asked ON campaign (asked_at)",
    """
    CREATE TABLE campaign_measurement (
        campaign text COLLATE "C" NOT NULL REFERENCES campaign ON DELETE CASCADE,
        sequence int NOT NULL,
        measured jsonb NOT NULL,
        received_at timestamptz NOT NULL,
        PRIMARY KEY (campaign, sequence)
    )
    """,
    # Until the nodes that hold the logs have answered.
    """
    CREATE TABLE log_request (
        id text COLLATE "C" PRIMARY KEY,
        tenant text COLLATE "C" NOT NULL,
        node text COLLATE "C" NOT NULL,
        instance text COLLATE "C" NOT NULL,
        begins text NOT NULL,
        version bigint NOT NULL,
        until timestamptz NOT NULL,
        answered_at timestamptz,
        ends text NOT NULL DEFAULT '',
        body text NOT NULL DEFAULT '' CHECK (octet_length(body) <= 1048576)
    )
    """,
    "CREATE INDEX log_request_version ON log_request (version)",
    "CREATE INDEX log_request_until ON log_request (until)",
]

DOWN = ["DROP TABLE log_request, campaign_measurement, campaign, reclaim_notice, cordon"]
