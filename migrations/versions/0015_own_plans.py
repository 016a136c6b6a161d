"""A plan that is deleted names its tenants itself, so the plans of tenants need one index only.

With a second index on the generation alone, Postgres may read the plans of other tenants to find the newest of one.
"""

from __future__ import annotations

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
SERVES = "0008"

LISTING = """
    CREATE OR REPLACE FUNCTION plan_is_listed() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF TG_OP = 'DELETE' THEN
            DELETE FROM own_plan WHERE generation = OLD.generation{tenants};
        ELSE
            INSERT INTO own_plan SELECT DISTINCT split_part(name, '/', 1), NEW.generation
            FROM unnest(NEW.services) AS name ON CONFLICT DO NOTHING;
        END IF;
        RETURN NULL;
    END $$
"""
TENANTS = " AND tenant = ANY (SELECT split_part(name, '/', 1) FROM unnest(OLD.services) AS name)"
UP = [LISTING.format(tenants=TENANTS), "DROP INDEX own_plan_generation"]
DOWN = ["CREATE INDEX own_plan_generation ON own_plan (generation)", LISTING.format(tenants="")]


def upgrade() -> None:
    for command in UP:
        op.execute(command)


def downgrade() -> None:
    for command in DOWN:
        op.execute(command)
