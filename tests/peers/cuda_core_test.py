# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""cuda.core and cuda.bindings on the drop-in: NVRTC to PTX, memory, streams, events, graphs; numpy judges.

LD_LIBRARY_PATH must lead to libcuda.so.1 of the simulator and to NVRTC.
"""
import ctypes
import json
import os
import pathlib
import tempfile
import unittest

_report = pathlib.Path(tempfile.mkdtemp()) / "report.jsonl"
os.environ.update(LATHE_SIM_CHECK="all", LATHE_SIM_REPORT=str(_report))

import numpy as np  # noqa: E402 — the driver reads its environment at the first call
from cuda.bindings import driver, nvrtc  # noqa: E402
from cuda.core import (Device, DeviceMemoryResource, EventOptions, LaunchConfig, LegacyPinnedMemoryResource,  # noqa: E402
                       ObjectCode, Program, ProgramOptions, StreamOptions, launch)

CODE = r"""
template <typename T>
__global__ void saxpy(T a, const T* x, const T* y, T* out, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
    out[i] = a * x[i] + y[i];
}
template <int Threads>
__global__ void block_sum(const float* x, float* out, int n) {
  __shared__ float part[Threads];
  float sum = 0;
  for (int i = blockIdx.x * Threads + threadIdx.x; i < n; i += gridDim.x * Threads) sum += x[i];
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = Threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, part[0]);
}
extern "C" __global__ void reverse(const int* x, int* out, int n) {
  extern __shared__ int line[];
  if (threadIdx.x < n) line[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < n) out[threadIdx.x] = line[n - 1 - threadIdx.x];
}
struct Pair { double scale; int shift; };
__constant__ int table[4] = {3, 1, 4, 1};
__device__ int counter = 5;
extern "C" __global__ void mixed(Pair pair, signed char small, bool flag, const int* x, double* out) {
  int i = threadIdx.x;
  out[i] = pair.scale * x[i] + pair.shift + small + (flag ? table[i & 3] : 0);
  atomicAdd(&counter, 1);
}
extern "C" __global__ void increment(int* x) { x[blockIdx.x * blockDim.x + threadIdx.x] += 1; }
extern "C" __global__ void beyond(int* x, int n) { x[threadIdx.x + n] = 1; }
"""
NAMES = ("saxpy<float>", "saxpy<double>", "block_sum<128>")


def host_view(buffer, dtype, count):
    """A numpy array over memory that the host can reach."""
    return np.frombuffer((ctypes.c_char * buffer.size).from_address(int(buffer.handle)), dtype=dtype, count=count)


class CudaCore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.device = Device()
        cls.device.set_current()
        cls.arch = f"sm_{cls.device.arch}"
        cls.stream = cls.device.create_stream()
        cls.pinned = LegacyPinnedMemoryResource()
        options = ProgramOptions(std="c++17", arch=cls.arch)
        cls.module = Program(CODE, code_type="c++", options=options).compile("ptx", name_expressions=NAMES)

    def upload(self, array):
        buffer = self.device.allocate(array.nbytes, stream=self.stream)
        staging = self.pinned.allocate(array.nbytes)
        host_view(staging, array.dtype, array.size)[:] = array.ravel()
        buffer.copy_from(staging, stream=self.stream)
        self.stream.sync()
        staging.close()
        return buffer

    def download(self, buffer, dtype):
        staging = self.pinned.allocate(buffer.size)
        buffer.copy_to(staging, stream=self.stream)
        self.stream.sync()
        array = host_view(staging, dtype, buffer.size // np.dtype(dtype).itemsize).copy()
        staging.close()
        return array

    def test_device(self):
        properties = self.device.properties
        self.assertEqual(tuple(self.device.compute_capability), {"sm_90": (9, 0), "sm_80": (8, 0)}[self.arch])
        self.assertEqual(properties.warp_size, 32)
        self.assertEqual(properties.max_threads_per_block, 1024)
        self.assertGreater(properties.multiprocessor_count, 0)
        self.assertGreater(properties.max_shared_memory_per_block_optin, 48 * 1024)
        self.assertIn("simulator", self.device.name)
        self.assertEqual(len(self.device.uuid.replace("-", "")), 32)

    def test_saxpy_of_two_types(self):
        n = 10_000
        for dtype, name in ((np.float32, "saxpy<float>"), (np.float64, "saxpy<double>")):
            x, y = np.random.default_rng(1).random((2, n)).astype(dtype)
            bx, by = self.upload(x), self.upload(y)
            out = self.device.allocate(x.nbytes, stream=self.stream)
            launch(self.stream, LaunchConfig(grid=8, block=256), self.module.get_kernel(name), dtype(2.5), bx, by,
                   out, np.uint64(n))
            np.testing.assert_allclose(self.download(out, dtype), 2.5 * x.astype(np.float64) + y, rtol=1e-6)

    def test_reduction_in_shared_memory(self):
        x = np.random.default_rng(2).random(5000).astype(np.float32)
        source, out = self.upload(x), self.upload(np.zeros(1, np.float32))
        launch(self.stream, LaunchConfig(grid=4, block=128), self.module.get_kernel("block_sum<128>"), source, out,
               np.int32(x.size))
        np.testing.assert_allclose(self.download(out, np.float32)[0], x.sum(dtype=np.float64), rtol=1e-5)

    def test_dynamic_shared_memory(self):
        x = np.arange(100, dtype=np.int32)
        source, out = self.upload(x), self.device.allocate(x.nbytes, stream=self.stream)
        launch(self.stream, LaunchConfig(grid=1, block=128, shmem_size=400), self.module.get_kernel("reverse"), source,
               out, np.int32(100))
        np.testing.assert_array_equal(self.download(out, np.int32), x[::-1])

    def test_parameters_of_every_size_and_globals(self):
        class Pair(ctypes.Structure):
            _fields_ = [("scale", ctypes.c_double), ("shift", ctypes.c_int)]
        x = np.arange(32, dtype=np.int32)
        source, out = self.upload(x), self.device.allocate(32 * 8, stream=self.stream)
        kernel = self.module.get_kernel("mixed")
        pair = Pair(0.5, 7)
        # cuda.core takes no structures by value, cuda.bindings any memory: the plain call.
        values = [pair, ctypes.c_int8(-3), ctypes.c_bool(True), ctypes.c_void_p(int(source.handle)),
                  ctypes.c_void_p(int(out.handle))]
        pointers = (ctypes.c_void_p * 5)(*[ctypes.addressof(value) for value in values])
        self.check(*driver.cuLaunchKernel(int(kernel.handle), 1, 1, 1, 32, 1, 1, 0, int(self.stream.handle),
                                          ctypes.addressof(pointers), 0))
        table = np.array([3, 1, 4, 1])
        np.testing.assert_array_equal(self.download(out, np.float64), 0.5 * x + 7 - 3 + table[x & 3])
        library = self.check(*driver.cuLibraryLoadData(self.module.code, [], [], 0, [], [], 0))
        self.assertGreaterEqual(self.check(*driver.cuLibraryGetKernelCount(library)), 6)
        self.check(*driver.cuLibraryUnload(library))

    def check(self, code, *results):
        self.assertEqual(int(code), 0, code)
        return results[0] if len(results) == 1 else results

    def test_kernel_attributes_and_occupancy(self):
        kernel = self.module.get_kernel("block_sum<128>")
        self.assertEqual(kernel.attributes.shared_size_bytes, 512)
        self.assertGreater(kernel.attributes.num_regs, 0)
        self.assertLessEqual(kernel.attributes.max_threads_per_block, 1024)
        self.assertEqual(kernel.num_arguments, 3)
        self.assertEqual([tuple(info)[:2] for info in kernel.arguments_info], [(0, 8), (8, 8), (16, 4)])
        self.assertGreaterEqual(kernel.occupancy.max_active_blocks_per_multiprocessor(128, 0), 8)

    def test_events_order_streams_and_take_time(self):
        first, second = (self.device.create_stream(options=StreamOptions(nonblocking=True)) for _ in range(2))
        x = self.upload(np.zeros(1024, np.int32))
        config, kernel = LaunchConfig(grid=8, block=128), self.module.get_kernel("increment")
        timed = EventOptions(timing_enabled=True)
        begin = first.record(options=timed)
        for turn in range(6):
            ours, other = (first, second) if turn % 2 == 0 else (second, first)
            launch(ours, config, kernel, x)
            other.wait(ours.record())
        end = first.record(options=timed)
        end.sync()
        self.assertTrue(end.is_done)
        self.assertGreaterEqual(end - begin, 0)
        second.sync()
        np.testing.assert_array_equal(self.download(x, np.int32), np.full(1024, 6))

    def test_memory_pool_and_fill(self):
        pool = DeviceMemoryResource(self.device)
        buffer = pool.allocate(4096, stream=self.stream)
        buffer.fill(np.uint8(0xAB), stream=self.stream)
        self.assertTrue((self.download(buffer, np.uint8) == 0xAB).all())
        other = pool.allocate(4096, stream=self.stream)
        other.copy_from(buffer, stream=self.stream)
        self.assertTrue((self.download(other, np.uint16) == 0xABAB).all())
        self.assertTrue(buffer.is_device_accessible)
        buffer.close(self.stream)
        other.close(self.stream)
        self.stream.sync()

    def test_graph_by_capture(self):
        x = self.upload(np.zeros(256, np.int32))
        builder = self.stream.create_graph_builder()
        builder.begin_building()
        for _ in range(3):
            launch(builder, LaunchConfig(grid=2, block=128), self.module.get_kernel("increment"), x)
        graph = builder.end_building().complete()
        graph.upload(self.stream)
        for _ in range(4):
            graph.launch(self.stream)
        np.testing.assert_array_equal(self.download(x, np.int32), np.full(256, 12))

    def test_graph_that_forks(self):
        left, right = (self.upload(np.zeros(128, np.int32)) for _ in range(2))
        builder = self.device.create_graph_builder().begin_building()
        config, kernel = LaunchConfig(grid=1, block=128), self.module.get_kernel("increment")
        launch(builder, config, kernel, left)
        ours, other = builder.split(2)
        launch(ours, config, kernel, left)
        launch(other, config, kernel, right)
        from cuda.core.graph import GraphBuilder
        graph = GraphBuilder.join(ours, other).end_building().complete()
        graph.launch(self.stream)
        np.testing.assert_array_equal(self.download(left, np.int32), np.full(128, 2))
        np.testing.assert_array_equal(self.download(right, np.int32), np.full(128, 1))

    def test_module_from_ptx_text(self):
        module = ObjectCode.from_ptx(self.module.code)
        x = self.upload(np.zeros(32, np.int32))
        launch(self.stream, LaunchConfig(grid=1, block=32), module.get_kernel("increment"), x)
        np.testing.assert_array_equal(self.download(x, np.int32), np.ones(32))

    def test_cluster_launch(self):
        if self.arch != "sm_90":
            self.skipTest("clusters begin with sm_90")
        x = self.upload(np.zeros(512, np.int32))
        launch(self.stream, LaunchConfig(grid=2, cluster=2, block=128), self.module.get_kernel("increment"), x)
        np.testing.assert_array_equal(self.download(x, np.int32), np.ones(512))

    def test_plain_bindings(self):
        version = self.check(*driver.cuDriverGetVersion())
        self.assertGreaterEqual(version, 13000)
        program = self.check(*nvrtc.nvrtcCreateProgram(b'extern "C" __global__ void f() {}', b"f.cu", 0, [], []))
        self.check(*nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture={self.arch}".encode()]))
        ptx = b" " * self.check(*nvrtc.nvrtcGetPTXSize(program))
        self.check(*nvrtc.nvrtcGetPTX(program, ptx))
        module = self.check(*driver.cuModuleLoadData(ptx))
        function = self.check(*driver.cuModuleGetFunction(module, b"f"))
        self.check(*driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
        self.check(*driver.cuCtxSynchronize())
        free, total = self.check(*driver.cuMemGetInfo())
        self.assertLessEqual(free, total)
        pitched, pitch = self.check(*driver.cuMemAllocPitch(100, 7, 4))
        self.assertGreaterEqual(pitch, 100)
        self.check(*driver.cuMemsetD2D8(pitched, pitch, 9, 100, 7))
        row = np.empty(100, np.uint8)
        self.check(*driver.cuMemcpyDtoH(row.ctypes.data, int(pitched) + 6 * pitch, 100))
        self.assertTrue((row == 9).all())
        self.check(*driver.cuMemFree(pitched))
        self.check(*driver.cuModuleUnload(module))
        code, name = driver.cuGetErrorName(driver.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS)
        self.assertEqual(name, b"CUDA_ERROR_ILLEGAL_ADDRESS")

    def test_zz_a_wild_store_is_found(self):
        """Last by its name: the context is dead afterwards."""
        self.assertFalse(_report.exists(), "everything before is clean: no report is written")
        x = self.upload(np.zeros(32, np.int32))
        launch(self.stream, LaunchConfig(grid=1, block=32), self.module.get_kernel("beyond"), x, np.int32(1))
        with self.assertRaises(Exception) as caught:
            self.stream.sync()
        self.assertIn("ILLEGAL_ADDRESS", str(caught.exception))
        found = [json.loads(line) for line in _report.read_text().splitlines()]
        self.assertEqual((found[0]["check"], found[0]["kernel"]), ("memcheck", "beyond"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
