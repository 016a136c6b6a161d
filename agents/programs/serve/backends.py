"""Computes batches: a stub that obeys a profile, or a real model in its own thread."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from agents.devices.simulated.client import SimulatedClient, attach, exit_at_once
from agents.devices.simulated.refusals import CudaRefusal
from agents.devices.simulated.speeds import PlayedLoad
from agents.programs.serve.cuda import CudaContext
from agents.programs.serve.profile import Curve, StubProfile, interpolate
from agents.seams.mps_variables import SM_PERCENT_VARIABLE


class RawBody(bytes):
    """The numbers of a sample or an answer as they lie in memory, in C order and little-endian; other bodies are JSON.

    Reading an image of 150,000 numbers out of JSON takes 30 ms of a core, many times what a GPU needs to compute it.
    """


class BadInput(Exception):
    """A request that the model cannot read; the message says why."""


Answers = list["bytes | BadInput"]
Sample = TypeVar("Sample")
Done = Callable[[Answers | Exception], None]


class Backend(Protocol):
    """Computes one batch at a time. `done` is called in the loop's thread, with an answer for each body in order."""

    sm_count: int | None  # multiprocessors as seen inside; None: unknown
    memory_gib: float  # held on the device

    def load(self) -> None:
        """Prepares to compute, in a thread; raises any failure."""

    def run(self, bodies: Sequence[bytes], batch: int, done: Done) -> None: ...

    def warm(self, batch: int, done: Done) -> None:
        """Computes one batch of dummy input."""

    def example(self) -> object:
        """Returns the body of a request that the model can read: a RawBody, or what is written as JSON."""

    def close(self) -> None: ...


class Stub:
    """Waits as long as the profile says for a batch on its share of the SMs, and answers with a checksum.

    Attached to a simulated MPS daemon it has the share and memory that the daemon grants, and can be terminated. Where
    the simulated GPU has a truth of its own, the GPU says how long each batch takes beside its neighbours.
    Without one it has the whole device, as a CUDA program would. `real`: it also holds a real context and memory.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        profile: StubProfile,
        memory_gib: float,
        environ: Mapping[str, str],
        real: bool = False,
        load: PlayedLoad | None = None,
    ) -> None:
        self.sm_count: int | None = None
        self.memory_gib = memory_gib
        self._loop = loop
        self._profile = profile
        self._environ = environ
        self._real = real
        self._load = load
        self._times: Curve = ()  # by batch, where the device decides
        self._batch = 1  # that ran last
        self._context: CudaContext | None = None
        self._client: SimulatedClient | None = None
        self._sm_percent = 100.0
        self._busy_seconds = 0.0
        self._telling: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._tells = False

    def load(self) -> None:
        if self._real:
            self._context = CudaContext(self.memory_gib)
            self.sm_count = self._context.sm_count
            self._sm_percent = float(self._environ.get(SM_PERCENT_VARIABLE) or 100.0)
            return
        self._client = attach(self._environ, self.memory_gib, load=self._load)
        if self._client:
            self.sm_count = self._client.sm_count
            self._sm_percent = self._client.limits.sm_percent
            self._follow(self._client.times_ms)
            threading.Thread(target=self._tell, name="busy", daemon=True).start()

    def run(self, bodies: Sequence[bytes], batch: int, done: Done) -> None:
        self._batch = batch
        times = self._times
        seconds = interpolate(times, batch) / 1000 if times else self._profile.exec_seconds(batch, self._sm_percent)
        ends = self._loop.time() + seconds
        self.note_busy(seconds)
        # A digest, so that a client can verify that the answer belongs to its own request.
        answers: Answers = [b'{"digest": "%08x", "batch": %d}' % (zlib.crc32(body), len(bodies)) for body in bodies]
        self._loop.call_at(ends, done, answers)

    def warm(self, batch: int, done: Done) -> None:
        self.run([b""] * batch, batch, done)

    def example(self) -> object:
        return {"inputs": []}

    def close(self) -> None:
        self._telling.put(None)
        if self._client:
            self._client.close()

    def note_busy(self, seconds: float) -> None:
        """Reports once a second how busy the device was, and once more when it becomes idle."""
        self._busy_seconds += seconds
        if self._client and not self._tells:
            self._tells = True
            self._loop.call_later(1.0, self._say_busy)

    def _say_busy(self) -> None:
        fraction = min(1.0, self._busy_seconds)
        self._busy_seconds -= fraction  # of a batch that takes longer than the second
        self._telling.put(fraction)
        self._tells = fraction > 0
        if self._tells:
            self._loop.call_later(1.0, self._say_busy)

    def _tell(self) -> None:
        while (fraction := self._telling.get()) is not None:
            with contextlib.suppress(CudaRefusal):  # the process ends anyway
                if self._client:
                    self._follow(self._client.busy(fraction, self._batch))

    def _follow(self, times_ms: Mapping[str, float]) -> None:
        """Takes the times that the simulated device has for it beside its neighbours of the moment."""
        if times_ms:
            self._times = tuple(sorted((float(batch), float(ms)) for batch, ms in times_ms.items()))


class Threaded:
    """A real model, called by one thread, batch by batch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, open_model: Callable[[], LoadedModel]) -> None:
        self.sm_count: int | None = None
        self.memory_gib = 0.0
        self._loop = loop
        self._open = open_model
        self._model: LoadedModel | None = None
        self._work: queue.SimpleQueue[tuple[list[bytes] | int, Done] | None] = queue.SimpleQueue()

    def load(self) -> None:
        self._model = self._open()
        self.sm_count = self._model.sm_count()
        threading.Thread(target=self._labour, name="model", daemon=True).start()

    def run(self, bodies: Sequence[bytes], batch: int, done: Done) -> None:
        self._work.put((list(bodies), done))

    def warm(self, batch: int, done: Done) -> None:
        self._work.put((batch, done))

    def example(self) -> object:
        return self._model.example() if self._model else None

    def close(self) -> None:
        self._work.put(None)

    def _labour(self) -> None:
        assert self._model is not None
        while (work := self._work.get()) is not None:
            task, done = work
            answers: Answers | Exception
            try:
                if isinstance(task, int):
                    self._model.warm(task)
                    answers = []
                else:
                    answers = self._model.predict(task)
            except Exception as error:
                answers = error
                self._prove_life()
            self.memory_gib = self._model.memory_gib()
            with contextlib.suppress(RuntimeError):  # the loop is closed: no one waits any more
                self._loop.call_soon_threadsafe(done, answers)

    def _prove_life(self) -> None:
        """Ends the process if its model cannot compute zeros either: its context is lost, and MPS waits for its end."""
        assert self._model is not None
        try:
            self._model.warm(1)
        except Exception as error:
            exit_at_once(f"the model fails whatever it is given: {error}")


