/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe._core.Plan: the kernels of a problem, and their runs on tensors. */
#include <string.h>

#include "core.h"

PyTypeObject* PlanType;

/* Reads which tensors the problem declared, in the order of the plan's slots. */
static int read_slots(PlanObject* self, const lathe_problem* problem) {
  lathe_tensor_info info = {.size = sizeof info};
  for (size_t i = 0; lathe_problem_tensor_info(problem, i, &info) == LATHE_OK; ++i) {
    if (i >= MOST_TENSORS)
      return raise_invalid("an operator has over %d tensors", MOST_TENSORS), -1;
    self->tensors = i + 1;
    if (!info.declared) continue;
    size_t at;
    if (!succeeded(lathe_plan_slot(self->handle, info.name, &at))) return -1;
    self->slots[at] = (PlanSlot){info.name, info.dtype, (int)i, info.written};
  }
  self->count = lathe_plan_slot_count(self->handle);
  return 0;
}

static int plan_init(PlanObject* self, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"context", "problem", NULL};
  PyObject *context, *problem;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O!:Plan", names, ContextType, &context,
                                   ProblemType, &problem)) {
    return -1;
  }
  ContextObject* where = (ContextObject*)context;
  ProblemObject* what = (ProblemObject*)problem;
  if (self->handle) return raise_invalid("a Plan is made once"), -1;
  if (!is_made(where->handle, "Context") || !is_made(what->handle, "Problem")) return -1;
  lathe_status status;
  Patience patience;
  begin_waiting(&patience);
  Py_BEGIN_ALLOW_THREADS
  status = lathe_plan_create(&self->handle, where->handle, what->handle);
  end_waiting(&patience);
  Py_END_ALLOW_THREADS
  if (!succeeded(status)) return -1;
  Py_INCREF(context), Py_XINCREF((PyObject*)what->group);
  self->context = where;
  self->group = what->group;
  return read_slots(self, what->handle);
}

static void plan_dealloc(PlanObject* self) {
  for (size_t i = 0; i < self->own_count; ++i) {
    lathe_stream_synchronize(self->context->handle, self->own[i].stream);
    lathe_free(self->context->handle, self->own[i].data);
  }
  PyMem_Free(self->own);
  lathe_plan_destroy(self->handle);
  Py_XDECREF((PyObject*)self->group), Py_XDECREF((PyObject*)self->context);
  free_object((PyObject*)self);
}

/* ---- calls --------------------------------------------------------------------------------- */

/* Reads the keywords of a run, which all may be absent. */
static int read_keywords(PyObject* keywords, PyObject** stream, PyObject** workspace,
                         const lathe_shard** shard) {
  static char* names[] = {"stream", "workspace", "shard", NULL};
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
  *shard = ((ShardObject*)cut)->handle;
  return is_made(*shard, "Shard") ? 0 : -1;
}

/* Puts the items of a tuple into an array. Returns how many there are, or -1. */
static Py_ssize_t items_of(PyObject* tuple, PyObject** out) {
  const Py_ssize_t count = PyTuple_Size(tuple);
  if (count > 2 * MOST_TENSORS) {
    raise_invalid("a run was given %zd tensors", count);
    return -1;
  }
  for (Py_ssize_t i = 0; i < count; ++i) out[i] = PyTuple_GetItem(tuple, i);
  return count;
}

static PyObject* plan_call(PlanObject* self, PyObject* arguments, PyObject* keywords) {
  PyObject *stream, *workspace, *given[2 * MOST_TENSORS];
  const lathe_shard* shard;
  const Py_ssize_t count = items_of(arguments, given);
  if (count < 0 || read_keywords(keywords, &stream, &workspace, &shard) != 0 ||
      run_plan(self, given, (size_t)count, stream, workspace, shard) != 0) {
    return NULL;
  }
  Py_RETURN_NONE;
}

/* Answers a question about a run on these tensors, which is not made. */
static PyObject* ask(PlanObject* self, PyObject* arguments, PyObject* keywords,
                     PyObject* (*question)(const PlanObject*, const Tensors*, const lathe_shard*)) {
  PyObject *stream, *workspace, *given[2 * MOST_TENSORS];
  const lathe_shard* shard;
  Tensors tensors;
  const Py_ssize_t count = items_of(arguments, given);
  if (count < 0 || read_keywords(keywords, &stream, &workspace, &shard) != 0) return NULL;
  PyObject* out = borrow_all(self, given, (size_t)count, &tensors) == 0
                      ? question(self, &tensors, shard)
                      : NULL;
  give_back(tensors.borrowed, tensors.count);
  return out;
}

static PyObject* workspace_bytes(const PlanObject* self, const Tensors* tensors,
                                 const lathe_shard* shard) {
  size_t bytes = 0;
  if (!succeeded(lathe_plan_workspace(self->handle, tensors->slots, shard, &bytes))) return NULL;
  return PyLong_FromSize_t(bytes);
}

static PyObject* plan_workspace(PlanObject* self, PyObject* arguments, PyObject* keywords) {
  return ask(self, arguments, keywords, workspace_bytes);
}

static PyObject* plan_estimate(PlanObject* self, PyObject* arguments, PyObject* keywords) {
  return ask(self, arguments, keywords, estimate);
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
    {"slots", (getter)plan_slots, NULL, "The names of the tensors that a run takes, in order.",
     NULL},
    {"context", (getter)plan_context, NULL, "The context that the plan was made in.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Plan(context, problem)\n\n"
     "The kernels of a problem, compiled or loaded. A call\n"
     "plan(*tensors, stream=None, workspace=None, shard=None) enqueues a run on tensors in the\n"
     "order of slots; Nones among them do not count. stream None is the one that the tensors'\n"
     "library works on. workspace is a tensor, or a function of a number of bytes that returns "
     "one;\n"
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

int add_plan_type(PyObject* module) { return add_type(module, &spec, &PlanType); }
