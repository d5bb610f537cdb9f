// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A plain client of the CUDA driver API in C, as anybody would write it: plain_client KERNELS.ptx
//
// cc plain_client.c -lcuda, against any libcuda.so; nothing in here knows of a simulator. The
// kernels are in plain_client.cu. Prints a line for each part and exits with 1 if a result is
// wrong.
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "?";
  cuGetErrorName(result, &name);
  fprintf(stderr, "plain_client: %s: %s\n", what, name);
  exit(1);
}
#define CHECK(call) check(call, #call)

static char* read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) {
    perror(path);
    exit(1);
  }
  fseek(file, 0, SEEK_END);
  const long size = ftell(file);
  rewind(file);
  char* text = malloc((size_t)size + 1);
  if (fread(text, 1, (size_t)size, file) != (size_t)size) exit(1);
  text[size] = 0;
  fclose(file);
  return text;
}

static CUdeviceptr upload(const void* host, size_t bytes) {
  CUdeviceptr device;
  CHECK(cuMemAlloc(&device, bytes));
  CHECK(cuMemcpyHtoD(device, host, bytes));
  return device;
}

static int report(const char* part, int wrong) {
  printf("%s: %s\n", part, wrong ? "WRONG" : "OK");
  return wrong != 0;
}

static int vector_add(CUmodule module) {
  enum { n = 3000 };
  static float x[n], y[n], out[n];
  for (int i = 0; i < n; ++i) x[i] = 0.25f * (float)i, y[i] = 7.5f - (float)i;
  CUfunction function;
  CHECK(cuModuleGetFunction(&function, module, "vector_add"));
  CUdeviceptr dx = upload(x, sizeof x), dy = upload(y, sizeof y), dout;
  CHECK(cuMemAlloc(&dout, sizeof out));
  int count = n;
  void* arguments[] = {&dx, &dy, &dout, &count};
  CHECK(cuLaunchKernel(function, (n + 255) / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL));
  CHECK(cuMemcpyDtoH(out, dout, sizeof out));
  int wrong = 0;
  for (int i = 0; i < n; ++i) wrong += out[i] != x[i] + y[i];
  CHECK(cuMemFree(dx));
  CHECK(cuMemFree(dy));
  CHECK(cuMemFree(dout));
  return report("vector add", wrong);
}

// Small integers: exact in bf16, and so are their products and sums in f32.
static int small(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return (int)(*state >> 28) - 8;
}

static uint16_t bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static CUtensorMap tensor_map(CUdeviceptr base, CUtensorMapDataType type, unsigned bytes,
                              unsigned rows, unsigned columns, CUtensorMapSwizzle swizzle) {
  CUtensorMap map;
  const cuuint64_t dims[] = {columns, rows}, strides[] = {(cuuint64_t)columns * bytes};
  const cuuint32_t box[] = {64, 64}, steps[] = {1, 1};
  CHECK(cuTensorMapEncodeTiled(&map, type, 2, (void*)(uintptr_t)base, dims, strides, box, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

static int matmul(CUmodule module) {
  enum { m = 150, n = 136, k = 280 };  // no multiples of the tile
  static uint16_t a[m * k], b[n * k];
  static int whole_a[m * k], whole_b[n * k];
  static float c[m * n];
  unsigned state = 1;
  for (int i = 0; i < m * k; ++i) a[i] = bf16((float)(whole_a[i] = small(&state)));
  for (int i = 0; i < n * k; ++i) b[i] = bf16((float)(whole_b[i] = small(&state)));
  CUfunction function;
  CHECK(cuModuleGetFunction(&function, module, "matmul"));
  const unsigned shared = 3 * 2 * 8192 + 64 * 64 * 4 + 3 * 8 + 1024;
  CHECK(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared));
  CUdeviceptr da = upload(a, sizeof a), db = upload(b, sizeof b), dc;
  CHECK(cuMemAlloc(&dc, sizeof c));
  CUtensorMap map_a =
      tensor_map(da, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, m, k, CU_TENSOR_MAP_SWIZZLE_128B);
  CUtensorMap map_b =
      tensor_map(db, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, n, k, CU_TENSOR_MAP_SWIZZLE_128B);
  CUtensorMap map_c =
      tensor_map(dc, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, m, n, CU_TENSOR_MAP_SWIZZLE_NONE);
  int depth = k;
  void* arguments[] = {&map_a, &map_b, &map_c, &depth};
  CHECK(cuLaunchKernel(function, (n + 63) / 64, (m + 63) / 64, 1, 128, 1, 1, shared, NULL,
                       arguments, NULL));
  CHECK(cuMemcpyDtoH(c, dc, sizeof c));
  int wrong = 0;
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      int sum = 0;
      for (int i = 0; i < k; ++i) sum += whole_a[row * k + i] * whole_b[column * k + i];
      wrong += c[row * n + column] != (float)sum;
    }
  }
  CHECK(cuMemFree(da));
  CHECK(cuMemFree(db));
  CHECK(cuMemFree(dc));
  return report("matmul with TMA and wgmma", wrong);
}

