"""Device buffers, pooled: allocating and zeroing fresh memory costs more than the kernels that fill it."""

from __future__ import annotations

import collections
from typing import Any

from looplift.runtime.webgpu.errors import DeviceMemoryError, wgpu_errors_named

_SMALLEST = 256


def size_class(size: int) -> int:
    """Round up to one of four sizes an octave, so that a pooled buffer wastes at most a quarter."""
    if size <= _SMALLEST:
        return _SMALLEST
    step = 1 << max(size.bit_length() - 3, 8)
    return -(-size // step) * step


class BufferPool:
    """Hands out buffers of one usage and takes them back.

    Args:
        gpu: the ``wgpu.GPUDevice``.
        usage: ``wgpu.BufferUsage`` flags of every buffer.
        largest: the device's limit on one buffer, in bytes.
        keep: how many bytes of unused buffers to hold on to.
    """

    def __init__(self, gpu: Any, usage: int, largest: int, keep: int) -> None:
        self._gpu, self._usage, self._largest, self._keep = gpu, usage, largest, keep
        self._unused: dict[int, list[Any]] = collections.defaultdict(list)
        self._unused_bytes = 0

    def take(self, size: int) -> Any:
        """A buffer of at least ``size`` bytes, with arbitrary content.

        Raises:
            DeviceMemoryError: larger than the device allows, or no memory left even after dropping unused buffers.
        """
        rounded = size_class(size)
        if rounded > self._largest:
            rounded = -(-size // _SMALLEST) * _SMALLEST
        if rounded > self._largest:
            raise DeviceMemoryError(
                f"a tensor of {size:,} bytes is larger than the largest buffer of the WebGPU device "
                f"({self._largest:,} bytes): use device='numpy'"
            )
        if self._unused[rounded]:
            self._unused_bytes -= rounded
            return self._unused[rounded].pop()
        try:
            return self._create(rounded)
        except DeviceMemoryError:
            self.drop_unused()
            return self._create(rounded)

    def give(self, buffer: Any) -> None:
        """Take a buffer back; work already submitted on it still finishes first, since the queue is in order."""
        if self._unused_bytes + buffer.size > self._keep:
            buffer.destroy()
            return
        self._unused[buffer.size].append(buffer)
        self._unused_bytes += buffer.size

    def drop_unused(self) -> None:
        """Free every buffer that is not handed out."""
        # Taken out first: a tensor may be collected, and its buffer given back, at any moment.
        unused, self._unused = self._unused, collections.defaultdict(list)
        self._unused_bytes = 0
        for buffers in unused.values():
            for buffer in buffers:
                buffer.destroy()

    def _create(self, size: int) -> Any:
        with wgpu_errors_named(f"allocating {size:,} bytes"):
            return self._gpu.create_buffer(size=size, usage=self._usage)
