# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""CPU tensors of torch as lathe sees tensors of a GPU, over a driver that does nothing.

prepare() must come before the process imports lathe.torch. After it, lathe borrows every tensor of
torch by torch's own exchange table, whose answers differ in one word: the tensor is on GPU 0. What
the null driver hands out as device memory is host memory, so plans, workspaces and launches go
their usual way, and only the kernels do not run.
"""
from __future__ import annotations

import ctypes
import pathlib
from typing import Sequence

import torch

_DLPACK_CODES = {"f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "i32": (0, 32), "i64": (0, 64)}
_CAPSULE = b"dlpack_exchange_api"
_CUDA = 1  # LATHE_DEVICE_CUDA


class DLTensor(ctypes.Structure):
    """DLPack's tensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Lent:
    """The null driver and the exchange table. libraries: the folder with both."""

    def __init__(self, libraries: pathlib.Path) -> None:
        # Once the null driver is loaded, torch would take it for a GPU: it has to look before.
        # See calls.py for what has to be in the environment.
        assert not torch.cuda.is_available(), "there is a GPU; its own driver would be timed"
        driver = ctypes.CDLL(str(libraries / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        self._lend = ctypes.CDLL(str(libraries / "liblathe_lend.so"))
        # The caller's context is current, as it is in torch.
        handle = ctypes.c_void_p()
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0)
        driver.cuCtxPushCurrent_v2(handle)
        self._lend_tensors()
        self._plan_on_gpu()

    def _lend_tensors(self) -> None:
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
        api.PyCapsule_New.restype = ctypes.py_object
        api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        own = torch.Tensor.__dlpack_c_exchange_api__  # type: ignore[attr-defined]
        self._lend.lend.restype = ctypes.c_void_p
        table = self._lend.lend(ctypes.c_void_p(api.PyCapsule_GetPointer(own, _CAPSULE)))
        assert table, "torch's exchange table lends no tensors"
        torch.Tensor.__dlpack_c_exchange_api__ = (  # type: ignore[attr-defined]
            api.PyCapsule_New(table, _CAPSULE, None))

    def _plan_on_gpu(self) -> None:
        """torch's devices say that the tensors are on the CPU: plans are made for the GPU."""
        from lathe import context
        from lathe.torch import _device
        _device.context_of = lambda names, tensors: context("cuda", 0)

    def seconds_of_plan(self, line: str, slots: Sequence[tuple[str, torch.Tensor]], calls: int
                        ) -> float:
        """Returns processor seconds of lathe_plan_run, called by C with these (dtype, tensor)."""
        tensors = (DLTensor * len(slots))()
        pointers = (ctypes.POINTER(DLTensor) * len(slots))()
        for i, (dtype, tensor) in enumerate(slots):
            extents = ctypes.c_int64 * max(tensor.dim(), 1)
            code, bits = _DLPACK_CODES[dtype]
            tensors[i] = DLTensor(tensor.data_ptr(), 2, 0, tensor.dim(), code, bits, 1,
                                  extents(*tensor.shape), extents(*tensor.stride()), 0)
            pointers[i] = ctypes.pointer(tensors[i])
        self._lend.time_runs.restype = ctypes.c_double
        seconds: float = self._lend.time_runs(line.encode(), _CUDA, pointers, calls)
        assert seconds >= 0, line
        return seconds
