/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What lathe._core.Plan says of itself: its kernels, its slots, estimates. */
#include "core.h"

PyObject* estimate(const PlanObject* self, const Tensors* tensors, const lathe_shard* shard) {
  lathe_estimate found = {.size = sizeof found};
  if (!succeeded(lathe_plan_estimate(self->handle, tensors->slots, shard, &found))) return NULL;
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:d,s:s,s:K,s:d,s:d,s:s,s:K,s:K}", "launches",
                       (unsigned long long)found.launches, "bytes", (unsigned long long)found.bytes,
                       "minimum_bytes", (unsigned long long)found.minimum_bytes, "flops",
                       (unsigned long long)found.flops, "microseconds", found.microseconds, "bound",
                       found.bound, "tensor_ops", (unsigned long long)found.tensor_ops,
                       "memory_microseconds", found.memory_microseconds, "tensor_microseconds",
                       found.tensor_microseconds, "gpu", found.gpu, "exchanges",
                       (unsigned long long)found.exchanges, "exchange_bytes",
                       (unsigned long long)found.exchange_bytes);
}

static PyObject* kernel_row(const lathe_plan* plan, size_t index) {
  lathe_kernel_info info = {.size = sizeof info};
  if (!succeeded(lathe_plan_kernel(plan, index, &info))) return NULL;
  return Py_BuildValue("{s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:d,s:s,s:s}", "name", info.name,
                       "spec", info.spec, "key", info.key, "from", info.from, "threads",
                       info.threads, "registers", info.registers, "smem_bytes", info.smem_bytes,
                       "spill_bytes", info.spill_bytes, "stack_bytes", info.stack_bytes,
                       "compile_ms", info.compile_ms, "family", info.family, "family_reason",
                       info.family_reason);
}

PyObject* plan_kernels(PlanObject* self, PyObject* unused) {
  (void)unused;
  if (!is_made(self->handle, "Plan")) return NULL;
  PyObject* out = PyList_New(0);
  for (size_t i = 0; out && i < lathe_plan_kernel_count(self->handle); ++i) {
    PyObject* row = kernel_row(self->handle, i);
    if (!row || PyList_Append(out, row) != 0) Py_CLEAR(out);
    Py_XDECREF(row);
  }
  return out;
}

PyObject* plan_slots(PlanObject* self, void* unused) {
  (void)unused;
  PyObject* out = PyTuple_New((Py_ssize_t)self->count);
  for (size_t i = 0; out && i < self->count; ++i) {
    PyObject* name = PyUnicode_FromString(self->slots[i].name);
    if (!name || PyTuple_SetItem(out, (Py_ssize_t)i, name) != 0) Py_CLEAR(out);
  }
  return out;
}

PyObject* plan_context(PlanObject* self, void* unused) {
  (void)unused;
  PyObject* out = self->context ? (PyObject*)self->context : Py_None;
  Py_INCREF(out);
  return out;
}
