"""The settings that `gpuwright profile` is asked to measure, and the words in which it shows results."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.manifests.drafts import write_error
from cli.arguments import not_negative
from cli.exits import Failed
from cli.output import format_yaml, number, plain, print_data, say, span

MOST_SECONDS = 60.0  # least time at each setting, as campaigns allow
LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"


@dataclass(frozen=True, slots=True)
class ModelVariant:
    """A model, and its variant; empty: its only one."""

    model: str
    variant: str = ""

    @property
    def words(self) -> str:
        return f"{self.model}/{self.variant}" if self.variant else self.model


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """A node, and one of its GPUs; None: any."""

    node: str
    gpu: int | None = None


def read_model(text: str) -> ModelVariant:
    """Reads MODEL or MODEL/VARIANT."""
    match = re.fullmatch(rf"({LABEL})(?:/([A-Za-z0-9][-A-Za-z0-9_.]{{0,62}}))?", text)
    if match is None:
        raise Failed(f"{text!r} is no model: use MODEL or MODEL/VARIANT, like resnet50/fp16")
    return ModelVariant(match[1], match[2] or "")


def read_place(text: str) -> GpuPlace:
    """Reads NODE or NODE/GPU."""
    match = re.fullmatch(rf"({LABEL})(?:/([0-9]{{1,4}}))?", text)
    if match is None:
        raise Failed(f"{text!r} is no node or GPU: use NODE or NODE/INDEX, like node-7/2")
    return GpuPlace(match[1], int(match[2]) if match[2] else None)


def whole_numbers(text: str) -> list[int]:
    """Reads `1,2,4`."""
    words = text.split(",")
    if not all(re.fullmatch(r"[1-9][0-9]{0,5}", word) for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: whole numbers over 0 with commas, like 1,2,4,8")
    return sorted({int(word) for word in words})


def batches_of(args: argparse.Namespace) -> list[int] | None:
    """Returns the batches that were asked for; None: none were. Raises Failed where no Profile can have one."""
    from app.campaigns.reports.figures import LARGEST_BATCH

    found: list[int] | None = args.batches
    if found and found[-1] > LARGEST_BATCH:
        raise Failed(f"--batches: {found[-1]} is outside 1..{LARGEST_BATCH}, the batches of a Profile")
    return found


def shares(text: str) -> list[int]:
    """Reads `10,50,100`, shares of a GPU's SMs."""
    found = whole_numbers(text)
    if found[-1] > 100:
        raise argparse.ArgumentTypeError(f"{found[-1]} is no share of a GPU's SMs; allowed: 1..100")
    return found


def seconds_each(text: str) -> float:
    """Reads the least time at each setting."""
    found = not_negative(text)
    if found > MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed: seconds from 0 to {MOST_SECONDS:g}")
    return found


def models(text: str) -> list[ModelVariant]:
    """Reads `embed,search/int8`."""
    try:
        return [read_model(word) for word in text.split(",")]
    except Failed as failed:
        raise argparse.ArgumentTypeError(str(failed)) from None


def setting_words(setting: Mapping[str, Any], neighbours: Sequence[str], clocks: Sequence[int]) -> str:
    """Returns a setting in words, with the models beside it, and its clock where a campaign has several."""
    words = f"batch {setting['batch']} at {number(setting['smPercent'])} %"
    if len(clocks) > 1:
        words += f" and {setting['clockMhz']} MHz"
    beside = " and ".join(
        f"{neighbours[neighbour['number']]} batch {neighbour['batch']} at {number(neighbour['smPercent'])} %"
        for neighbour in setting.get("beside", ())
    )
    return f"{words} beside {beside}" if beside else words


def say_measured(
    count: int, most: int, measured: Mapping[str, Any], seconds_left: float | None, clocks: Sequence[int] = ()
) -> None:
    """Says what was measured just now, and how long the rest takes at most."""
    left = "" if seconds_left is None else f"; at most {span(seconds_left)} left"
    if copies := measured.get("copies"):
        slow = ", ".join(
            f"{copy['model']} batch {copy['batch']} at {number(copy['smPercent'])} % is "
            f"{copy['besideMs'] / copy['aloneMs']:.3g} times as slow"
            for copy in copies
        )
        say(f"{count} of at most {most}: {slow}{left}")
        return
    watts = measured.get("powerW", 0.0) - measured.get("idleW", 0.0)
    power = f", {number(round(watts, 1))} W above idle" if measured.get("powerW") else ""
    say(
        f"{count} of at most {most}: {setting_words(measured['setting'], (), clocks)}: "
        f"{number(round(measured['latencyMs'], 4))} ms, spread {number(round(measured['spreadMs'], 4))} ms over "
        f"{measured['samples']} batches{power}{left}"
    )


def name_remedy(measurements: int, setting: Mapping[str, Any] | None, clocks: Sequence[int] = ()) -> str:
    """Returns what would make a curve surer; `setting` is the one to measure next, None where all are measured."""
    if setting is None:
        return "all its settings are measured; measure longer (--seconds) or others (--batches, --sm)"
    words = setting_words(setting, (), clocks)
    return f"more measurements make it surer (--most {2 * measurements}), first of all {words}"


def show(args: argparse.Namespace, profiles: list[Any], measurements: int, seconds: float, error: float | None) -> None:
    """Prints the Profiles: as manifests, or as JSON with the effort that they took."""
    answer = {
        "profiles": profiles,
        "measurements": measurements,
        "seconds": round(seconds, 3),
        "left_out_error": error,
    }
    if print_data(answer, "json" if args.json else "text"):
        return
    print("\n---\n".join(format_yaml(profile) for profile in profiles))
    missed = "" if error is None else f"; a measurement that the curve is not shown is missed by {write_error(error)}"
    say(plain(f"{measurements} measurements in {span(seconds)}{missed}"))
