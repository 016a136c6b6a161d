"""Four loads of a GPU as models that need no file and no library but the driver: PTX, compiled by the driver itself.

They compute nothing of use. Each is limited by something else: arithmetic, memory bandwidth, the L2 cache, the time
between two launches. So alone and beside each other they show what shares of SMs hold apart, and what they do not.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from agents.programs.serve.backends import Answers, parse_inputs, predict_batch
from agents.programs.serve.cuda import CudaDriver

MIB = 1 << 20
THREADS = 256  # in a block
WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class Kernel:
    """One load: `launches` of a grid, each of `rounds`, for one request."""

    entry: str
    blocks: int
    rounds: int
    launches: int
    buffer_bytes: int  # a power of two: addresses wrap around in it


KERNELS = {
    "arithmetic": Kernel("compute", blocks=2048, rounds=4096, launches=4, buffer_bytes=4 * MIB),
    "bandwidth": Kernel("stream", blocks=4096, rounds=64, launches=2, buffer_bytes=1024 * MIB),
    "cache": Kernel("stream", blocks=2048, rounds=256, launches=2, buffer_bytes=8 * MIB),
    "launches": Kernel("compute", blocks=8, rounds=64, launches=200, buffer_bytes=4 * MIB),
}


class KernelModel:
    """A LoadedModel of one of these loads; a batch is so many times the load."""

    def __init__(self, name: str) -> None:
        self._kernel = kernel = KERNELS[name]
        self._driver = driver = CudaDriver()
        self._sm_count = driver.sm_count()
        driver.use()
        module, self._function, self._buffer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        driver.do("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(PTX.encode("ascii")))
        driver.do("cuModuleGetFunction", ctypes.byref(self._function), module, kernel.entry.encode("ascii"))
        driver.do("cuMemAlloc_v2", ctypes.byref(self._buffer), ctypes.c_size_t(kernel.buffer_bytes))
        driver.do("cuMemsetD32_v2", self._buffer, ctypes.c_uint(0), ctypes.c_size_t(kernel.buffer_bytes // WORD_BYTES))

    def predict(self, bodies: list[bytes]) -> Answers:
        return predict_batch(bodies, parse_inputs, self._compute, int, lambda count: b"%d" % count)

    def warm(self, batch: int) -> None:
        self._compute([None] * batch)

    def example(self) -> object:
        return {"inputs": []}

    def sm_count(self) -> int | None:
        return self._sm_count

    def memory_gib(self) -> float:
        return self._kernel.buffer_bytes / 2**30

    def _compute(self, samples: list[Any]) -> list[Any]:
        """Runs the load once for each sample, and waits for the end."""
        kernel, words = self._kernel, ctypes.c_uint(self._kernel.buffer_bytes // WORD_BYTES - 1)
        rounds = ctypes.c_uint(kernel.rounds)
        pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in (self._buffer, words, rounds)))
        grid = [ctypes.c_uint(size) for size in (kernel.blocks, 1, 1, THREADS, 1, 1, 0)]
        self._driver.use()  # this thread is not the one that loaded
        for _ in range(kernel.launches * len(samples)):
            self._driver.do("cuLaunchKernel", self._function, *grid, None, pointers, None)
        self._driver.do("cuCtxSynchronize")
        return [len(samples)] * len(samples)


# Both entries have one form: the buffer, the mask of an index of 4-byte words in it, and the rounds.
PTX = """
.version 6.0
.target sm_70
.address_size 64

.visible .entry compute(.param .u64 buffer, .param .u32 mask, .param .u32 rounds)
{
  .reg .pred %p;
  .reg .b32 %r<8>;
  .reg .f32 %f<6>;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [buffer];
  ld.param.u32 %r0, [mask];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  cvt.rn.f32.u32 %f0, %r5;
  mov.f32 %f1, 0f3F7FFFFE;
  mov.f32 %f2, 0f3F800001;
  mov.f32 %f3, %f0;
  mov.f32 %f4, %f0;
again:
  fma.rn.f32 %f0, %f0, %f1, %f2;
  fma.rn.f32 %f3, %f3, %f2, %f1;
  fma.rn.f32 %f4, %f4, %f1, %f1;
  fma.rn.f32 %f0, %f0, %f2, %f3;
  fma.rn.f32 %f3, %f3, %f1, %f4;
  fma.rn.f32 %f4, %f4, %f2, %f0;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra again;
  add.f32 %f0, %f0, %f3;
  add.f32 %f0, %f0, %f4;
  and.b32 %r5, %r5, %r0;
  mul.wide.u32 %d1, %r5, 4;
  cvta.to.global.u64 %d0, %d0;
  add.u64 %d2, %d0, %d1;
  st.global.f32 [%d2], %f0;
  ret;
}

.visible .entry stream(.param .u64 buffer, .param .u32 mask, .param .u32 rounds)
{
  .reg .pred %p;
  .reg .b32 %r<10>;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [buffer];
  ld.param.u32 %r0, [mask];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  mov.u32 %r6, %nctaid.x;
  mul.lo.u32 %r7, %r6, %r3;
  mov.u32 %r8, 0;
  cvta.to.global.u64 %d0, %d0;
again:
  and.b32 %r5, %r5, %r0;
  mul.wide.u32 %d1, %r5, 4;
  add.u64 %d2, %d0, %d1;
  ld.global.u32 %r9, [%d2];
  add.u32 %r8, %r8, %r9;
  add.u32 %r5, %r5, %r7;
  sub.u32 %r1, %r1, 1;
  setp.ne.u32 %p, %r1, 0;
  @%p bra again;
  st.global.u32 [%d2], %r8;
  ret;
}
"""
