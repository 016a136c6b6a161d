"""Compiled: writes patterns as columns of the linear programme."""

from __future__ import annotations

from solvers.compiled import njit
from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.search.arrays import F1, F2, F8, I1, I8
from solvers.planning.step_prices import rounded

SIGNATURE = (
    F1, I1, I1, F2, I1, I1, F1, F1, F1, F8, I1, I1, F1, F1, F1, F1, I8, I8, I1, I1, F1, F1,
)  # fmt: skip


@njit(SIGNATURE)
def write_columns(
    need: Floats, service: Ints, profile: Ints, energy: Floats, start: Ints, sms: Ints, rates: Floats,
    spare: Floats, used: Floats, share_price: float, step_start: Ints, step_order: Ints, length: Floats, rise: Floats,
    least: Floats, of_spare: Floats, market_row: int, step_row: int, into_start: Ints, into_row: Ints, into: Floats,
    cost: Floats,
) -> None:  # fmt: skip
    """Writes what each of a market's patterns covers of its services' rates, fills of their steps, and costs.

    A service's row has the service's number. What a step row is filled counts as a part of what all of the rate fills.
    """
    count = 0
    for column in range(start.shape[0] - 1):
        begin = count
        into_start[column] = begin
        cost[column] = share_price * used[column]
        for i in range(start[column], start[column + 1]):
            who, rate = service[i], rates[i]
            place = begin
            while place < count and into_row[place] != who:
                place += 1
            if place == count:
                into_row[place], into[place] = who, 0.0
                count += 1
            into[place] += rate / need[who]
            cost[column] += energy[profile[i], sms[i]] * rate
            for at in range(step_start[who], step_start[who + 1]):
                step = step_order[at]
                place = begin
                while place < count and into_row[place] != step_row + step:
                    place += 1
                if place == count:
                    into_row[place], into[place] = step_row + step, 0.0
                    count += 1
                into[place] += (rounded(rate, length[step], rise[step]) + of_spare[step] * spare[i]) / least[step]
        into_row[count], into[count] = market_row, 1.0
        count += 1
    into_start[start.shape[0] - 1] = count
