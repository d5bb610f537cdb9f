/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe._core.Plan: the kernels of a problem, and their runs on tensors. */
#include <string.h>

#include "core.h"

PyTypeObject *PlanType;

/* Reads which tensors the problem declared, in the order of the plan's slots. */
static int read_slots(PlanObject *self, const lathe_problem *problem) {
  lathe_tensor_info info = {.size = sizeof info};
  for (size_t i = 0; lathe_problem_tensor_info(problem, i, &info) == LATHE_OK; ++i) {
    if (i >= MOST_TENSORS) return raise_invalid("an operator has over %d tensors", MOST_TENSORS), -1;
    self->tensors = i + 1;
    if (!info.declared) continue;
    size_t at;
    if (!succeeded(lathe_plan_slot(self->handle, info.name, &at))) return -1;
    self->slots[at] = (PlanSlot){info.name, info.dtype, (int)i, info.written};
  }
  self->count = lathe_plan_slot_count(self->handle);
  return 0;
}

static int plan_init(PlanObject *self, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"context", "problem", NULL};
  PyObject *context, *problem;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!:Plan", names, ContextType, &context,
                                   ProblemType, &problem)) {
    return -1;
  }
  ContextObject *where = (ContextObject *)context;
  ProblemObject *what = (ProblemObject *)problem;
  if (self->handle) return raise_invalid("a Plan is made once"), -1;
  if (!is_made(where->handle, "Context") || !is_made(what->handle, "Problem")) return -1;
  lathe_status status;
  Py_BEGIN_ALLOW_THREADS
  status = lathe_plan_create(&self->handle, where->handle, what->handle);
  Py_END_ALLOW_THREADS
  if (!succeeded(status)) return -1;
  Py_INCREF(context), Py_XINCREF((PyObject *)what->group);
  self->context = where;
  self->group = what->group;
  return read_slots(self, what->handle);
}

static void plan_dealloc(PlanObject *self) {
  for (size_t i = 0; i < self->own_count; ++i) {
    lathe_stream_synchronize(self->context->handle, self->own[i].stream);
    lathe_free(self->context->handle, self->own[i].data);
  }
  PyMem_Free(self->own);
  lathe_plan_destroy(self->handle);
  Py_XDECREF((PyObject *)self->group), Py_XDECREF((PyObject *)self->context);
  free_object((PyObject *)self);
}

/* ---- the tensors of a call ---------------------------------------------------------------------- */

typedef struct {
  PyObject *objects[MOST_TENSORS];
  Borrowed borrowed[MOST_TENSORS];
  const DLTensor *slots[MOST_TENSORS];
  size_t count;
  int on_host;
} Tensors;

/* Finds the object of each slot. `given` has one for each slot, or one for each tensor of the
 * operator with None for those that the problem did not declare, or the former among Nones. */
static int find_objects(const PlanObject *plan, PyObject *given, Tensors *out) {
  const size_t count = (size_t)PyTuple_Size(given);
  const int by_operator = count == plan->tensors && count != plan->count;
  const int dense = count == plan->count;
  size_t found = 0, slot = 0;
  for (size_t i = 0; i < count; ++i) {
    PyObject *object = PyTuple_GetItem(given, (Py_ssize_t)i);
    const int declared = slot < plan->count && (size_t)plan->slots[slot].tensor == i;
    if (object == Py_None && (dense || (by_operator && declared))) {
      raise_invalid("%s is None, but the problem declared it", plan->slots[slot].name);
      return -1;
    }
    if (by_operator && declared) ++slot;
    if (object == Py_None) continue;
    if (by_operator && !declared) {
      raise_invalid("tensor %zu of the operator is given, but the problem did not declare it", i);
      return -1;
    }
    if (!by_operator) ++slot;
    if (found < plan->count) out->objects[found] = object;
    ++found;
  }
  if (found == plan->count) return 0;
  raise_invalid("a run was given %zu tensors; the plan takes %zu (slots)", found, plan->count);
  return -1;
}

/* NumPy has no bfloat16: where it is declared, unsigned 16-bit numbers are its bits. */
static void name_bits(const PlanSlot *slot, DLTensor *tensor) {
  if (slot->dtype != LATHE_BF16 || tensor->dtype.code != kDLUInt) return;
  tensor->dtype.code = kDLBfloat;
}

static int borrow_all(const PlanObject *plan, PyObject *given, Tensors *out) {
  out->count = 0;
  out->on_host = 0;
  if (!is_made(plan->handle, "Plan") || find_objects(plan, given, out) != 0) return -1;
  for (size_t i = 0; i < plan->count; ++i) {
    const PlanSlot *slot = &plan->slots[i];
    Borrowed *borrowed = &out->borrowed[i];
    if (borrow(out->objects[i], slot->name, borrowed) != 0) return -1;
    out->count = i + 1;
    out->slots[i] = &borrowed->tensor;
    name_bits(slot, &borrowed->tensor);
    out->on_host |= borrowed->tensor.device.device_type == kDLCPU;
    if (!slot->written || !borrowed->readonly) continue;
    raise_invalid("%s is read-only, but the run writes it", slot->name);
    return -1;
  }
  return 0;
}

