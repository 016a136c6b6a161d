"""Writes how the process of a job is to be followed on its node, from the job's manifest."""

from __future__ import annotations

from agents.contract.assignments import JobTerms
from app.control.domain.specs import Spec, may_swap, retries_of, units_of

WRONG_REQUESTS = 2  # gpuwright-batch ends with it when its file is not what the manifest says


def job_terms(job: Spec) -> JobTerms:
    """Returns how a job's process is followed on its node."""
    codes, checkpoint, progress = (job.get(name) or {} for name in ("exitCodes", "checkpoint", "progress"))
    failed = tuple(codes.get("failed", ()))
    wrong = (WRONG_REQUESTS,) if isinstance(job.get("requests"), str) and WRONG_REQUESTS not in failed else ()
    return JobTerms(
        units=units_of(job),
        done_codes=tuple(codes.get("done", (0,))),
        failed_codes=(*failed, *wrong),
        retries=retries_of(job),
        checkpoint_signal=checkpoint.get("signal") or "",
        checkpoint_command=tuple(checkpoint.get("command") or ()),
        checkpoint_seconds=float(checkpoint.get("seconds", 0.0)),
        progress_metric=progress.get("metric", ""),
        saved_metric=progress.get("savedMetric") or "",
        swaps=may_swap(job),
    )