class LoadedModel(Protocol):
    """A loaded model, which turns bodies into answers and blocks meanwhile."""

    def predict(self, bodies: list[bytes]) -> Answers: ...

    def warm(self, batch: int) -> None: ...

    def example(self) -> object:
        """Returns the body of one sample, as a Backend does."""

    def sm_count(self) -> int | None: ...

    def memory_gib(self) -> float: ...


def predict_batch(
    bodies: Sequence[bytes],
    sample: Callable[[bytes], Sample],
    computed: Callable[[list[Sample]], list[Any]],
    list_numbers: Callable[[Any], object],
    copy_numbers: Callable[[Any], bytes],
) -> Answers:
    """Computes a batch of samples; an unreadable one is refused, and the rest are answered as they were asked."""
    samples: list[Sample | BadInput] = []
    for body in bodies:
        try:
            samples.append(sample(body))
        except BadInput as error:
            samples.append(error)
    good = [each for each in samples if not isinstance(each, BadInput)]
    outputs = iter(computed(good) if good else [])
    answers: Answers = []
    for body, each in zip(bodies, samples, strict=True):
        if isinstance(each, BadInput):
            answers.append(each)
        elif isinstance(body, RawBody):
            answers.append(RawBody(copy_numbers(next(outputs))))
        else:
            answers.append(json.dumps({"outputs": list_numbers(next(outputs))}).encode())
    return answers


def parse_inputs(body: bytes) -> object:
    """Returns the `inputs` of a JSON body."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput("the body is not valid JSON") from error
    if not isinstance(document, dict) or "inputs" not in document:
        raise BadInput('the body must be {"inputs": ...}')
    return document["inputs"]
