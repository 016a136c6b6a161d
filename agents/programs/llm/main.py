"""The program `gpuwright-llm`: parses its arguments, listens, serves iteration by iteration, and exits once drained."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from agents.programs.lifetime import ServerProcess, new_loop, run
from agents.programs.llm.cost import CostError, StubCost, StubLimits, read_file, read_words
from agents.programs.llm.server import LlmServer, LlmSettings
from agents.programs.serve.backends import Stub
from agents.programs.serve.profile import StubProfile


def main(words: list[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(words)
    process = ServerProcess("gpuwright-llm", args.host, args.port, args.start_seconds)
    fault = _fault(args)
    if fault:
        parser.error(fault)
    try:
        cost = read_file(Path(args.profile)) if args.profile else StubCost()
        if args.cost:
            cost = read_words(args.cost)
    except CostError as error:
        process.say(str(error))
        return 2
    settings = LlmSettings(
        args.name,
        StubLimits(args.batch, max(args.tokens_per_iteration, args.batch + 1), args.kv_tokens),
        args.context,
        args.answer_tokens,
        args.prefix_share,
        args.queue,
        args.queue_tokens,
        args.request_seconds,
        os.environ.pop("GPUWRIGHT_CONTROL_TOKEN", ""),
        args.adapter_places,
    )
    loop = new_loop()
    device = Stub(loop, StubProfile(), args.memory_gib, os.environ)
    return run(loop, process, device, lambda deaf, end: LlmServer(loop, settings, cost, deaf, end, device.note_busy))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("gpuwright-llm", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0: any free port, named in the log")
    add("--name", default="model", help="of the model, as requests name it")
    add("--profile", default="", help="a JSON file with the coefficients of an iteration's time, as in a Profile")
    add("--cost", default="", help="instead of a file: baseMs=4,weightsMs=8,tokenMs=0.02,... (milliseconds)")
    add("--batch", type=int, default=64, help="most requests that run at once")
    add("--tokens-per-iteration", type=int, default=2048, help="of prompts and answers together")
    add("--kv-tokens", type=int, default=65_536, help="most tokens held in memory")
    add("--context", type=int, default=8192, help="most tokens of a request, prompt and answer together")
    add("--answer-tokens", type=int, default=128, help="of an answer to a request without max_tokens")
    add("--prefix-share", type=float, default=0.0, help="of a prompt's tokens that need no computing")
    add("--memory-gib", type=float, default=0.0, help="device memory that the server holds")
    add("--start-seconds", type=float, default=0.0, help="time that it takes to load")
    add("--queue", type=int, default=1024, help="most requests that may wait; beyond it: 503")
    add("--queue-tokens", type=int, default=0, help="most prompt tokens that may wait; 0: no limit")
    add("--request-seconds", type=float, default=15.0, help="limit for a request to arrive, and for a stalled reader")
    add("--adapter-places", type=int, default=0, help="most LoRA adapters that can be loaded; 0: loading is off")
    return parser


def _fault(args: argparse.Namespace) -> str:
    """Returns what is wrong with the arguments; empty if nothing is."""
    bounds = (
        ("--batch", args.batch, 1, 4096),
        ("--tokens-per-iteration", args.tokens_per_iteration, 1, 1_000_000),
        ("--kv-tokens", args.kv_tokens, 2, 1_000_000_000),
        ("--context", args.context, 2, 10_000_000),
        ("--answer-tokens", args.answer_tokens, 1, 1_000_000),
        ("--prefix-share", args.prefix_share, 0, 1),
        ("--start-seconds", args.start_seconds, 0, 3600),
        ("--queue", args.queue, 1, 100_000),
        ("--queue-tokens", args.queue_tokens, 0, 1_000_000_000),
        ("--adapter-places", args.adapter_places, 0, 256),
        ("--request-seconds", args.request_seconds, 0.1, 3600),
    )
    return next((f"{name} {value} is outside {low}..{high}" for name, value, low, high in bounds
                 if not low <= value <= high), "")  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
