/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The module lathe._core: errors, the operator table, and the functions that need no object. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core.h"

/* ---- errors -------------------------------------------------------------------------------- */

/* The classes are written in Python; lathe._errors.of(status, text) makes the one for a status. */
static PyObject* raise_text(lathe_status status, const char* text) {
  PyObject* module = PyImport_ImportModule("lathe._errors");
  if (!module) return NULL;
  PyObject* error = PyObject_CallMethod(module, "of", "is", (int)status, text);
  Py_DECREF(module);
  if (!error) return NULL;
  PyErr_SetObject((PyObject*)Py_TYPE(error), error);
  Py_DECREF(error);
  return NULL;
}

PyObject* raise_status(lathe_status status) { return raise_text(status, lathe_last_error()); }

PyObject* raise_invalid(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return raise_text(LATHE_INVALID_ARGUMENT, text);
}

PyObject* raise_unsupported(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return raise_text(LATHE_UNSUPPORTED, text);
}

int succeeded(lathe_status status) {
  if (status == LATHE_OK) return 1;
  raise_status(status);
  return 0;
}

int is_made(const void* handle, const char* type) {
  if (handle) return 1;
  PyErr_Format(PyExc_ValueError, "this %s was never made: its __init__ did not run", type);
  return 0;
}

int set_item(PyObject* dict, const char* name, PyObject* value) {
  const int failed = !value || PyDict_SetItemString(dict, name, value) != 0;
  Py_XDECREF(value);
  return failed ? -1 : 0;
}

/* Subclasses written in Python are allocated in another way than the type itself. */
void free_object(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  const freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF((PyObject*)type);
}

int add_type(PyObject* module, PyType_Spec* spec, PyTypeObject** out) {
  *out = (PyTypeObject*)PyType_FromSpec(spec);
  return *out && PyModule_AddType(module, *out) == 0 ? 0 : -1;
}

/* ---- the operator table -------------------------------------------------------------------- */

static PyObject* tensor_row(const lathe_operator_tensor* tensor) {
  static const char* const kRoles[] = {"input", "output", "inout"};
  return Py_BuildValue("{s:s,s:s,s:s,s:O,s:s,s:z,s:s,s:z,s:z,s:O}", "name", tensor->name, "shape",
                       tensor->shape, "role", kRoles[tensor->role], "optional",
                       tensor->optional ? Py_True : Py_False, "dtypes", tensor->dtypes, "alias_of",
                       tensor->alias_of, "sentence", tensor->sentence, "given_if", tensor->given_if,
                       "changed_by", tensor->changed_by, "wide", tensor->wide ? Py_True : Py_False);
}

static PyObject* option_row(const lathe_operator_option* option) {
  static const char* const kTypes[] = {"int", "float", "str"};
  return Py_BuildValue("{s:s,s:s,s:s,s:s,s:s}", "name", option->name, "type", kTypes[option->type],
                       "default", option->fallback, "allowed", option->allowed, "sentence",
                       option->sentence);
}

static PyObject* operator_row(const lathe_operator_info* op) {
  PyObject* tensors = PyTuple_New((Py_ssize_t)op->tensor_count);
  PyObject* options = PyTuple_New((Py_ssize_t)op->option_count);
  int good = tensors && options;
  for (size_t i = 0; good && i < op->tensor_count; ++i) {
    PyObject* row = tensor_row(&op->tensors[i]);
    good = row && PyTuple_SetItem(tensors, (Py_ssize_t)i, row) == 0;
  }
  for (size_t i = 0; good && i < op->option_count; ++i) {
    PyObject* row = option_row(&op->options[i]);
    good = row && PyTuple_SetItem(options, (Py_ssize_t)i, row) == 0;
  }
  PyObject* out =
      good ? Py_BuildValue("{s:s,s:s,s:O,s:O,s:O,s:i}", "name", op->name, "sentence", op->sentence,
                           "tensors", tensors, "options", options, "ranks",
                           op->ranks ? Py_True : Py_False, "least_alignment", op->least_alignment)
           : NULL;
  Py_XDECREF(tensors), Py_XDECREF(options);
  return out;
}

static PyObject* operators(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  PyObject* out = PyList_New(0);
  for (size_t i = 0; out && i < lathe_operator_count(); ++i) {
    PyObject* row = operator_row(lathe_operator_at(i));
    if (!row || PyList_Append(out, row) != 0) Py_CLEAR(out);
    Py_XDECREF(row);
  }
  return out;
}

/* ---- functions without an object ----------------------------------------------------------- */

