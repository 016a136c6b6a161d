"""Mixes of pods derived from a declared list, so that a placement policy is judged on more than one list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from lab.baselines.online import GpuRequest, Host

Pods = tuple[GpuRequest, ...]


def draw_several_gpus(pods: Sequence[GpuRequest], share: float, random: Random) -> Pods:
    """Returns as many pods, of those with GPUs this share with several."""
    without, alone, several = _split_by_gpus(pods)
    count = len(alone) + len(several)
    wanted = round(share * count) if several else 0
    return (*without, *random.choices(several, k=wanted), *random.choices(alone, k=count - wanted))


def draw_shared(pods: Sequence[GpuRequest], is_part: bool, random: Random) -> Pods:
    """Returns as many pods, all with GPUs sharing one, or none of them."""
    without, alone, several = _split_by_gpus(pods)
    kept = [pod for pod in (*alone, *several) if pod.is_part is is_part]
    return (*without, *random.choices(kept, k=len(alone) + len(several))) if kept else tuple(without)


def naming_types(pods: Sequence[GpuRequest], hosts: Sequence[Host], share: float, even: bool, random: Random) -> Pods:
    """Returns the pods, of which this share names a GPU type: in proportion to the GPUs, or each type as often."""
    gpus: Counter[str] = Counter()
    for host in hosts:
        gpus[host.gpu_type] += host.gpus
    names, weights = list(gpus), [1 if even else count for count in gpus.values()]

    def named(pod: GpuRequest) -> GpuRequest:
        if not pod.gpus or random.random() >= share:
            return pod
        return replace(pod, gpu_types=(random.choices(names, weights)[0],))

    return tuple(named(pod) for pod in pods)


def mixes(pods: Sequence[GpuRequest], hosts: Sequence[Host], seed: int) -> dict[str, Pods]:
    """Returns the mixes by name."""
    random = Random(seed)  # noqa: S311 (not for secrets)
    return {
        "default": tuple(pods),
        "several-5": draw_several_gpus(pods, 0.05, random),
        "several-20": draw_several_gpus(pods, 0.2, random),
        "several-50": draw_several_gpus(pods, 0.5, random),
        "all-shared": draw_shared(pods, True, random),
        "none-shared": draw_shared(pods, False, random),
        "typed-33": naming_types(pods, hosts, 0.33, False, random),
        "typed-80": naming_types(pods, hosts, 0.8, False, random),
        "typed-50-even": naming_types(pods, hosts, 0.5, True, random),
    }


def _split_by_gpus(pods: Sequence[GpuRequest]) -> tuple[list[GpuRequest], list[GpuRequest], list[GpuRequest]]:
    without = [pod for pod in pods if not pod.gpus]
    alone = [pod for pod in pods if pod.gpus == 1]
    return without, alone, [pod for pod in pods if pod.gpus > 1]
