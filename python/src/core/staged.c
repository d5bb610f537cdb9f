/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Runs plans on tensors in host memory, on the simulator. Each tensor gets an allocation of its own
 * on the device, so that a read past its end is found, with the strides that it has and an address
 * that is as well aligned. Tensors whose memory overlaps, views of one buffer, get one allocation
 * for all of them: what a run writes through one of them is there for the others, as on a GPU. */
#include <string.h>

#include "core.h"

/* A range of host memory and its copy on the device. */
typedef struct {
  char *begin, *end; /* on the host */
  char* memory;      /* as it was allocated on the device; NULL: nothing is */
  char* first;       /* in `memory`: the copy of *begin */
} Region;

static size_t item_bytes(const DLTensor* tensor) { return tensor->dtype.bits / 8u; }

/* Counts the bytes that the elements span; 0 if there is none. Strides that a run refuses, as they
 * are negative, do not count: it refuses them before it reads. */
static size_t span_of(const DLTensor* tensor) {
  size_t last = 0, contiguous = 1;
  for (int d = tensor->ndim - 1; d >= 0; --d) {
    const int64_t extent = tensor->shape[d];
    if (extent == 0) return 0;
    const int64_t stride = tensor->strides ? tensor->strides[d] : (int64_t)contiguous;
    if (stride > 0) last += (size_t)(extent - 1) * (size_t)stride;
    contiguous *= (size_t)extent;
  }
  return (last + 1) * item_bytes(tensor);
}

/* Copies the elements of a tensor, from dimension `d` on, between two places of its layout. */
static void copy_elements(const DLTensor* tensor, int d, char* to, const char* from) {
  const size_t item = item_bytes(tensor);
  if (d == tensor->ndim) {
    memcpy(to, from, item);
    return;
  }
  int64_t stride = 1;
  if (tensor->strides) {
    stride = tensor->strides[d];
  } else {
    for (int inner = d + 1; inner < tensor->ndim; ++inner) stride *= tensor->shape[inner];
  }
  if (d == tensor->ndim - 1 && stride == 1) {
    memcpy(to, from, (size_t)tensor->shape[d] * item);
    return;
  }
  for (int64_t i = 0; i < tensor->shape[d]; ++i) {
    const int64_t step = i * stride * (int64_t)item;
    copy_elements(tensor, d + 1, to + step, from + step);
  }
}

/* Copies a region to the device. */
static int upload(ContextObject* context, void* stream, Region* region) {
  enum { ALIGNED = 16 };
  const size_t before = (size_t)((uintptr_t)region->begin % ALIGNED);
  const size_t bytes = (size_t)(region->end - region->begin);
  void* memory = NULL;
  if (!succeeded(lathe_malloc(context->handle, &memory, before + bytes))) return -1;
  region->memory = memory;
  region->first = region->memory + before;
  const lathe_status status =
      lathe_copy_to_device(context->handle, region->first, region->begin, bytes, stream);
  return succeeded(status) ? 0 : -1;
}

/* Brings a written tensor back. What lies between its elements stays as it is on the host. */
static int download(ContextObject* context, const DLTensor* tensor, char* host, void* stream) {
  const size_t bytes = span_of(tensor);
  if (bytes == 0) return 0;
  char* copy = PyMem_Malloc(bytes);
  if (!copy) return PyErr_NoMemory(), -1;
  const int copied =
      succeeded(lathe_copy_to_host(context->handle, copy, tensor->data, bytes, stream));
  if (copied) copy_elements(tensor, 0, host, copy);
  PyMem_Free(copy);
  return copied ? 0 : -1;
}

/* Adds the memory of a tensor to the regions, which do not overlap: those that it overlaps become
 * one with it. */
static void add_range(char* begin, char* end, Region* regions, size_t* count) {
  size_t kept = 0;
  for (size_t i = 0; i < *count; ++i) {
    if (regions[i].begin < end && begin < regions[i].end) {
      if (regions[i].begin < begin) begin = regions[i].begin;
      if (regions[i].end > end) end = regions[i].end;
    } else {
      regions[kept++] = regions[i];
    }
  }
  regions[kept] = (Region){.begin = begin, .end = end};
  *count = kept + 1;
}

/* Lets a tensor of the host point to its copy. */
static void move_to_device(const ContextObject* context, const Region* regions, size_t count,
                           DLTensor* tensor) {
  const char* host = (char*)tensor->data + tensor->byte_offset;
  tensor->device = (DLDevice){kDLCUDA, context->ordinal};
  tensor->byte_offset = 0;
  tensor->data = NULL;
  for (size_t i = 0; i < count && span_of(tensor) > 0; ++i) {
    if (regions[i].begin <= host && host < regions[i].end) {
      tensor->data = regions[i].first + (host - regions[i].begin);
    }
  }
}

/* Runs with a workspace and a stream of its own: ranks on one device need a stream each. */
static int run_uploaded(PlanObject* plan, const DLTensor* const* slots, const lathe_shard* shard,
                        void* stream) {
  lathe_context* context = plan->context->handle;
  size_t bytes = 0;
  void* workspace = NULL;
  if (!succeeded(lathe_plan_workspace(plan->handle, slots, shard, &bytes)) ||
      (bytes > 0 && !succeeded(lathe_malloc(context, &workspace, bytes)))) {
    return -1;
  }
  lathe_status status;
  Py_BEGIN_ALLOW_THREADS
  status = shard ? lathe_plan_run_sharded(plan->handle, shard, slots, workspace, bytes, stream)
                 : lathe_plan_run(plan->handle, slots, workspace, bytes, stream);
  if (status == LATHE_OK) status = lathe_stream_synchronize(context, stream);
  Py_END_ALLOW_THREADS
  const int failed = !succeeded(status);
  if (workspace) lathe_free(context, workspace);
  return failed ? -1 : 0;
}

int run_staged(PlanObject* plan, Borrowed* slots, const lathe_shard* shard) {
  ContextObject* context = plan->context;
  Region regions[MOST_TENSORS];
  DLTensor tensors[MOST_TENSORS];
  const DLTensor* pointers[MOST_TENSORS];
  char* hosts[MOST_TENSORS];
  int on_host[MOST_TENSORS]; /* an empty tensor is somewhere, and its address may be NULL */
  size_t count = 0;
  void* stream = NULL;
  if (!succeeded(lathe_stream_create(context->handle, &stream))) return -1;
  for (size_t i = 0; i < plan->count; ++i) {
    tensors[i] = slots[i].tensor;
    pointers[i] = &tensors[i];
    on_host[i] = tensors[i].device.device_type == kDLCPU;
    if (!on_host[i]) continue;
    hosts[i] = (char*)tensors[i].data + tensors[i].byte_offset;
    const size_t bytes = span_of(&tensors[i]);
    if (bytes > 0) add_range(hosts[i], hosts[i] + bytes, regions, &count);
  }
  int failed = 0;
  for (size_t i = 0; i < count && !failed; ++i) failed = upload(context, stream, &regions[i]);
  for (size_t i = 0; i < plan->count && !failed; ++i) {
    if (on_host[i]) move_to_device(context, regions, count, &tensors[i]);
  }
  if (!failed) failed = run_uploaded(plan, pointers, shard, stream);
  for (size_t i = 0; i < plan->count && !failed; ++i) {
    if (plan->slots[i].written && on_host[i]) {
      failed = download(context, &tensors[i], hosts[i], stream);
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (regions[i].memory) lathe_free(context->handle, regions[i].memory);
  }
  lathe_stream_destroy(context->handle, stream);
  return failed ? -1 : 0;
}
