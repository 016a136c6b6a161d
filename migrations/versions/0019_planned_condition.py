"""The condition that a plan carries a service's whole load is called Planned: Served is what copies answer."""

from __future__ import annotations

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None
SERVES = "0008"

# A planner of the version before still writes Served; both conditions then stay until the object changes.
TYPES, REASONS = ("Served", "Planned"), ("Served", "AllPlanned")  # before and after
RENAME = """
    UPDATE object SET status = jsonb_set(status, '{conditions}', (
        SELECT jsonb_agg(
            CASE WHEN known.value ->> 'type' = '%s' THEN jsonb_set(known.value, '{type}', '"%s"') ELSE known.value END
            || CASE WHEN known.value ->> 'reason' = '%s' THEN CAST('{"reason": "%s"}' AS jsonb) ELSE '{}' END
            ORDER BY known.ordinality)
        FROM jsonb_array_elements(status -> 'conditions') WITH ORDINALITY AS known))
    WHERE kind IN ('Service', 'Tenant')
      AND (status @> '{"conditions": [{"type": "%s"}]}' OR status @> '{"conditions": [{"reason": "%s"}]}')
"""


def upgrade() -> None:
    op.execute(RENAME % (*TYPES, *REASONS, TYPES[0], REASONS[0]))


def downgrade() -> None:
    op.execute(RENAME % (*reversed(TYPES), *reversed(REASONS), TYPES[1], REASONS[1]))