/* ---- runs --------------------------------------------------------------------------------------- */

/* Gives a workspace that belongs to the plan and the stream, at least so large. */
static int own_workspace(PlanObject *self, void *stream, size_t bytes, void **out) {
  OwnWorkspace *own = NULL;
  for (size_t i = 0; i < self->own_count && !own; ++i) {
    if (self->own[i].stream == stream) own = &self->own[i];
  }
  if (!own) {
    void *grown = PyMem_Realloc(self->own, (self->own_count + 1) * sizeof *self->own);
    if (!grown) return PyErr_NoMemory(), -1;
    self->own = grown;
    own = &self->own[self->own_count++];
    *own = (OwnWorkspace){stream, NULL, 0};
  }
  if (own->bytes < bytes) {
    lathe_context *context = self->context->handle;
    void *larger;
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

static lathe_status launch(const PlanObject *self, const lathe_shard *shard,
                           const DLTensor *const *slots, void *workspace, size_t bytes,
                           void *stream) {
  if (!shard) return lathe_plan_run(self->handle, slots, workspace, bytes, stream);
  return lathe_plan_run_sharded(self->handle, shard, slots, workspace, bytes, stream);
}

/* The workspace of a run: memory of the plan, or a tensor, or what a callable gives for a number of
 * bytes. */
typedef struct {
  void *data;
  size_t bytes;
  PyObject *made; /* by the callable */
  Borrowed borrowed;
  int is_borrowed;
} Workspace;

static int find_workspace(PlanObject *self, const Tensors *tensors, const lathe_shard *shard,
                          void *stream, PyObject *given, Workspace *out) {
  const int is_none = !given || given == Py_None;
  const int is_callable = !is_none && PyCallable_Check(given);
  if (is_none || is_callable) {
    if (!succeeded(lathe_plan_workspace(self->handle, tensors->slots, shard, &out->bytes))) return -1;
    if (out->bytes == 0) return 0;
    if (is_none) return own_workspace(self, stream, out->bytes, &out->data);
    out->made = given = PyObject_CallFunction(given, "n", (Py_ssize_t)out->bytes);
    if (!given) return -1;
  }
  if (borrow(given, "workspace", &out->borrowed) != 0) return -1;
  out->is_borrowed = 1;
  const DLTensor *tensor = &out->borrowed.tensor;
  out->data = (char *)tensor->data + tensor->byte_offset;
  out->bytes = (size_t)tensor->dtype.bits / 8;
  for (int d = 0; d < tensor->ndim; ++d) out->bytes *= (size_t)tensor->shape[d];
  return 0;
}

static int run_on_device(PlanObject *self, const Tensors *tensors, PyObject *stream,
                         PyObject *workspace, const lathe_shard *shard) {
  void *handle;
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

/* Reads the keywords of a run, which all may be absent. */
static int read_keywords(PyObject *keywords, PyObject **stream, PyObject **workspace,
                         const lathe_shard **shard) {
  static char *names[] = {"stream", "workspace", "shard", NULL};
  PyObject *cut = NULL, *none;
  *stream = *workspace = NULL;
  *shard = NULL;
  if (!keywords || PyDict_Size(keywords) == 0) return 0;
  none = PyTuple_New(0);
  const int read = none && PyArg_ParseTupleAndKeywords(none, keywords, "|$OOO:run", names, stream,
                                                       workspace, &cut);
  Py_XDECREF(none);
  if (!read) return -1;
  if (!cut || cut == Py_None) return 0;
  if (!PyObject_TypeCheck(cut, ShardType)) {
    PyErr_SetString(PyExc_TypeError, "shard is no Shard");
    return -1;
  }
  *shard = ((ShardObject *)cut)->handle;
  return is_made(*shard, "Shard") ? 0 : -1;
}

static PyObject *plan_call(PlanObject *self, PyObject *arguments, PyObject *keywords) {
  PyObject *stream, *workspace;
  const lathe_shard *shard;
  Tensors tensors;
  tensors.count = 0;
  int failed = read_keywords(keywords, &stream, &workspace, &shard) != 0 ||
               borrow_all(self, arguments, &tensors) != 0;
  if (!failed) {
    failed = tensors.on_host && self->context->kind == LATHE_DEVICE_SIM
                 ? run_staged(self, tensors.borrowed, shard)
                 : run_on_device(self, &tensors, stream, workspace, shard);
  }
  give_back(tensors.borrowed, tensors.count);
  if (failed) return NULL;
  Py_RETURN_NONE;
}

static PyObject *plan_workspace(PlanObject *self, PyObject *arguments, PyObject *keywords) {
  PyObject *stream, *workspace;
  const lathe_shard *shard;
  Tensors tensors;
  tensors.count = 0;
  size_t bytes = 0;
  const int failed = read_keywords(keywords, &stream, &workspace, &shard) != 0 ||
                     borrow_all(self, arguments, &tensors) != 0 ||
                     !succeeded(lathe_plan_workspace(self->handle, tensors.slots, shard, &bytes));
  give_back(tensors.borrowed, tensors.count);
  return failed ? NULL : PyLong_FromSize_t(bytes);
}

/* ---- what a plan says of itself ------------------------------------------------------------------ */

static PyObject *plan_estimate(PlanObject *self, PyObject *arguments, PyObject *keywords) {
  PyObject *stream, *workspace;
  const lathe_shard *shard;
  Tensors tensors;
  tensors.count = 0;
  lathe_estimate found = {.size = sizeof found};
  const int failed = read_keywords(keywords, &stream, &workspace, &shard) != 0 ||
                     borrow_all(self, arguments, &tensors) != 0 ||
                     !succeeded(lathe_plan_estimate(self->handle, tensors.slots, shard, &found));
  give_back(tensors.borrowed, tensors.count);
  if (failed) return NULL;
  return Py_BuildValue("{s:K,s:K,s:K,s:K,s:d,s:s,s:K,s:d,s:d,s:s,s:d,s:K,s:K}", "launches",
                       (unsigned long long)found.launches, "bytes", (unsigned long long)found.bytes,
                       "minimum_bytes", (unsigned long long)found.minimum_bytes, "flops",
                       (unsigned long long)found.flops, "microseconds", found.microseconds, "bound",
                       found.bound, "tensor_ops", (unsigned long long)found.tensor_ops,
                       "memory_microseconds", found.memory_microseconds, "tensor_microseconds",
                       found.tensor_microseconds, "gpu", found.gpu, "chain_microseconds",
                       found.chain_microseconds, "exchanges", (unsigned long long)found.exchanges,
                       "exchange_bytes", (unsigned long long)found.exchange_bytes);
}

static PyObject *kernel_row(const lathe_plan *plan, size_t index) {
  lathe_kernel_info info = {.size = sizeof info};
  if (!succeeded(lathe_plan_kernel(plan, index, &info))) return NULL;
  return Py_BuildValue("{s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:d}", "name", info.name, "spec",
                       info.spec, "key", info.key, "from", info.from, "threads", info.threads,
                       "registers", info.registers, "smem_bytes", info.smem_bytes, "spill_bytes",
                       info.spill_bytes, "stack_bytes", info.stack_bytes, "compile_ms",
                       info.compile_ms);
}

static PyObject *plan_kernels(PlanObject *self, PyObject *unused) {
  (void)unused;
  if (!is_made(self->handle, "Plan")) return NULL;
  PyObject *out = PyList_New(0);
  for (size_t i = 0; out && i < lathe_plan_kernel_count(self->handle); ++i) {
    PyObject *row = kernel_row(self->handle, i);
    if (!row || PyList_Append(out, row) != 0) Py_CLEAR(out);
    Py_XDECREF(row);
  }
  return out;
}

static PyObject *plan_slots(PlanObject *self, void *unused) {
  (void)unused;
  PyObject *out = PyTuple_New((Py_ssize_t)self->count);
  for (size_t i = 0; out && i < self->count; ++i) {
    PyObject *name = PyUnicode_FromString(self->slots[i].name);
    if (!name || PyTuple_SetItem(out, (Py_ssize_t)i, name) != 0) Py_CLEAR(out);
  }
  return out;
}

static PyObject *plan_context(PlanObject *self, void *unused) {
  (void)unused;
  PyObject *out = self->context ? (PyObject *)self->context : Py_None;
  Py_INCREF(out);
  return out;
}

static PyMethodDef methods[] = {
    {"workspace", (PyCFunction)(void (*)(void))plan_workspace, METH_VARARGS | METH_KEYWORDS,
     "workspace(*tensors, shard=None) -> int\n\nReturns the device bytes that a run needs."},
    {"estimate", (PyCFunction)(void (*)(void))plan_estimate, METH_VARARGS | METH_KEYWORDS,
     "estimate(*tensors, shard=None) -> dict\n\nReturns bytes, operations and a predicted time."},
    {"kernels", (PyCFunction)plan_kernels, METH_NOARGS,
     "kernels() -> list[dict]\n\nReturns the plan's kernels: names, specs, keys, registers."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef getters[] = {
    {"slots", (getter)plan_slots, NULL, "The names of the tensors that a run takes, in order.", NULL},
    {"context", (getter)plan_context, NULL, "The context that the plan was made in.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Plan(context, problem)\n\n"
     "The kernels of a problem, compiled or loaded. A call\n"
     "plan(*tensors, stream=None, workspace=None, shard=None) enqueues a run on tensors in the\n"
     "order of slots; Nones among them do not count. stream None is the one that the tensors'\n"
     "library works on. workspace is a tensor, or a function of a number of bytes that returns one;\n"
     "None is memory that the plan keeps for that stream."},
    {Py_tp_init, plan_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, plan_dealloc},
    {Py_tp_call, plan_call},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {0, NULL}};

static PyType_Spec spec = {"lathe._core.Plan", sizeof(PlanObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

int add_plan_type(PyObject *module) { return add_type(module, &spec, &PlanType); }
