"""The carbon intensity of each region's grid, by date: an entry ends where the region's next one begins."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from sqlalchemy import Connection

from app.store.database.database import statement

END = statement(
    "end_carbon_intensity",
    """
    UPDATE carbon_intensity SET valid_to = :valid_from
    WHERE region = :region AND valid_from < :valid_from AND (valid_to IS NULL OR valid_to > :valid_from)
    """,
)
# It ends where the next entry begins, if there is one for a later day.
PUT = statement(
    "put_carbon_intensity",
    """
    INSERT INTO carbon_intensity (region, valid_from, valid_to, grams_per_kwh, source)
    VALUES (:region, :valid_from, (
        SELECT min(valid_from) FROM carbon_intensity WHERE region = :region AND valid_from > :valid_from),
        :grams, :source)
    ON CONFLICT (region, valid_from) DO UPDATE SET grams_per_kwh = excluded.grams_per_kwh, source = excluded.source
    """,
)


def put(connection: Connection, region: str, valid_from: date, grams_per_kwh: Decimal, source: str) -> None:
    """Stores the intensity that holds from this UTC day on."""
    values = {"region": region, "valid_from": valid_from, "grams": grams_per_kwh, "source": source}
    connection.execute(END, values)
    connection.execute(PUT, values)
