"""A WebGPU device: limits, pipelines, buffers, transfers."""

from __future__ import annotations

import collections
import dataclasses
import math
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from looplift.runtime.webgpu.adapters import is_software
from looplift.runtime.webgpu.behaviour import Behaviour
from looplift.runtime.webgpu.buffers import BufferPool
from looplift.runtime.webgpu.errors import DeviceUnavailableError, wgpu_errors_named

Array = np.ndarray[Any, Any]
Access = Literal["read", "read_write", "uniform"]

_KEEP_BYTES = 512 << 20
_KEEP_BIND_GROUPS = 256
_HOST_BYTES_PER_SECOND = 1e9  # about what the numpy kernels write
_BUFFER_TYPES = {"read": "read-only-storage", "read_write": "storage", "uniform": "uniform"}
_RAISED_LIMITS = ("max-buffer-size", "max-storage-buffer-binding-size", "max-storage-buffers-per-shader-stage")


def _camel_case(name: str) -> str:
    head, *tail = name.split("-")
    return head + "".join(part.capitalize() for part in tail)


class Slice(NamedTuple):  # made and hashed for every binding of every run: several times faster than a dataclass
    """A range of a buffer, in bytes, as a binding takes it."""

    buffer: Any
    offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class Dispatch:
    """One pipeline run over a grid of workgroups."""

    pipeline: Any
    bindings: tuple[Slice, ...]
    workgroups: tuple[int, int, int]


