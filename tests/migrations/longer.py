"""Two made-up revisions behind the shipped ones: what ships is the start alone, and tests need a chain to walk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from app.store.database import schema

ADDED = ("9001", "9002")
STATEMENTS = {
    "9001": [
        "ALTER TABLE object ADD COLUMN made_up text NOT NULL DEFAULT ''",
        "CREATE TABLE made_up (id bigint PRIMARY KEY, name text NOT NULL)",
        "INSERT INTO made_up SELECT id, verb FROM audit",
        "CREATE INDEX made_up_name ON made_up (name)",
        "COMMENT ON TABLE made_up IS 'made up'",
    ],
    "9002": [
        "DROP INDEX made_up_name",
        "ALTER TABLE made_up ADD COLUMN at timestamptz",
        "UPDATE made_up SET at = now()",
        "ALTER TABLE made_up ALTER COLUMN at SET NOT NULL",
        "CREATE INDEX made_up_name ON made_up (name, at)",
    ],
}
BACK = {
    "9001": ["DROP TABLE made_up", "ALTER TABLE object DROP COLUMN made_up"],
    "9002": [
        "DROP INDEX made_up_name",
        "ALTER TABLE made_up DROP COLUMN at",
        "CREATE INDEX made_up_name ON made_up (name)",
    ],
}
REVISION = """
from alembic import op

revision = {name!r}
down_revision = {before!r}
branch_labels = None
depends_on = None


def upgrade() -> None:
    for sql in {statements!r}:
        op.execute(sql)


def downgrade() -> None:
    for sql in {back!r}:
        op.execute(sql)
"""


def lengthen(folder: Path, put: Callable[[object, str, object], None] = setattr) -> None:
    """Lets this process know the revisions, which are written to `folder`; `put` may be a test's monkeypatch."""
    before, shipped = schema.KNOWN, schema.configuration
    for name in ADDED:
        text = REVISION.format(name=name, before=before, statements=STATEMENTS[name], back=BACK[name])
        (folder / f"{name}_made_up.py").write_text(text)
        before = name

    def configuration() -> object:
        config = shipped()
        config.set_main_option("path_separator", "os")
        config.set_main_option("version_locations", f"{config.get_main_option('script_location')}/versions:{folder}")
        return config

    put(schema, "configuration", configuration)
    put(schema, "VERSIONS", (*schema.VERSIONS, *ADDED))
    put(schema, "KNOWN", before)
