// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Runs one kernel of a PTX file, by the CUDA driver API alone, so on a GPU or on the simulator:
//
//   run_ptx FILE.ptx KERNEL GRID BLOCK ARGUMENT...
//
// GRID and BLOCK are numbers, X or X,Y or X,Y,Z. An argument is a number, i32=5, i64=5 or f32=0.5,
// or a buffer on the device: f32[1024]=2 has 1024 elements, all 2 (without =2, nobody has written
// them). Afterwards the first elements of each buffer are printed.
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 16, kShown = 4 };

typedef struct Argument {
  char type[4];
  union {
    int i32;
    long long i64;
    float f32;
    CUdeviceptr buffer;
  } value;
  size_t count;  // elements of a buffer; 0: a number
} Argument;

static void check(CUresult result, const char* what) {
  const char* text = NULL;
  if (result == CUDA_SUCCESS) return;
  cuGetErrorString(result, &text);
  fprintf(stderr, "run_ptx: %s: %s\n", what, text ? text : "unknown error");
  exit(1);
}

static void refuse(const char* what, const char* given) {
  fprintf(stderr, "run_ptx: %s '%s'\n", what, given);
  exit(2);
}

static char* read_text(const char* path) {
  FILE* file = fopen(path, "rb");
  if (!file) refuse("cannot read", path);
  fseek(file, 0, SEEK_END);
  const long bytes = ftell(file);
  rewind(file);
  char* text = calloc(1, (size_t)bytes + 1);
  if (!text || fread(text, 1, (size_t)bytes, file) != (size_t)bytes) refuse("cannot read", path);
  fclose(file);
  return text;
}

static void read_size(const char* text, unsigned* size) {
  size[0] = size[1] = size[2] = 1;
  if (sscanf(text, "%u,%u,%u", &size[0], &size[1], &size[2]) < 1) refuse("no size:", text);
}

static size_t width(const Argument* a) { return strcmp(a->type, "i64") == 0 ? 8 : 4; }

static void set(Argument* a, const char* number) {
  if (strcmp(a->type, "f32") == 0) {
    a->value.f32 = strtof(number, NULL);
  } else if (strcmp(a->type, "i32") == 0) {
    a->value.i32 = (int)strtol(number, NULL, 0);
  } else {
    a->value.i64 = strtoll(number, NULL, 0);
  }
}

static Argument read_argument(const char* text) {
  Argument a = {{0}, {0}, 0}, element;
  const char* number = strchr(text, '=');
  memcpy(a.type, text, strlen(text) < 3 ? strlen(text) : 3);
  if (strcmp(a.type, "i32") && strcmp(a.type, "i64") && strcmp(a.type, "f32")) {
    refuse("an argument begins with i32, i64 or f32:", text);
  }
  if (text[3] != '[') {
    if (!number) refuse("a number is missing in", text);
    set(&a, number + 1);
    return a;
  }
  a.count = strtoull(text + 4, NULL, 0);
  check(cuMemAlloc(&a.value.buffer, a.count * width(&a)), text);
  if (!number) return a;
  element = a;
  set(&element, number + 1);
  char* filled = malloc(a.count * width(&a));
  for (size_t k = 0; filled && k < a.count; ++k) {
    memcpy(filled + k * width(&a), &element.value, width(&a));
  }
  check(cuMemcpyHtoD(a.value.buffer, filled, a.count * width(&a)), text);
  free(filled);
  return a;
}

static void print(const Argument* a, int number) {
  const size_t shown = a->count < kShown ? a->count : kShown;
  printf("argument %d:", number);
  for (size_t k = 0; k < shown; ++k) {
    Argument one = *a;
    check(cuMemcpyDtoH(&one.value, a->value.buffer + k * width(a), width(a)), "reading back");
    if (strcmp(a->type, "f32") == 0) printf(" %g", one.value.f32);
    if (strcmp(a->type, "i32") == 0) printf(" %d", one.value.i32);
    if (strcmp(a->type, "i64") == 0) printf(" %lld", one.value.i64);
  }
  printf(shown < a->count ? " ...\n" : "\n");
}

int main(int count, char** words) {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction kernel;
  Argument arguments[kMost];
  void* pointers[kMost];
  unsigned grid[3], block[3];
  const int given = count - 5;
  if (given < 0 || given > kMost) refuse("usage: FILE.ptx KERNEL GRID BLOCK ARGUMENT..., not", "");
  read_size(words[3], grid);
  read_size(words[4], block);
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
  char* text = read_text(words[1]);
  check(cuModuleLoadData(&module, text), words[1]);
  check(cuModuleGetFunction(&kernel, module, words[2]), words[2]);
  for (int k = 0; k < given; ++k) {
    arguments[k] = read_argument(words[5 + k]);
    pointers[k] = &arguments[k].value;
  }
  check(cuLaunchKernel(kernel, grid[0], grid[1], grid[2], block[0], block[1], block[2], 0, NULL,
                       pointers, NULL),
        "cuLaunchKernel");
  check(cuCtxSynchronize(), words[2]);
  for (int k = 0; k < given; ++k) {
    if (arguments[k].count > 0) print(&arguments[k], k);
    if (arguments[k].count > 0) cuMemFree(arguments[k].value.buffer);
  }
  cuModuleUnload(module);
  cuDevicePrimaryCtxRelease(device);
  free(text);
  return 0;
}
