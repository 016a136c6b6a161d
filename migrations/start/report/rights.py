"""The rights that readers of reports have on tables which later migrations let them read."""

from __future__ import annotations

from migrations.start.report.tables import READERS

OF_OBJECTS = "SELECT (kind, tenant, name, spec) ON object"
ADMIT_AND_DISMISS = READERS[-1].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


def write_rights_of_readers(*rights: str) -> str:
    """Returns the functions that grant readers of reports these rights beside the first ones, and take them back.

    A later call replaces the functions: it must name all rights that calls before it gave.
    """
    lines = ADMIT_AND_DISMISS.split("\n")
    return "\n".join(
        "\n".join([line, *(line.replace(OF_OBJECTS, right) for right in rights)]) if OF_OBJECTS in line else line
        for line in lines
    )
