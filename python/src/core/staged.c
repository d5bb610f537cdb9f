/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Runs plans on tensors in host memory, on the simulator. Each tensor gets an allocation of its own
 * on the device, so that a read past its end is found, with the strides that it has and an address
 * that is as well aligned. */
#include <string.h>

#include "core.h"

/* The device's side of one tensor. */
typedef struct {
  char* memory;  /* as it was allocated */
  size_t before; /* bytes of `memory` before the tensor */
  size_t bytes;  /* from the tensor's first byte to its last */
  char* host;
  int shared; /* an earlier tensor with this address has the memory */
} Stage;

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

/* Puts one tensor on the device and lets `tensor` point there. */
static int upload(ContextObject* context, DLTensor* tensor, void* stream, Stage* stage) {
  enum { ALIGNED = 16 };
  stage->host = (char*)tensor->data + tensor->byte_offset;
  stage->bytes = span_of(tensor);
  stage->before = (size_t)((uintptr_t)stage->host % ALIGNED);
  tensor->device = (DLDevice){kDLCUDA, context->ordinal};
  tensor->byte_offset = 0;
  tensor->data = NULL;
  if (stage->bytes == 0) return 0;
  void* memory = NULL;
  if (!succeeded(lathe_malloc(context->handle, &memory, stage->before + stage->bytes))) return -1;
  stage->memory = memory;
  tensor->data = stage->memory + stage->before;
  return succeeded(
             lathe_copy_to_device(context->handle, tensor->data, stage->host, stage->bytes, stream))
             ? 0
             : -1;
}

/* Brings a written tensor back. What lies between its elements stays as it is on the host. */
static int download(ContextObject* context, const DLTensor* tensor, void* stream,
                    const Stage* stage) {
  if (stage->bytes == 0) return 0;
  char* copy = PyMem_Malloc(stage->bytes);
  if (!copy) return PyErr_NoMemory(), -1;
  const int copied =
      succeeded(lathe_copy_to_host(context->handle, copy, tensor->data, stage->bytes, stream));
  if (copied) copy_elements(tensor, 0, stage->host, copy);
  PyMem_Free(copy);
  return copied ? 0 : -1;
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
  Stage stages[MOST_TENSORS] = {{0}};
  DLTensor tensors[MOST_TENSORS];
  const DLTensor* pointers[MOST_TENSORS];
  void* stream = NULL;
  if (!succeeded(lathe_stream_create(context->handle, &stream))) return -1;
  int failed = 0;
  for (size_t i = 0; i < plan->count && !failed; ++i) {
    tensors[i] = slots[i].tensor;
    pointers[i] = &tensors[i];
    if (tensors[i].device.device_type != kDLCPU) continue;
    const char* host = (char*)tensors[i].data + tensors[i].byte_offset;
    for (size_t j = 0; j < i && !stages[i].shared; ++j) {
      if (stages[j].memory && stages[j].host == host && stages[j].bytes >= span_of(&tensors[i])) {
        stages[i] = stages[j], stages[i].shared = 1;
        tensors[i].data = tensors[j].data, tensors[i].byte_offset = 0;
        tensors[i].device = tensors[j].device;
      }
    }
    if (!stages[i].shared) failed = upload(context, &tensors[i], stream, &stages[i]);
  }
  if (!failed) failed = run_uploaded(plan, pointers, shard, stream);
  for (size_t i = 0; i < plan->count && !failed; ++i) {
    if (plan->slots[i].written && stages[i].memory) {
      failed = download(context, &tensors[i], stream, &stages[i]);
    }
  }
  for (size_t i = 0; i < plan->count; ++i) {
    if (stages[i].memory && !stages[i].shared) lathe_free(context->handle, stages[i].memory);
  }
  lathe_stream_destroy(context->handle, stream);
  return failed ? -1 : 0;
}
