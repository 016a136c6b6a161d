"""The program `gpuwright-serve`: parses its arguments, listens, loads, serves, and exits once drained."""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

# asyncio runs without TLS, which no one uses on loopback. Importing it would cost each of a node's forty servers
# 4 MB and a quarter of its start. A backend may import it afterwards.
_HIDDEN = "ssl" not in sys.modules
if _HIDDEN:
    sys.modules["ssl"] = None  # type: ignore[assignment]
import asyncio  # noqa: E402

if _HIDDEN:
    del sys.modules["ssl"]

from agents.devices.simulated.speeds import PlayedLoad  # noqa: E402
from agents.programs.serve.backends import Backend, LoadedModel, Stub, Threaded  # noqa: E402
from agents.programs.serve.profile import ProfileError, StubProfile, read_file, read_words  # noqa: E402
from agents.programs.serve.server import ModelServer, ServerSettings  # noqa: E402


def say(text: str) -> None:
    """Logs a line. The server outlives the reader of its log, and keeps no buffer that could fail at exit."""
    with contextlib.suppress(OSError):
        os.write(2, f"gpuwright-serve: {text}\n".encode())


def main(words: list[str] | None = None) -> int:
    parser = _parser()
    args = parser.parse_args(words)
    most = max(args.batch, args.max_batch)
    if not 1 <= args.batch <= 4096 or args.queue < 1 or not 0 <= args.batch_timeout_ms <= 60_000:
        parser.error("allowed are --batch 1..4096, --queue from 1 and --batch-timeout-ms 0..60000")
    try:
        profile = read_file(Path(args.profile)) if args.profile else StubProfile()
        if args.latency:
            profile = StubProfile(read_words(args.latency), profile.memory_gib, profile.start_seconds)
    except ProfileError as error:
        say(str(error))
        return 2
    try:
        shape = [int(size) for size in args.shape.split(",") if size]
    except ValueError:
        parser.error(f"--shape {args.shape!r} must look like 3,224,224")
    settings = ServerSettings(
        args.name,
        args.batch,
        most,
        args.batch_timeout_ms,
        args.queue,
        args.request_seconds,
        os.environ.pop("GPUWRIGHT_CONTROL_TOKEN", ""),
    )
    # select() keeps time to the microsecond, epoll to the millisecond, which is a fifth of a short batch. The server
    # has at most a few hundred connections.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    if load := _loader(args, shape):
        backend: Backend = Threaded(loop, load)
    else:
        held_gib = args.memory_gib or profile.needs_gib(most)
        played = PlayedLoad(args.name, args.latency, most) if args.latency else None
        backend = Stub(loop, profile, held_gib, os.environ, args.device == "cuda", played)
    start_seconds = 0.0 if load else args.start_seconds or profile.start_seconds
    try:
        return loop.run_until_complete(serve(loop, args.host, args.port, settings, backend, start_seconds))
    finally:
        loop.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("gpuwright-serve", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=0, help="0: any free port, named in the log")
    add("--name", default="model", help="of the model, as in /v1/models/NAME:infer")
    add("--file", default="", help="an .onnx or TorchScript .pt model; without one a stub follows the profile")
    add("--kernel", default="", help="instead of a file: a load of the GPU: arithmetic, bandwidth, cache, launches")
    add("--profile", default="", help="a JSON file with latencyMs, memoryGib, startSeconds")
    add("--latency", default="", help="instead of a file: 1:10=21,100=8;8:22 (batch, SM%%, ms)")
    add("--memory-gib", type=float, default=0.0, help="device memory that the stub holds; 0: as in the profile")
    add("--start-seconds", type=float, default=0.0, help="time that the stub takes to load, if the profile has none")
    add("--shape", default="", help="of one sample of a TorchScript model: 3,224,224")
    add("--device", default="simulated", choices=("simulated", "cuda"), help="the device that the stub is a client of")
    add("--batch", type=int, default=1)
    add("--batch-timeout-ms", type=float, default=0.0)
    add("--max-batch", type=int, default=0, help="the largest batch that can be set later; 0: same as --batch")
    add("--queue", type=int, default=1024, help="most requests that may wait; beyond it: 503")
    add(
        "--request-seconds",
        type=float,
        default=15.0,
        help="limit for a whole request to arrive, and to read its answer",
    )
    return parser


def _loader(args: argparse.Namespace, shape: Sequence[int]) -> Callable[[], LoadedModel] | None:
    """Returns what loads the kernel or the file that is named; None for the stub."""
    if args.kernel:
        return lambda: open_kernel(args.kernel)
    return (lambda: open_model(Path(args.file), shape)) if args.file else None


async def serve(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    settings: ServerSettings,
    backend: Backend,
    start_seconds: float,
) -> int:
    """Serves until drained and returns the exit code."""
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def listen_no_more() -> None:
        listener.close()

    server = ModelServer(loop, settings, backend, listen_no_more, lambda: end(0))
    try:
        listener = await loop.create_server(server.accept, host, port, backlog=100)
    except OSError as error:
        say(f"cannot listen on {host}:{port}: {error.strerror or error}")
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.drain)
    say(f"listening on {host}:{listener.sockets[0].getsockname()[1]}")

    def load() -> None:
        problem = ""
        try:
            backend.load()
        except Exception as error:
            problem = f"cannot load: {error}"
        with contextlib.suppress(RuntimeError):  # drained meanwhile: the loop is closed
            loop.call_soon_threadsafe(loaded, problem)

    def loaded(problem: str) -> None:
        if problem:
            say(problem)
            end(1)
        else:
            loop.call_later(start_seconds, ready)

    def ready() -> None:
        server.loaded()
        say("ready")

    threading.Thread(target=load, name="load", daemon=True).start()
    code = await ended
    listener.close()
    backend.close()
    did = server.figures
    totals = f"{did.requests} requests, {did.errors} of them failed, {did.abandoned} more abandoned"
    say(f"{'drained' if code == 0 else 'failed'} after {totals}")
    return code


def open_model(file: Path, shape: Sequence[int]) -> LoadedModel:
    """Opens a model file, whose suffix tells the format."""
    if file.suffix == ".onnx":
        from agents.programs.serve.onnx import OnnxModel

        return OnnxModel(file)
    from agents.programs.serve.torchscript import TorchModel

    return TorchModel(file, shape)


def open_kernel(name: str) -> LoadedModel:
    """Opens one of the loads of a GPU; raises ValueError for another name."""
    from agents.programs.serve.kernels import KERNELS, KernelModel

    if name not in KERNELS:
        raise ValueError(f"there is no kernel {name!r}; there are {', '.join(KERNELS)}")
    return KernelModel(name)


if __name__ == "__main__":
    sys.exit(main())
