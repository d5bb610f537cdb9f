/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe._core.Context: a device and a cache. */
#include <string.h>

#include "core.h"

PyTypeObject* ContextType;

static const char* const kKinds[] = {"default", "cuda", "sim", "none"};

static int kind_of(const char* word, lathe_device_kind* out) {
  for (int kind = LATHE_DEVICE_DEFAULT; kind <= LATHE_DEVICE_NONE; ++kind) {
    if (strcmp(word, kKinds[kind]) != 0) continue;
    *out = (lathe_device_kind)kind;
    return 0;
  }
  raise_invalid("device is \"%.40s\"; allowed are default, cuda, sim, none", word);
  return -1;
}

static int context_init(ContextObject* self, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"device", "ordinal", "arch", "cache_dir", NULL};
  lathe_context_options options = LATHE_CONTEXT_OPTIONS_INIT;
  const char* device = "default";
  PyObject *given = Py_None, *folder = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|sizO:Context", names, &device,
                                   &options.ordinal, &options.arch, &given)) {
    return -1;
  }
  if (self->handle) return raise_invalid("a Context is made once"), -1;
  lathe_context* made = NULL;
  int failed = kind_of(device, &options.device) != 0 ||
               (given != Py_None && !PyUnicode_FSConverter(given, &folder));
  if (!failed) {
    options.cache_dir = folder ? PyBytes_AsString(folder) : NULL;
    lathe_status status;
    Py_BEGIN_ALLOW_THREADS
    status = lathe_context_create(&made, &options);
    Py_END_ALLOW_THREADS
    failed = !succeeded(status);
  }
  Py_XDECREF(folder);
  if (failed) return -1;
  lathe_context_info info = {.size = sizeof info};
  if (!succeeded(lathe_context_get_info(made, &info))) {
    lathe_context_destroy(made);
    return -1;
  }
  self->handle = made;
  self->kind = info.device;
  self->ordinal = info.ordinal;
  return 0;
}

static void context_dealloc(ContextObject* self) {
  lathe_context* handle = self->handle;
  Py_BEGIN_ALLOW_THREADS /* a thread that it waits for may have a message for the log */
  lathe_context_destroy(handle);
  Py_END_ALLOW_THREADS
  free_object((PyObject*)self);
}

static PyObject* context_info(ContextObject* self, PyObject* unused) {
  (void)unused;
  lathe_context_info info = {.size = sizeof info};
  if (!is_made(self->handle, "Context") ||
      !succeeded(lathe_context_get_info(self->handle, &info))) {
    return NULL;
  }
  return Py_BuildValue("{s:s,s:i,s:s,s:s,s:s,s:i,s:s,s:s,s:s,s:K,s:K}", "device",
                       kKinds[info.device], "ordinal", info.ordinal, "device_name",
                       info.device_name, "arch", info.arch, "driver_path", info.driver_path,
                       "driver_version", info.driver_version, "compiler", info.compiler,
                       "cache_dir", info.cache_dir, "cache_problem", info.cache_problem, "compiled",
                       (unsigned long long)info.compiled, "hits", (unsigned long long)info.hits);
}

static PyObject* context_synchronize(ContextObject* self, PyObject* arguments) {
  PyObject* stream = NULL;
  void* handle = NULL;
  if (!PyArg_ParseTuple(arguments, "|O:synchronize", &stream) ||
      !is_made(self->handle, "Context") || find_stream(stream, NULL, NULL, 0, &handle) != 0) {
    return NULL;
  }
  lathe_status status;
  Py_BEGIN_ALLOW_THREADS
  status = lathe_stream_synchronize(self->handle, handle);
  Py_END_ALLOW_THREADS
  if (!succeeded(status)) return NULL;
  Py_RETURN_NONE;
}

static PyObject* context_unique_id(ContextObject* self, PyObject* unused) {
  (void)unused;
  char id[LATHE_UNIQUE_ID_BYTES];
  if (!is_made(self->handle, "Context") || !succeeded(lathe_unique_id(self->handle, id))) {
    return NULL;
  }
  return PyBytes_FromStringAndSize(id, sizeof id);
}

static PyObject* context_warm(ContextObject* self, PyObject* problem) {
  if (!is_made(self->handle, "Context")) return NULL;
  if (!PyObject_TypeCheck(problem, ProblemType)) {
    PyErr_SetString(PyExc_TypeError, "warm takes a Problem");
    return NULL;
  }
  uint64_t compiled = 0, hits = 0;
  lathe_status status;
  Patience patience;
  begin_waiting(&patience);
  Py_BEGIN_ALLOW_THREADS
  status = lathe_warm(self->handle, ((ProblemObject*)problem)->handle, &compiled, &hits);
  end_waiting(&patience);
  Py_END_ALLOW_THREADS
  if (!succeeded(status)) return NULL;
  return Py_BuildValue("(KK)", (unsigned long long)compiled, (unsigned long long)hits);
}

static PyMethodDef methods[] = {
    {"info", (PyCFunction)context_info, METH_NOARGS,
     "info() -> dict\n\nReturns the device, its architecture, the compiler and the cache."},
    {"synchronize", (PyCFunction)context_synchronize, METH_VARARGS,
     "synchronize(stream=None)\n\nWaits for the work on a stream; None: the legacy default one."},
    {"unique_id", (PyCFunction)context_unique_id, METH_NOARGS,
     "unique_id() -> bytes\n\nReturns an id that one rank gives to the others of a Group."},
    {"warm", (PyCFunction)context_warm, METH_O,
     "warm(problem) -> (compiled, hits)\n\nCompiles what the problem needs, or finds it cached."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "Context(device='default', ordinal=0, arch=None, cache_dir=None)\n\n"
     "A device and a cache. device is cuda, sim, none (compile only) or default, which\n"
     "is LATHE_DEVICE if that is set, else cuda."},
    {Py_tp_init, context_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, context_dealloc},
    {Py_tp_methods, methods},
    {0, NULL}};

static PyType_Spec spec = {"lathe._core.Context", sizeof(ContextObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

int add_context_type(PyObject* module) { return add_type(module, &spec, &ContextType); }
