# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Lets ordinary Triton programs run on the drop-in: CPU tensors in, PTX to the driver.

Triton's own compiler, launcher and C glue do the work; three things differ. The last stage is PTX, as
the simulator executes no machine code. torch.cuda is not asked anything. Every tensor among a launch's
arguments is copied into an allocation of its own before, and back after, so that an address one past
the end is one past an allocation.
"""
import pathlib
import weakref

import torch
import triton
from triton.backends import Backend, backends
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.backends.nvidia.driver import CudaDriver, CudaLauncher, CudaUtils
from triton.tools.tensor_descriptor import TensorDescriptor

import cuda_driver

launched = []  # (kernel name, path of its PTX) in order of loading
launches = 0
refused_are_skipped = False  # to see every refusal of a program, not only its first


class PtxBackend(CUDABackend):
    def __init__(self, target):
        super().__init__(target)
        self.binary_ext = "ptx"

    def add_stages(self, stages, options, language):
        super().add_stages(stages, options, language)
        del stages["cubin"]

    def hash(self):
        return f"ptx-{self.target.arch}"


class Pointer:
    """What Triton's launcher needs of a tensor, at the address of its copy on the device."""

    def __init__(self, address, dtype):
        self.address, self.dtype = address, dtype

    def data_ptr(self):
        return self.address


class Mirror:
    """The device's copies of the storages behind one launch's tensors."""

    def __init__(self):
        self.storages = {}  # host address -> (storage, device address)

    def of(self, value):
        if isinstance(value, torch.Tensor):
            return Pointer(self.address(value), value.dtype)
        if isinstance(value, TensorDescriptor):
            return TensorDescriptor(Pointer(self.address(value.base), value.base.dtype), value.shape,
                                    value.strides, value.block_shape, value.padding,
                                    value.round_f32_to_tf32)
        if isinstance(value, tuple):
            parts = [self.of(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        return value

    def address(self, tensor):
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            return 0
        host = storage.data_ptr()
        if host not in self.storages:
            device = cuda_driver.allocate(storage.nbytes())
            self.storages[host] = (storage, device)
            if not is_fresh(tensor):
                cuda_driver.upload(device, host, storage.nbytes())
        return self.storages[host][1] + tensor.data_ptr() - host

    def take_back(self):
        for host, (storage, device) in self.storages.items():
            cuda_driver.download(host, device, storage.nbytes())
            cuda_driver.free(device)
            _fresh.pop(host, None)
        self.storages.clear()


_fresh = {}  # host address of a storage nobody has written -> weak reference to the tensor that made it


def is_fresh(tensor):
    """Whether `tensor` is output memory, still unwritten: such bytes are not uploaded, so that a kernel
    that reads them is found out."""
    made = _fresh.get(tensor.untyped_storage().data_ptr(), lambda: None)()
    return made is not None and made._version == 0


def remember_fresh(make):
    def wrapped(*arguments, **options):
        tensor = make(*arguments, **options)
        if tensor.numel():
            _fresh[tensor.untyped_storage().data_ptr()] = weakref.ref(tensor)
        return tensor
    return wrapped


class Launcher(CudaLauncher):
    def __call__(self, x, y, z, stream, function, packed, metadata, enter, leave, *arguments):
        if function == 0:
            return
        global launches
        launches += 1
        mirror = Mirror()
        super().__call__(x, y, z, stream, function, packed, metadata, enter, leave,
                         *mirror.of(tuple(arguments)))
        cuda_driver.synchronize()
        mirror.take_back()


class Utils:
    """Triton's utilities, but a refused module says why."""

    def __init__(self, real, ptx_folder):
        self._real, self._folder = real, ptx_folder

    def __getattr__(self, name):
        return getattr(self._real, name)

    def load_binary(self, name, kernel, shared, device):
        path = self._folder / f"{len(launched):02d}_{name}.ptx"
        path.write_bytes(kernel)
        launched.append((name, path))
        try:
            return self._real.load_binary(name, kernel, shared, device)
        except RuntimeError as error:
            if refused_are_skipped:
                return 0, 0, 32, 0, 1024
            why = cuda_driver.refusal(kernel)
            raise RuntimeError(f"{name}: {why or error}") from error


class Driver(CudaDriver):
    def __init__(self, ptx_folder):
        self.utils = Utils(CudaUtils(), ptx_folder)
        self.launcher_cls = Launcher
        self.get_device_capability = self.utils.get_device_capability
        self.get_current_stream = lambda device: 0
        self.get_current_device = lambda: 0
        self.set_current_device = lambda device: None

    def get_current_target(self):
        major, minor = self.get_device_capability(0)
        return GPUTarget("cuda", major * 10 + minor, 32)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_benchmarker(self):
        # A tuned kernel takes its first configuration: time means nothing here.
        return lambda kernel, quantiles=None: [0.0] * len(quantiles or [0])

    @staticmethod
    def is_active():
        return True


class Scratch:
    """Device memory that a kernel asks for; freed with the process."""

    def __init__(self, count):
        self.address = cuda_driver.allocate(count)

    def data_ptr(self):
        return self.address


def install(ptx_folder):
    ptx_folder = pathlib.Path(ptx_folder)
    ptx_folder.mkdir(parents=True, exist_ok=True)
    cuda_driver.start()
    backends["nvidia"] = Backend(PtxBackend, Driver)
    triton.runtime.driver.set_active(Driver(ptx_folder))
    triton.set_allocator(lambda count, alignment, stream: Scratch(count))
    capability = tuple(cuda_driver.attribute(number) for number in (75, 76))
    # What libraries ask of torch.cuda before they choose a kernel.
    torch.cuda.get_device_capability = lambda device=None: capability
    torch.cuda.get_device_name = lambda device=None: f"sm_{capability[0]}{capability[1]}"
    torch.cuda.current_device = lambda: 0
    torch.cuda.device_count = lambda: 1
    torch.empty = remember_fresh(torch.empty)
    torch.empty_like = remember_fresh(torch.empty_like)
    torch.Tensor.new_empty = remember_fresh(torch.Tensor.new_empty)


def first_configuration(module):
    """Keeps one configuration of every tuned kernel of `module`: all are right, one is enough."""
    for value in vars(module).values():
        while value is not None and not isinstance(value, triton.runtime.jit.JITFunction):
            if isinstance(value, triton.runtime.Autotuner):
                value.configs = value.configs[:1]
            value = getattr(value, "fn", None) if isinstance(
                value, (triton.runtime.Autotuner, triton.runtime.autotuner.Heuristics)) else None

