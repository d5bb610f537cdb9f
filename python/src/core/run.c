/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a plan on tensors of Python: borrows them, finds a stream and a workspace, enqueues. */
#include "core.h"

/* ---- the tensors of a call ----------------------------------------------------------------- */

int borrow_more(PyObject* object, const char* name, Tensors* out) {
  if (out->count >= MOST_TENSORS) {
    raise_invalid("a run was given over %d tensors", MOST_TENSORS);
    return -1;
  }
  out->objects[out->count] = object;
  if (borrow(object, name, &out->borrowed[out->count]) != 0) {
    give_back(&out->borrowed[out->count], 1); /* a buffer of which something else is wrong */
    return -1;
  }
  ++out->count;
  return 0;
}

/* NumPy has no bfloat16: where it is declared, unsigned 16-bit numbers are its bits. */
static void name_bits(const PlanSlot* slot, DLTensor* tensor) {
  if (slot->dtype != LATHE_BF16 || tensor->dtype.code != kDLUInt) return;
  tensor->dtype.code = kDLBfloat;
}

static int is_as_many(const PlanObject* plan, size_t count) {
  if (count == plan->count) return 1;
  raise_invalid("a run was given %zu tensors; the plan takes %zu (slots)", count, plan->count);
  return 0;
}

/* Fits borrowed tensors to the plan's slots. Returns 0, or -1. */
static int fit_slots(const PlanObject* plan, Tensors* tensors) {
  if (!is_made(plan->handle, "Plan") || !is_as_many(plan, tensors->count)) return -1;
  tensors->on_host = 0;
  for (size_t i = 0; i < plan->count; ++i) {
    const PlanSlot* slot = &plan->slots[i];
    Borrowed* borrowed = &tensors->borrowed[i];
    tensors->slots[i] = &borrowed->tensor;
    name_bits(slot, &borrowed->tensor);
    tensors->on_host |= borrowed->tensor.device.device_type == kDLCPU;
    if (!slot->written || !borrowed->readonly) continue;
    raise_invalid(
        "%s is read-only, but the run writes it; allowed is memory that can be changed: "
        "give a copy of it",
        slot->name);
    return -1;
  }
  return 0;
}

int borrow_all(const PlanObject* plan, PyObject* const* given, size_t count, Tensors* out) {
  out->count = 0;
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) found += given[i] != Py_None;
  if (!is_made(plan->handle, "Plan") || !is_as_many(plan, found)) return -1;
  for (size_t i = 0; i < count; ++i) {
    if (given[i] == Py_None) continue;
    if (borrow_more(given[i], plan->slots[out->count].name, out) != 0) return -1;
  }
  return fit_slots(plan, out);
}

/* ---- runs ---------------------------------------------------------------------------------- */

/* Gives a workspace that belongs to the plan and the stream, at least so large. */
static int own_workspace(PlanObject* self, void* stream, size_t bytes, void** out) {
  OwnWorkspace* own = NULL;
  for (size_t i = 0; i < self->own_count && !own; ++i) {
    if (self->own[i].stream == stream) own = &self->own[i];
  }
  if (!own) {
    void* grown = PyMem_Realloc(self->own, (self->own_count + 1) * sizeof *self->own);
    if (!grown) return PyErr_NoMemory(), -1;
    self->own = grown;
    own = &self->own[self->own_count++];
    *own = (OwnWorkspace){stream, NULL, 0};
  }
  if (own->bytes < bytes) {
    lathe_context* context = self->context->handle;
    void* larger;
    if (!succeeded(lathe_stream_synchronize(context, stream)) ||
        !succeeded(lathe_malloc(context, &larger, bytes))) {
      return -1;
    }
    lathe_free(context, own->data);
    own->data = larger, own->bytes = bytes;
  }
  *out = own->data;
  return 0;
}

static lathe_status launch(const PlanObject* self, const lathe_shard* shard,
                           const DLTensor* const* slots, void* workspace, size_t bytes,
                           void* stream) {
  if (!shard) return lathe_plan_run(self->handle, slots, workspace, bytes, stream);
  return lathe_plan_run_sharded(self->handle, shard, slots, workspace, bytes, stream);
}

/* The workspace of a run: memory of the plan, or a tensor, or what a callable gives for a number of
 * bytes. */
typedef struct {
  void* data;
  size_t bytes;
  PyObject* made; /* by the callable */
  Borrowed borrowed;
  int is_borrowed;
} Workspace;

static int find_workspace(PlanObject* self, const Tensors* tensors, const lathe_shard* shard,
                          void* stream, PyObject* given, Workspace* out) {
  const int is_none = !given || given == Py_None;
  const int is_callable = !is_none && PyCallable_Check(given);
  if (is_none || is_callable) {
    if (!succeeded(lathe_plan_workspace(self->handle, tensors->slots, shard, &out->bytes)))
      return -1;
    if (out->bytes == 0) return 0;
    if (is_none) return own_workspace(self, stream, out->bytes, &out->data);
    out->made = given = PyObject_CallFunction(given, "n", (Py_ssize_t)out->bytes);
    if (!given) return -1;
  }
  if (borrow(given, "workspace", &out->borrowed) != 0) return -1;
  out->is_borrowed = 1;
  const DLTensor* tensor = &out->borrowed.tensor;
  out->data = (char*)tensor->data + tensor->byte_offset;
  out->bytes = (size_t)tensor->dtype.bits / 8;
  for (int d = 0; d < tensor->ndim; ++d) out->bytes *= (size_t)tensor->shape[d];
  return 0;
}

static int run_on_device(PlanObject* self, const Tensors* tensors, PyObject* stream,
                         PyObject* workspace, const lathe_shard* shard) {
  void* handle;
  Workspace memory = {.is_borrowed = 0};
  int failed =
      find_stream(stream, tensors->objects, tensors->borrowed, tensors->count, &handle) != 0 ||
      find_workspace(self, tensors, shard, handle, workspace, &memory) != 0;
  if (!failed) {
    lathe_status status;
    if (self->group || self->context->kind == LATHE_DEVICE_SIM) {
      Py_BEGIN_ALLOW_THREADS
      status = launch(self, shard, tensors->slots, memory.data, memory.bytes, handle);
      Py_END_ALLOW_THREADS
    } else {
      status = launch(self, shard, tensors->slots, memory.data, memory.bytes, handle);
    }
    failed = !succeeded(status);
  }
  if (memory.is_borrowed) give_back(&memory.borrowed, 1);
  Py_XDECREF(memory.made);
  return failed ? -1 : 0;
}

/* Runs on tensors that fit the plan's slots. */
static int run_fitting(PlanObject* self, Tensors* tensors, PyObject* stream, PyObject* workspace,
                       const lathe_shard* shard) {
  return tensors->on_host && self->context->kind == LATHE_DEVICE_SIM
             ? run_staged(self, tensors->borrowed, shard)
             : run_on_device(self, tensors, stream, workspace, shard);
}

int run_borrowed(PlanObject* self, Tensors* tensors, PyObject* stream, PyObject* workspace,
                 const lathe_shard* shard) {
  if (fit_slots(self, tensors) != 0) return -1;
  return run_fitting(self, tensors, stream, workspace, shard);
}

int run_plan(PlanObject* self, PyObject* const* given, size_t count, PyObject* stream,
             PyObject* workspace, const lathe_shard* shard) {
  Tensors tensors;
  const int failed = borrow_all(self, given, count, &tensors) != 0 ||
                     run_fitting(self, &tensors, stream, workspace, shard) != 0;
  give_back(tensors.borrowed, tensors.count);
  return failed ? -1 : 0;
}