static PyObject* version(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  return PyUnicode_FromString(lathe_version());
}

static PyObject* doctor(PyObject* self, PyObject* unused) {
  (void)self, (void)unused;
  size_t needed = 0;
  if (!succeeded(lathe_doctor(NULL, 0, &needed))) return NULL;
  char* text = PyMem_Malloc(needed + 1);
  if (!text) return PyErr_NoMemory();
  PyObject* out =
      succeeded(lathe_doctor(text, needed + 1, NULL)) ? PyUnicode_FromString(text) : NULL;
  PyMem_Free(text);
  return out;
}

static PyObject* shard_plan(PyObject* self, PyObject* arguments) {
  (void)self;
  const char *kind, *input, *out;
  if (!PyArg_ParseTuple(arguments, "ss:shard_plan", &kind, &input)) return NULL;
  if (!succeeded(lathe_shard_plan(kind, input, &out))) return NULL;
  return PyUnicode_FromString(out);
}

/* Appends (number, text) of a problem. */
static int add_line(const lathe_manifest* manifest, size_t index, PyObject* out) {
  const lathe_problem* problem = NULL;
  size_t line = 0, needed = 0;
  if (!succeeded(lathe_manifest_problem(manifest, index, &problem, &line)) ||
      !succeeded(lathe_problem_text(problem, NULL, 0, &needed))) {
    return -1;
  }
  char* text = PyMem_Malloc(needed);
  if (!text) return PyErr_NoMemory(), -1;
  PyObject* row = succeeded(lathe_problem_text(problem, text, needed, NULL))
                      ? Py_BuildValue("(ns)", (Py_ssize_t)line, text)
                      : NULL;
  PyMem_Free(text);
  const int failed = !row || PyList_Append(out, row) != 0;
  Py_XDECREF(row);
  return failed ? -1 : 0;
}

static int read_lines(lathe_manifest* manifest, const char* text, size_t bytes) {
  const char* const end = text + bytes;
  while (text < end) {
    const char* stop = memchr(text, '\n', (size_t)(end - text));
    if (!stop) stop = end;
    if (!succeeded(lathe_manifest_read(manifest, text, (size_t)(stop - text)))) return -1;
    text = stop + 1;
  }
  return 0;
}

static PyObject* manifest_lines(PyObject* self, PyObject* given) {
  (void)self;
  Py_ssize_t bytes = 0;
  const char* text = PyUnicode_AsUTF8AndSize(given, &bytes);
  lathe_manifest* manifest = NULL;
  if (!text || !succeeded(lathe_manifest_create(&manifest))) return NULL;
  PyObject* out = PyList_New(0);
  int failed = !out || read_lines(manifest, text, (size_t)bytes) != 0;
  for (size_t i = 0; !failed && i < lathe_manifest_count(manifest); ++i) {
    failed = add_line(manifest, i, out) != 0;
  }
  lathe_manifest_destroy(manifest);
  if (failed) Py_CLEAR(out);
  return out;
}

static PyMethodDef functions[] = {
    {"operators", operators, METH_NOARGS,
     "operators() -> list[dict]\n\nReturns the operator table: tensors, options and sentences."},
    {"version", version, METH_NOARGS, "version() -> str\n\nReturns the version of the library."},
    {"doctor", doctor, METH_NOARGS,
     "doctor() -> str\n\nReturns what the machine offers, a line for each item."},
    {"shard_plan", shard_plan, METH_VARARGS,
     "shard_plan(kind, input) -> str\n\nCalls the pure functions behind context parallelism."},
    {"set_log", set_log, METH_O,
     "set_log(sink)\n\nCalls sink(level, text) for each message; None: for none."},
    {"on_compile", on_compile, METH_O,
     "on_compile(sink)\n\nCalls sink(kernel, arch, key, spec, call, line, milliseconds) for each\n"
     "kernel that is compiled; None: for none."},
    {"manifest_lines", manifest_lines, METH_O,
     "manifest_lines(text) -> list[tuple[int, str]]\n\nReturns the problems of a manifest, as "
     "lines, "
     "with the number of the line that says each."},
    {NULL, NULL, 0, NULL}};

static int fill(PyObject* module) {
  return add_context_type(module) != 0 || add_ranks_types(module) != 0 ||
                 add_problem_type(module) != 0 || add_plan_type(module) != 0 ||
                 add_prepared_type(module) != 0 || add_plan_table_type(module) != 0
             ? -1
             : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "lathe._core",
                                        .m_doc = "The C API of lathe, for the package lathe.",
                                        .m_methods = functions, .m_slots = slots};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&definition); }
