"""The device layer: adapters, tensors, pools, the self-test, and machines without any of it."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import types

import ml_dtypes
import numpy as np
import pytest

import looplift.runtime.webgpu.opened as opened_module
from looplift.runtime.ops import all_ops
from looplift.runtime.webgpu import (
    DeviceLostError,
    DeviceMemoryError,
    DeviceTensor,
    DeviceUnavailableError,
    describe_devices,
    is_software,
    open_device,
    run_op,
)
from looplift.runtime.webgpu.adapters import list_adapters
from looplift.runtime.webgpu.buffers import BufferPool, size_class
from looplift.runtime.webgpu.device import Timer
from looplift.runtime.webgpu.opened import new_device
from looplift.runtime.webgpu.selftest import measure

NO_ADAPTER = {"VK_ICD_FILENAMES": "/nonexistent", "__EGL_VENDOR_LIBRARY_FILENAMES": "/nonexistent"}


def run_python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


class TestTensor:
    @pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3, 5), (0,), (4, 0, 2), (1001,)])
    @pytest.mark.parametrize(
        "dtype", ["float32", "float16", ml_dtypes.bfloat16, "float64", "int8", "uint16", "int64", "bool"]
    )
    def test_goes_there_and_back(self, device, shape, dtype):
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        tensor = DeviceTensor.upload(device, array)
        back = tensor.numpy()
        assert (back.shape, back.dtype) == (array.shape, array.dtype)
        assert np.array_equal(back, array)
        assert np.array_equal(np.asarray(tensor), array)

    def test_strided_and_broadcast_arrays_are_packed(self, device):
        array = np.broadcast_to(np.arange(12, dtype=np.float32)[::3], (3, 4))
        assert np.array_equal(DeviceTensor.upload(device, array).numpy(), array)

    def test_a_view_keeps_the_memory(self, device):
        view = DeviceTensor.upload(device, np.arange(6.0)).reshape((2, 3))
        gc.collect()
        DeviceTensor.upload(device, np.zeros(6))
        assert view.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(ValueError, match="cannot view"):
            view.reshape((5,))

    def test_memory_goes_back_to_the_pool(self, device):
        tensor = DeviceTensor(device, (123_457,), np.float32)
        buffer = tensor.buffer
        del tensor
        gc.collect()
        assert DeviceTensor(device, (123_456,), np.float32).buffer is buffer


class TestPool:
    class Gpu:
        """Counts what is created; refuses the sizes it is told to, once."""

        def __init__(self):
            self.created, self.fail = [], False

        def create_buffer(self, size, usage):
            import wgpu

            if self.fail:
                self.fail = False
                raise wgpu.GPUOutOfMemoryError("no memory left")
            buffer = types.SimpleNamespace(size=size, destroyed=False)
            buffer.destroy = lambda: setattr(buffer, "destroyed", True)
            self.created.append(buffer)
            return buffer

    def pool(self, **sizes):
        pytest.importorskip("wgpu")
        gpu = self.Gpu()
        return gpu, BufferPool(gpu, 0, **{"largest": 1 << 20, "keep": 1 << 16, **sizes})

    def test_reuses(self):
        gpu, pool = self.pool()
        pool.give(pool.take(1000))
        pool.take(900)
        assert len(gpu.created) == 1

    def test_keeps_no_more_than_it_should(self):
        gpu, pool = self.pool(keep=1024)
        for buffer in [pool.take(1024), pool.take(1024)]:
            pool.give(buffer)
        assert [buffer.destroyed for buffer in gpu.created] == [False, True]

    def test_drops_what_is_unused_when_memory_runs_out(self):
        gpu, pool = self.pool()
        pool.give(pool.take(5000))
        gpu.fail = True
        pool.take(9000)
        assert gpu.created[0].destroyed

    def test_out_of_memory_and_too_large_are_our_errors(self):
        gpu, pool = self.pool()
        gpu.create_buffer = lambda size, usage: self.raise_out_of_memory()
        with pytest.raises(DeviceMemoryError, match="ran out of memory while allocating"):
            pool.take(5000)
        with pytest.raises(DeviceMemoryError, match="larger than the largest buffer"):
            pool.take((1 << 20) + 1)

    @staticmethod
    def raise_out_of_memory():
        import wgpu

        raise wgpu.GPUOutOfMemoryError("no memory left")

    def test_a_class_wastes_at_most_a_quarter(self):
        for size in [*range(1, 3000), 10**6, 123_456_789, 2**31 - 1]:
            assert size <= size_class(size) <= max(256, size * 1.25 + 256)
            assert size_class(size) % 256 == 0


class TestDevice:
    def test_is_made_once(self, device):
        assert open_device("webgpu") is device

    def test_auto_takes_only_hardware(self, device):
        if device.software:
            with pytest.raises(DeviceUnavailableError, match="computes on the CPU"):
                open_device("auto")
        else:
            assert open_device("auto") is device

    def test_software_adapters_are_known(self):
        def adapter(kind, device):
            return types.SimpleNamespace(info={"adapter_type": kind, "device": device, "vendor": "", "description": ""})

        assert is_software(adapter("CPU", "anything"))
        assert is_software(adapter("Unknown", "llvmpipe (LLVM 19)"))
        assert is_software(adapter("Unknown", "SwiftShader Device"))
        assert not is_software(adapter("DiscreteGPU", "NVIDIA H200"))

    def test_describes_the_adapters(self, device):
        rows = describe_devices()
        assert len(rows) == len(list_adapters())
        assert rows[0].name == device.name
        assert "webgpu" in rows[0].used_by
        assert "nearest even" in rows[0].notes
        assert not any(row.used_by for row in rows[1:])

    def test_pipelines_are_compiled_once(self, device):
        source = "@compute @workgroup_size(1) fn main() {}"
        assert device.pipeline(source, [], {}) is device.pipeline(source, [], {})

    def test_times_its_work(self, device):
        if not device.timestamps:
            with pytest.raises(DeviceUnavailableError, match="no timestamp queries"):
                Timer(device)
            return
        timer = Timer(device)
        device.submit([], timer)
        assert 0 <= timer.seconds() < 1

    def test_small_cases_are_for_the_host_if_it_may_choose(self, device):
        op, state = all_ops()["AddStep"], np.ones(64, np.float32)
        rows = device.least_bytes // 256
        for count, taken in ((rows // 2, False), (rows + 1, True)):
            outputs = run_op(op, [np.array(count), None, state, state], {}, (False, True), device=device, auto=True)
            assert (outputs is not None) == taken
        there = DeviceTensor.upload(device, state)
        assert run_op(op, [np.array(1), None, there, state], {}, (True,), device=device, auto=True) is not None
        assert run_op(op, [np.array(1), None, state, state], {}, (True,), device=device) is not None
        op, x = all_ops()["PrefixSum"], np.ones((rows + 1, 64), np.float32)
        assert run_op(op, [state, x[: rows // 2]], {}, (False, True), device=device, auto=True) is None
        assert run_op(op, [state, x], {}, (False, True), device=device, auto=True) is not None

    def test_the_self_test_is_repeatable(self, device):
        assert measure(device) == device.behaviour

    def test_a_lost_device_is_our_error_and_the_next_one_is_new(self, device, monkeypatch):
        lost = new_device(list_adapters()[0])
        monkeypatch.setitem(opened_module._opened, "webgpu", lost)
        tensor = DeviceTensor.upload(lost, np.ones(4, np.float32))
        lost.gpu.destroy()
        with pytest.raises(DeviceLostError, match="was lost while"):
            tensor.numpy()
        inputs = [np.array(3), None, np.ones(4, np.float32), np.ones(4, np.float32)]
        with pytest.raises(DeviceLostError):
            run_op(all_ops()["AddStep"], inputs, {}, (True,), device=lost)
        monkeypatch.setitem(opened_module._opened, "webgpu", lost)
        with pytest.warns(RuntimeWarning, match="runs on numpy instead: the WebGPU device was lost"):
            assert run_op(all_ops()["AddStep"], [np.array(10**6), *inputs[1:]], {}, (False, True), auto=True) is None
        assert run_op(all_ops()["AddStep"], inputs, {}, (True,))[0].numpy().tolist() == [4, 4, 4, 4]
        assert open_device("webgpu") is not lost


class TestNoAdapter:
    def test_everything_imports_and_tells(self):
        pytest.importorskip("wgpu")
        code = """
from looplift.runtime.webgpu import DeviceUnavailableError, describe_devices, open_device
print(len(describe_devices()))
for requirement in ("auto", "webgpu"):
    try:
        open_device(requirement)
    except DeviceUnavailableError as error:
        print(error)
"""
        rows, auto, webgpu = run_python(code, **NO_ADAPTER).splitlines()
        assert rows == "0"
        assert auto == webgpu
        assert "no WebGPU adapter on this machine: install" in auto

    def test_without_wgpu_it_says_what_to_install(self):
        code = """
import sys
sys.modules["wgpu"] = None
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "wgpu" else find_spec(name, *rest)
from looplift.runtime.webgpu import DeviceUnavailableError, describe_devices, open_device
assert describe_devices() == ()
try:
    open_device("webgpu")
except DeviceUnavailableError as error:
    print(error)
"""
        assert "pip install 'looplift[webgpu]'" in run_python(code)

    def test_importing_does_not_import_wgpu(self):
        assert run_python("import sys, looplift.runtime.webgpu; print('wgpu' in sys.modules)").strip() == "False"