static int cluster_sum(CUmodule module) {
  enum { clusters = 3, size = 4, per_block = 500, n = clusters * size * per_block };
  static int x[n], out[clusters], counts[clusters];
  unsigned state = 2;
  for (int i = 0; i < n; ++i) x[i] = small(&state) * (i % 97);
  CUfunction function;
  CHECK(cuModuleGetFunction(&function, module, "cluster_sum"));
  CUdeviceptr dx = upload(x, sizeof x), dout, dcounts;
  CHECK(cuMemAlloc(&dout, sizeof out));
  CHECK(cuMemAlloc(&dcounts, sizeof counts));
  CUstream stream;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  int each = per_block;
  void* arguments[] = {&dx, &dout, &dcounts, &each};
  CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                 .value.clusterDim = {.x = size, .y = 1, .z = 1}};
  CUlaunchConfig config = {.gridDimX = clusters * size,
                           .gridDimY = 1,
                           .gridDimZ = 1,
                           .blockDimX = 128,
                           .blockDimY = 1,
                           .blockDimZ = 1,
                           .hStream = stream,
                           .attrs = &attribute,
                           .numAttrs = 1};
  CHECK(cuLaunchKernelEx(&config, function, arguments, NULL));
  CHECK(cuStreamSynchronize(stream));
  CHECK(cuMemcpyDtoH(out, dout, sizeof out));
  CHECK(cuMemcpyDtoH(counts, dcounts, sizeof counts));
  int wrong = 0;
  for (int cluster = 0; cluster < clusters; ++cluster) {
    int sum = 0;
    for (int i = 0; i < size * per_block; ++i) sum += x[cluster * size * per_block + i];
    wrong += out[cluster] != sum || counts[cluster] != size;
  }
  CHECK(cuStreamDestroy(stream));
  CHECK(cuMemFree(dx));
  CHECK(cuMemFree(dout));
  CHECK(cuMemFree(dcounts));
  return report("cluster reduction", wrong);
}

int main(int count, char** arguments) {
  if (count != 2) {
    fprintf(stderr, "plain_client KERNELS.ptx\n");
    return 2;
  }
  CUdevice device;
  CUcontext context;
  CUmodule module;
  char name[100];
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuDeviceGetName(name, sizeof name, device));
  printf("%s\n", name);
  CHECK(cuDevicePrimaryCtxRetain(&context, device));
  CHECK(cuCtxSetCurrent(context));
  char* text = read_file(arguments[1]);
  CHECK(cuModuleLoadData(&module, text));
  free(text);
  int wrong = vector_add(module);
  wrong += matmul(module);
  wrong += cluster_sum(module);
  CHECK(cuModuleUnload(module));
  CHECK(cuDevicePrimaryCtxRelease(device));
  return wrong != 0;
}