class Device:
    """A WebGPU device with its caches.

    Attributes:
        name: what the driver calls itself.
        software: whether it computes on the CPU.
        limits: the device's limits under their WebGPU names (``maxBufferSize``).
        features: the optional WebGPU features of its adapter.
        timestamps: whether it can time its own work.
        behaviour: what the self-test found.
        round_trip: seconds until a few bytes are read back.
    """

    def __init__(self, adapter: Any, examine: Callable[[Device], tuple[Behaviour, float]]) -> None:
        """Opens an adapter's device; `examine` measures its behaviour and round trip."""
        import wgpu

        self.name: str = adapter.info["device"]
        self.software = is_software(adapter)
        self.features: frozenset[str] = frozenset(adapter.features)
        self.timestamps = "timestamp-query" in self.features
        with wgpu_errors_named("opening the device"):
            self.gpu: Any = adapter.request_device_sync(
                label="looplift",
                required_features=["timestamp-query"] if self.timestamps else [],
                required_limits={name: adapter.limits[name] for name in _RAISED_LIMITS},
            )
        self.limits: Mapping[str, int] = {_camel_case(name): value for name, value in self.gpu.limits.items()}
        use = wgpu.BufferUsage
        largest = self.limits["maxBufferSize"]
        self._storage = BufferPool(self.gpu, use.STORAGE | use.COPY_SRC | use.COPY_DST, largest, _KEEP_BYTES)
        self._staging = BufferPool(self.gpu, use.MAP_READ | use.COPY_DST, largest, _KEEP_BYTES)
        self._pipelines: dict[tuple[Any, ...], Any] = {}
        self._bind_groups: collections.OrderedDict[tuple[Any, ...], Any] = collections.OrderedDict()
        self._lock = threading.RLock()
        self.behaviour, self.round_trip = examine(self)

    def pipeline(self, source: str, access: Sequence[Access], constants: Mapping[str, float]) -> Any:
        """The compiled compute pipeline of a WGSL source (entry point ``main``), cached.

        Args:
            source: the WGSL text.
            access: how it binds each buffer of group 0, in order.
            constants: values of its ``override`` declarations.
        """
        key = (source, tuple(access), tuple(sorted(constants.items())))
        with self._lock:
            if key not in self._pipelines:
                self._pipelines[key] = self._compile(source, access, constants)
            return self._pipelines[key]

    def _compile(self, source: str, access: Sequence[Access], constants: Mapping[str, float]) -> Any:
        import wgpu

        entries = [
            {"binding": place, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": _BUFFER_TYPES[kind]}}
            for place, kind in enumerate(access)
        ]
        with wgpu_errors_named("compiling a kernel"):
            layout = self.gpu.create_bind_group_layout(entries=entries)
            return self.gpu.create_compute_pipeline(
                layout=self.gpu.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={
                    "module": self.gpu.create_shader_module(code=source),
                    "entry_point": "main",
                    "constants": dict(constants),
                },
            )

    @property
    def least_bytes(self) -> int:
        """What the host writes while data go to the device and back, in bytes: with less, the device can't win."""
        return int(2 * self.round_trip * _HOST_BYTES_PER_SECOND)

    def allocate(self, size: int) -> Any:
        """A storage buffer of at least ``size`` bytes, content arbitrary; return it with ``release``."""
        with self._lock:
            return self._storage.take(size)

    def constants(self, data: bytes) -> Any:
        """A uniform buffer that holds ``data``, kept as long as the caller keeps it."""
        import wgpu

        with self._lock, wgpu_errors_named("uploading constants"):
            return self.gpu.create_buffer_with_data(data=data, usage=wgpu.BufferUsage.UNIFORM)

    def release(self, buffer: Any) -> None:
        """Give a storage buffer back for reuse."""
        with self._lock:
            self._storage.give(buffer)

    def upload(self, buffer: Any, data: Array) -> None:
        """Copy the bytes of a contiguous array into a buffer, zero-padded to whole 32-bit words."""
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        whole = raw.size // 4 * 4
        with self._lock, wgpu_errors_named(f"uploading {raw.size:,} bytes"):
            if whole:
                self.gpu.queue.write_buffer(buffer, 0, raw[:whole])
            if whole < raw.size:
                tail = np.zeros(4, np.uint8)
                tail[: raw.size - whole] = raw[whole:]
                self.gpu.queue.write_buffer(buffer, whole, tail)

    def download(self, buffer: Any, size: int) -> Array:
        """The first ``size`` bytes of a buffer as uint8; waits for all work submitted before."""
        padded = max(-(-size // 4) * 4, 4)
        with self._lock, wgpu_errors_named(f"reading back {size:,} bytes"):
            staging = self._staging.take(padded)
            encoder = self.gpu.create_command_encoder()
            encoder.copy_buffer_to_buffer(buffer, 0, staging, 0, padded)
            self.gpu.queue.submit([encoder.finish()])
            staging.map_sync("READ", 0, -(-padded // 8) * 8)
            try:
                mapped = np.frombuffer(staging.read_mapped(0, padded, copy=False), np.uint8)
                copied: Array = mapped[:size].copy()
                return copied
            finally:
                staging.unmap()
                self._staging.give(staging)

    def submit(self, dispatches: Sequence[Dispatch], timer: Timer | None = None) -> None:
        """Queue the dispatches, in order, as one command buffer."""
        with self._lock, wgpu_errors_named("running a kernel"):
            encoder = self.gpu.create_command_encoder()
            work = encoder.begin_compute_pass(**({"timestamp_writes": timer.writes} if timer else {}))
            for dispatch in dispatches:
                work.set_pipeline(dispatch.pipeline)
                work.set_bind_group(0, self._bind_group(dispatch))
                work.dispatch_workgroups(*dispatch.workgroups)
            work.end()
            if timer:
                timer.resolve(encoder)
            self.gpu.queue.submit([encoder.finish()])

    def _bind_group(self, dispatch: Dispatch) -> Any:
        """The dispatch's bind group, cached: pooled buffers come round again."""
        key = (dispatch.pipeline, dispatch.bindings)
        if key in self._bind_groups:
            self._bind_groups.move_to_end(key)
            return self._bind_groups[key]
        entries = [
            {"binding": place, "resource": {"buffer": part.buffer, "offset": part.offset, "size": part.size}}
            for place, part in enumerate(dispatch.bindings)
        ]
        group = self.gpu.create_bind_group(layout=dispatch.pipeline.get_bind_group_layout(0), entries=entries)
        self._bind_groups[key] = group
        if len(self._bind_groups) > _KEEP_BIND_GROUPS:
            self._bind_groups.popitem(last=False)
        return group

    def fence(self) -> None:
        """Wait until everything submitted has run (by a four-byte read-back)."""
        buffer = self.allocate(4)
        try:
            self.download(buffer, 4)
        finally:
            self.release(buffer)


class Timer:
    """Times one ``Device.submit`` on the device's own clock."""

    def __init__(self, device: Device) -> None:
        import wgpu

        if not device.timestamps:
            raise DeviceUnavailableError(f"{device.name} has no timestamp queries: time it on the host")
        self._device = device
        self._queries = device.gpu.create_query_set(type="timestamp", count=2)
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        self._ticks = device.gpu.create_buffer(size=16, usage=usage)
        self.writes = {
            "query_set": self._queries,
            "beginning_of_pass_write_index": 0,
            "end_of_pass_write_index": 1,
        }

    def resolve(self, encoder: Any) -> None:
        """Record the copy of the two ticks after the timed pass."""
        encoder.resolve_query_set(self._queries, 0, 2, self._ticks, 0)

    def seconds(self) -> float:
        """How long the timed work took; waits for it."""
        begin, end = self._device.download(self._ticks, 16).view(np.uint64).tolist()
        return float(end - begin) * 1e-9


class DeviceTensor:
    """A tensor that lives on the device; its memory returns to the pool when the last reference goes.

    The buffer holds the elements as numpy would, packed, padded to whole 32-bit words; bool holds one word an element.

    Attributes:
        shape: as numpy's.
        dtype: as numpy's (``ml_dtypes.bfloat16`` included).
        stored_bytes: bytes on the device, whole 32-bit words.
        buffer: the ``wgpu.GPUBuffer``.
    """

    def __init__(self, device: Device, shape: Sequence[int], dtype: Any) -> None:
        self.device = device
        self.shape = tuple(int(dim) for dim in shape)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        word_each = self.dtype.kind == "b"
        self.stored_bytes = self.size * 4 if word_each else -(-self.nbytes // 4) * 4
        self.buffer: Any = device.allocate(max(self.stored_bytes, 4))
        self._base: DeviceTensor | None = None
        weakref.finalize(self, device.release, self.buffer)

    @classmethod
    def upload(cls, device: Device, array: Array) -> DeviceTensor:
        """A copy of a numpy array on the device."""
        tensor = cls(device, array.shape, array.dtype)
        if array.size:
            device.upload(tensor.buffer, array.astype(np.uint32) if array.dtype == np.bool_ else array)
        return tensor

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the numpy array of the same shape and dtype."""
        return self.size * self.dtype.itemsize

    def reshape(self, shape: Sequence[int]) -> DeviceTensor:
        """The same memory under another shape of the same size."""
        view = object.__new__(DeviceTensor)
        view.device, view.dtype, view.buffer = self.device, self.dtype, self.buffer
        view.stored_bytes = self.stored_bytes
        view.shape = tuple(int(dim) for dim in shape)
        if view.size != self.size:
            raise ValueError(f"cannot view shape {self.shape} as {view.shape}")
        view._base = self  # the memory goes back to the pool with its owner
        return view

    def numpy(self) -> Array:
        """A copy on the host; waits for the kernels that write it."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        raw = self.device.download(self.buffer, self.stored_bytes)
        flat: Array = raw.view(np.uint32) != 0 if self.dtype == np.bool_ else raw[: self.nbytes].view(self.dtype)
        return flat.reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def __repr__(self) -> str:
        return f"DeviceTensor(shape={self.shape}, dtype={self.dtype}, device={self.device.name!r})"
