"""What a device does where WGSL leaves it open: measured once, when the device is opened (a few milliseconds)."""

from __future__ import annotations

import importlib.resources
import time
from typing import Any

import numpy as np

from looplift.runtime.webgpu.behaviour import Behaviour
from looplift.runtime.webgpu.device import Device, DeviceTensor, Dispatch, Slice

_ROUNDS = 70_000
_RANDOM_PAIRS = 4096
_SMALLEST_NORMAL = np.float32(np.finfo(np.float32).tiny)

Array = np.ndarray[Any, Any]


def examine(device: Device) -> tuple[Behaviour, float]:
    """What a device does, and the seconds of a round trip to it."""
    return measure(device), round_trip(device)


def measure(device: Device) -> Behaviour:
    """Run the self-test on a device."""
    a, b, c = _operands()
    source = (importlib.resources.files(__package__) / "templates" / "selftest.wgsl").read_text(encoding="utf-8")
    pipeline = device.pipeline(source, ["read", "read", "read", "read_write", "uniform"], {})
    tensors = [DeviceTensor.upload(device, value) for value in (a, b, c)]
    results = DeviceTensor.upload(device, np.zeros(4 * len(a) + 1, np.uint32))
    sizes = device.constants(np.array([len(a), 0, _ROUNDS, 0], np.uint32).tobytes())
    slices = [Slice(tensor.buffer, 0, tensor.stored_bytes) for tensor in (*tensors, results)]
    device.submit([Dispatch(pipeline, (*slices, Slice(sizes, 0, 16)), (-(-len(a) // 64), 1, 1))])
    *found, rounds = np.split(results.numpy(), [len(a), 2 * len(a), 3 * len(a), 4 * len(a)])
    return _judge(a, b, c, found, int(rounds[0]))


def round_trip(device: Device) -> float:
    """Seconds from asking for a few bytes until they are here, when no other work waits."""

    def once() -> float:
        begin = time.perf_counter()
        device.fence()
        return time.perf_counter() - begin

    return min(once() for _ in range(5))


def _operands() -> tuple[Array, Array, Array]:
    """Pairs (a third operand for a * b + c): random, ties at many distances, cancelling, subnormal."""
    random = np.random.default_rng(754)
    scale = np.exp2(random.integers(-60, 60, (3, _RANDOM_PAIRS)).astype(np.float32))
    a, b, c = (random.standard_normal((3, _RANDOM_PAIRS)).astype(np.float32) * scale).astype(np.float32)
    quarter = _RANDOM_PAIRS // 4
    odd = (random.integers(2**23, 2**24, quarter) | 1).astype(np.float32)
    a[:quarter], b[:quarter] = odd, random.choice(np.array([0.5, -0.5, 1.5, 0.25], np.float32), quarter)
    b[quarter : quarter + 64] = -a[quarter : quarter + 64]
    c[-quarter:] = -(a[-quarter:] * b[-quarter:])  # what a fused operation leaves is the product's rounding error
    tiny = _SMALLEST_NORMAL * random.uniform(-2, 2, 256).astype(np.float32)
    return np.concatenate([a, tiny]), np.concatenate([b, tiny[::-1]]), np.concatenate([c, tiny])


def _judge(a: Array, b: Array, c: Array, found: list[Array], rounds: int) -> Behaviour:
    with np.errstate(all="ignore"):
        total, product = a + b, a * b
        separate = product + c

    def normal(*values: Array) -> Array:
        each = [np.isfinite(v) & ((np.abs(v) >= _SMALLEST_NORMAL) | (v == 0)) for v in values]
        together: Array = np.logical_and.reduce(each)
        return together

    def agree(result: Array, expected: Array, where: Array) -> bool:
        return bool(np.array_equal(result[where], expected.view(np.uint32)[where]))

    sums, products, as_written, apart = found
    tiny = ~normal(a, b, total) & np.isfinite(total)
    whole = normal(a, b, c, product, separate)
    return Behaviour(
        adds_to_nearest_even=agree(sums, total, normal(a, b, total)),
        multiplies_to_nearest_even=agree(products, product, normal(a, b, product) & (product != 0)),
        keeps_subnormals=agree(sums, total, tiny),
        fuses_multiply_add=not agree(as_written, separate, whole),
        splits_multiply_add=agree(apart, separate, whole),
        loop_limit=None if rounds == _ROUNDS else rounds,
    )
