"""Compiled: writes patterns as columns of the linear programme."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvers.compiled import njit
from solvers.planning.bound.step_lines import H2, step_line
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.arrays import F1, F2, F8, I1, I8
from solvers.planning.step_prices import rounded

SIGNATURE = (
    I1, F1, I1, I1, F2, F2, F8, F8, F8, F8, H2, H2, I8, I8, I1, I1, I1, I1, F1, F1, F2, I1, I1, F1, F1, F1, F1, I8, I8,
    I8, I1, I1, F1, F1,
)  # fmt: skip


@njit(SIGNATURE, makes_arrays=True)
def write_columns(
    family: Ints, part: Floats, service: Ints, profile: Ints, pressure: Floats, energy: Floats, room_gib: float,
    share_price: float, lo: float, hi: float, at_lo: Any, at_hi: Any, is_alone: int, first: int, start: Ints,
    offers: Ints, sms: Ints, end: Ints, rates: Floats, spare: Floats, about: Floats, step_start: Ints,
    step_order: Ints, length: Floats, rise: Floats, least: Floats, of_spare: Floats, market_row: int, class_row: int,
    step_row: int, into_start: Ints, into_row: Ints, into: Floats, cost: Floats,
) -> None:  # fmt: skip
    """Writes what each of a class's patterns covers of every family's money, fills of its services' steps, and costs.

    A family's row has the family's number. What a step row is filled counts as a part of what all of the rate fills.
    about: (pressure, memory, SM%) of each pattern.
    """
    ends = np.zeros(2)
    count = 0
    for column in range(start.shape[0] - 1):
        begin = count
        into_start[column] = begin
        cost[column] = 0.0
        for i in range(start[column], start[column + 1]):
            offer, x = offers[i] - first, sms[i]
            who = service[offer]
            place = begin
            while place < count and into_row[place] != family[who]:
                place += 1
            if place == count:
                into_row[place], into[place] = family[who], 0.0
                count += 1
            into[place] += rates[i] * part[who]
            cost[column] += energy[profile[offer], x] * rates[i]
            for at in range(step_start[who], step_start[who + 1]):
                step = step_order[at]
                if is_alone:
                    filled = rounded(rates[i], length[step], rise[step])
                else:
                    own = pressure[profile[offer], x]
                    step_line(length[step], rise[step], own, lo, hi, at_lo[offer, x], at_hi[offer, x], ends)
                    filled = ends[end[column]]
                place = begin
                while place < count and into_row[place] != step_row + step:
                    place += 1
                if place == count:
                    into_row[place], into[place] = step_row + step, 0.0
                    count += 1
                into[place] += (filled + of_spare[step] * spare[i]) / least[step]
        used = 1.0 if is_alone else max(about[column, 2] / 100.0, about[column, 1] / room_gib)
        cost[column] += share_price * used
        into_row[count], into[count] = market_row, 1.0
        count += 1
        if not is_alone:
            into_row[count], into[count] = class_row, about[column, 0] - (hi if end[column] else lo)
            into_row[count + 1], into[count + 1] = class_row + 1, (about[column, 1] - room_gib) / room_gib
            count += 2
    into_start[start.shape[0] - 1] = count
