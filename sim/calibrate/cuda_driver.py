# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The few calls of the driver that the rows make themselves, through ctypes on libcuda.so.1."""
import ctypes

LIBRARY = ctypes.CDLL("libcuda.so.1")
u64, void_p = ctypes.c_uint64, ctypes.c_void_p


def call(name: str, *arguments) -> None:
    code = getattr(LIBRARY, name)(*arguments)
    if code != 0:
        raise RuntimeError(f"{name}: error {code}")


def start() -> None:
    """Makes the primary context of device 0 current."""
    context = void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


def allocate(count: int) -> int:
    address = u64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(count))
    return address.value


def synchronize() -> None:
    call("cuCtxSynchronize")
