"""The program `gpuwright-llm`: parses its arguments, listens, serves iteration by iteration, and exits once drained."""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import sys
import threading
from pathlib import Path

# As in gpuwright-serve: loopback needs no TLS, and importing it would cost each server 4 MB.
_HIDDEN = "ssl" not in sys.modules
if _HIDDEN:
    sys.modules["ssl"] = None  # type: ignore[assignment]
import asyncio  # noqa: E402

if _HIDDEN:
    del sys.modules["ssl"]

from agents.programs.llm.cost import CostError, StubCost, StubLimits, read_file, read_words  # noqa: E402
from agents.programs.llm.server import LlmServer, LlmSettings  # noqa: E402
from agents.programs.serve.backends import Stub  # noqa: E402
from agents.programs.serve.profile import StubProfile  # noqa: E402


def say(text: str) -> None:
    """Logs a line. The server outlives the reader of its log, and keeps no buffer that could fail at exit."""
    with contextlib.suppress(OSError):
        os.write(2, f"gpuwright-llm: {text}\n".encode())


def main(words: list[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(words)
    fault = _fault(args)
    if fault:
        parser.error(fault)
    try:
        cost = read_file(Path(args.profile)) if args.profile else StubCost()
        if args.cost:
            cost = read_words(args.cost)
    except CostError as error:
        say(str(error))
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
    )
    # select() keeps time to the microsecond, epoll to the millisecond, which is a tenth of a short iteration.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    device = Stub(loop, StubProfile(), args.memory_gib, os.environ)
    try:
        return loop.run_until_complete(serve(loop, args, settings, cost, device))
    finally:
        loop.close()


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
        ("--request-seconds", args.request_seconds, 0.1, 3600),
    )
    return next((f"{name} {value} is outside {low}..{high}" for name, value, low, high in bounds
                 if not low <= value <= high), "")  # fmt: skip


async def serve(
    loop: asyncio.AbstractEventLoop, args: argparse.Namespace, settings: LlmSettings, cost: StubCost, device: Stub
) -> int:
    """Serves until drained and returns the exit code."""
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def listen_no_more() -> None:
        listener.close()

    server = LlmServer(loop, settings, cost, listen_no_more, lambda: end(0), device.note_busy)
    try:
        listener = await loop.create_server(server.accept, args.host, args.port, backlog=100)
    except OSError as error:
        say(f"cannot listen on {args.host}:{args.port}: {error.strerror or error}")
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.drain)
    say(f"listening on {args.host}:{listener.sockets[0].getsockname()[1]}")

    def load() -> None:
        problem = ""
        try:
            device.load()
        except Exception as error:
            problem = f"cannot load: {error}"
        with contextlib.suppress(RuntimeError):  # drained meanwhile: the loop is closed
            loop.call_soon_threadsafe(loaded, problem)

    def loaded(problem: str) -> None:
        if problem:
            say(problem)
            end(1)
        else:
            loop.call_later(args.start_seconds, ready)

    def ready() -> None:
        server.loaded()
        say("ready")

    threading.Thread(target=load, name="load", daemon=True).start()
    code = await ended
    listener.close()
    device.close()
    did = server.figures
    answered = did.finished["length"] + did.finished["stop"]
    totals = f"{answered} answers of {did.generation_tokens} tokens, {did.finished['abort']} more abandoned"
    say(f"{'drained' if code == 0 else 'failed'} after {totals}")
    return code


if __name__ == "__main__":
    sys.exit(main())
