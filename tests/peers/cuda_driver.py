# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The few driver calls that the peers' tests make themselves, through ctypes on libcuda.so.1."""
import ctypes

_lib = ctypes.CDLL("libcuda.so.1")
u64, size_t, void_p, i32 = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int


class DriverError(RuntimeError):
    pass


def call(name, *arguments):
    code = getattr(_lib, name)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        _lib.cuGetErrorName(code, ctypes.byref(text))
        raise DriverError(f"{name}: {(text.value or b'?').decode()} ({code})")


def start():
    """Initialises the driver and makes the primary context of device 0 current."""
    context = void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


def attribute(number):
    value = i32()
    call("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
    return value.value


def allocate(count):
    address = u64()
    call("cuMemAlloc_v2", ctypes.byref(address), size_t(count))
    return address.value


def free(address):
    call("cuMemFree_v2", u64(address))


def upload(address, host, count):
    call("cuMemcpyHtoD_v2", u64(address), void_p(host), size_t(count))


def download(host, address, count):
    call("cuMemcpyDtoH_v2", void_p(host), u64(address), size_t(count))


def synchronize():
    call("cuCtxSynchronize")


def reset():
    """After a fault the context is dead; this makes a new one."""
    _lib.cuDevicePrimaryCtxReset_v2(0)
    start()


def refusal(ptx):
    """None if the module loads, else what the driver's log says about it."""
    log = ctypes.create_string_buffer(4096)
    options = (i32 * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER, its size
    values = (void_p * 2)(ctypes.cast(log, void_p), len(log))
    module = void_p()
    code = _lib.cuModuleLoadDataEx(ctypes.byref(module), ctypes.c_char_p(ptx), 2, options, values)
    if code == 0:
        _lib.cuModuleUnload(module)
        return None
    return log.value.decode() or f"error {code}"
