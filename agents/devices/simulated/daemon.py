"""The MPS daemon of one simulated GPU: its clients, their limits, and faults that hit all of them."""

from __future__ import annotations

from agents.devices.simulated.context import SimulatedContext
from agents.devices.simulated.gpu import SimulatedGpu
from agents.devices.simulated.refusals import (
    CANNOT_CONNECT,
    NOT_READY,
    TERMINATED,
    TOO_MANY_CLIENTS,
    UNAVAILABLE,
    CudaRefusal,
)
from agents.seams.device import MpsState

MAX_CLIENTS = 48
TERMINATE_SECONDS = 0.2  # new clients are refused for this long while one is being terminated


class SimulatedDaemon:
    """Plays the part of `nvidia-cuda-mps-control -d` and its server for one GPU."""

    __slots__ = (
        "default_memory_gib", "default_sm_percent", "gpu", "is_foreign", "max_clients", "refuses_until",
        "slow_seconds", "startable", "state", "terminates",
    )  # fmt: skip

    def __init__(self, gpu: SimulatedGpu) -> None:
        self.gpu = gpu
        self.state = MpsState.DOWN
        self.default_sm_percent = 100.0  # of the next server
        self.default_memory_gib: float | None = None
        self.max_clients = MAX_CLIENTS
        self.refuses_until = 0.0
        # Faults.
        self.slow_seconds = 0.0
        self.startable = True
        self.is_foreign = False  # True: another owner's MPS uses the GPU
        self.terminates = True  # False: the request fails, as for a client that is stuck in the kernel

    @property
    def up(self) -> bool:
        return self.state is not MpsState.DOWN

    def clients(self) -> list[SimulatedContext]:
        return [context for context in self.gpu.contexts if context.under_mps]

    def start(self) -> None:
        if not self.up:
            self.state = MpsState.IDLE
            self.default_sm_percent, self.default_memory_gib, self.refuses_until = 100.0, None, 0.0

    def stop(self) -> None:
        """Stops the daemon, orderly or not: its clients lose their contexts without a reason."""
        self.state = MpsState.DOWN
        for context in self.clients():
            self._drop(context, 0)

    def attach(
        self, pid: int, sm_percent: float, memory_limit_gib: float | None, memory_gib: float
    ) -> SimulatedContext:
        """Admits a client with the lower of its own and the daemon's limits. Raises CudaRefusal."""
        if self.state is MpsState.DOWN:
            raise CudaRefusal(CANNOT_CONNECT, "no MPS daemon is running")
        if self.state is MpsState.FAULT:
            raise CudaRefusal(NOT_READY, "the MPS server is in FAULT")
        if self.gpu.now < self.refuses_until:
            raise CudaRefusal(NOT_READY, "a client is being terminated")
        if len(self.clients()) >= self.max_clients:
            raise CudaRefusal(TOO_MANY_CLIENTS, f"the MPS server already has its {self.max_clients} clients")
        if self.gpu.exclusive and any(not context.under_mps for context in self.gpu.contexts):
            raise CudaRefusal(NOT_READY, "another process has exclusive use of the device")
        limits = [limit for limit in (memory_limit_gib, self.default_memory_gib) if limit is not None]
        share = self.gpu.sm_share(min(sm_percent, self.default_sm_percent))
        context = SimulatedContext(pid, share, 0.0, min(limits, default=None))
        self.gpu.hold(context, memory_gib)
        self.gpu.contexts.append(context)
        self.state = MpsState.ACTIVE
        self.gpu.changed()
        return context

    def let_past(self, pid: int, memory_gib: float) -> SimulatedContext:
        """Opens the device for a process without daemon and limits. Raises CudaRefusal in EXCLUSIVE_PROCESS."""
        if self.gpu.exclusive and (self.up or self.gpu.contexts):
            raise CudaRefusal(UNAVAILABLE, "the device is in EXCLUSIVE_PROCESS mode and in use")
        context = SimulatedContext(pid, self.gpu.kind.sm_count, 0.0, under_mps=False)
        self.gpu.hold(context, memory_gib)
        self.gpu.contexts.append(context)
        self.gpu.changed()
        return context

    def leave(self, context: SimulatedContext) -> None:
        """Removes a client whose process is gone or that gave its context up."""
        if context in self.gpu.contexts:
            self._drop(context, context.error)
        if self.state is MpsState.FAULT and not self.clients():
            self.state = MpsState.ACTIVE

    def terminate(self, pid: int) -> bool:
        """Cuts off the clients of one process only; False when it has none."""
        mine = [context for context in self.clients() if context.pid == pid]
        if not mine or not self.terminates:
            return False
        self.refuses_until = self.gpu.now + TERMINATE_SECONDS
        for context in mine:
            self._drop(context, TERMINATED)
        if self.state is MpsState.FAULT and not self.clients():
            self.state = MpsState.ACTIVE
        return True

    def fault(self) -> None:
        """A client's fatal fault: it hits all clients, which stay in the list until their processes are gone."""
        if self.clients():
            self.state = MpsState.FAULT
            for context in self.clients():
                context.error, context.busy = TERMINATED, 0.0
            self.gpu.changed()

    def _drop(self, context: SimulatedContext, error: int | None) -> None:
        self.gpu.contexts.remove(context)
        context.error = error
        self.gpu.changed()
