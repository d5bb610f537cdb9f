/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Borrows tensors of Python for the time of one call, and finds the stream they are made on. */
#include <string.h>

#include "core.h"
#include "dlpack_exchange.h"

/* ---- the exchange table of a type ---------------------------------------------------------- */

/* Tables are looked up once for each type. The types are kept, so that no other can take their
 * address; a program has few of them. */
enum { KNOWN_TYPES = 16 };
static struct {
  PyTypeObject* type;
  const ExchangeTable* table; /* NULL: the type has none */
} known_types[KNOWN_TYPES];
static size_t known_count;

static const ExchangeTable* read_table(PyTypeObject* type) {
  PyObject* capsule = PyObject_GetAttrString((PyObject*)type, EXCHANGE_ATTRIBUTE);
  const ExchangeTable* table = NULL;
  if (capsule && PyCapsule_IsValid(capsule, EXCHANGE_CAPSULE)) {
    table = PyCapsule_GetPointer(capsule, EXCHANGE_CAPSULE);
  }
  PyErr_Clear();
  Py_XDECREF(capsule); /* the table itself lives as long as the type's module */
  while (table && table->version.major != 1) table = table->previous;
  return table;
}

static const ExchangeTable* table_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  for (size_t i = 0; i < known_count; ++i) {
    if (known_types[i].type == type) return known_types[i].table;
  }
  const ExchangeTable* table = read_table(type);
  if (known_count < KNOWN_TYPES) {
    Py_INCREF((PyObject*)type);
    known_types[known_count].type = type;
    known_types[known_count++].table = table;
  }
  return table;
}

/* ---- three ways to borrow ------------------------------------------------------------------ */

static int borrow_managed(VersionedTensor* managed, Borrowed* out);

static int borrow_by_table(const ExchangeTable* table, PyObject* object, Borrowed* out) {
  if (table->tensor_from_object) return table->tensor_from_object(object, &out->tensor);
  VersionedTensor* managed = NULL;
  if (table->managed_from_object(object, &managed) != 0) return -1;
  return borrow_managed(managed, out);
}

static void end_managed(PyObject* capsule) {
  VersionedTensor* managed = PyCapsule_GetPointer(capsule, NULL);
  if (managed && managed->deleter) managed->deleter(managed);
}

static int borrow_managed(VersionedTensor* managed, Borrowed* out) {
  out->capsule = PyCapsule_New(managed, NULL, end_managed);
  if (!out->capsule) {
    if (managed->deleter) managed->deleter(managed);
    return -1;
  }
  out->tensor = managed->tensor;
  out->readonly = (managed->flags & VERSIONED_READ_ONLY) != 0;
  return 0;
}

/* Calls __dlpack__ without synchronisation, first as DLPack 1 has it and then as before it. */
static PyObject* call_dlpack(PyObject* object) {
  PyObject* method = PyObject_GetAttrString(object, "__dlpack__");
  if (!method) return NULL;
  PyObject *none = PyTuple_New(0), *result = NULL;
  PyObject* keywords = Py_BuildValue("{s:(ii)}", "max_version", 1, 0);
  if (none && keywords) {
    result = PyObject_Call(method, none, keywords);
    if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      result = PyObject_CallNoArgs(method);
    }
  }
  Py_XDECREF(none), Py_XDECREF(keywords), Py_DECREF(method);
  return result;
}

/* Returns a new reference to a tensor that __dlpack__ gives: torch refuses those that require a
 * gradient, so their detach(). */
static PyObject* without_gradient(PyObject* object) {
  PyObject* required = PyObject_GetAttrString(object, "requires_grad");
  const int detached = required ? PyObject_IsTrue(required) : 0;
  if (!required) PyErr_Clear();
  Py_XDECREF(required);
  if (detached < 0) return NULL;
  if (detached) return PyObject_CallMethod(object, "detach", NULL);
  Py_INCREF(object);
  return object;
}

static int borrow_by_dlpack(PyObject* object, Borrowed* out) {
  PyObject* plain = without_gradient(object);
  out->capsule = plain ? call_dlpack(plain) : NULL;
  Py_XDECREF(plain);
  if (!out->capsule) return -1;
  const VersionedTensor* versioned = NULL;
  if (PyCapsule_IsValid(out->capsule, "dltensor_versioned")) {
    versioned = PyCapsule_GetPointer(out->capsule, "dltensor_versioned");
    out->tensor = versioned->tensor;
    out->readonly = (versioned->flags & VERSIONED_READ_ONLY) != 0;
    return 0;
  }
  const DLManagedTensor* managed = PyCapsule_GetPointer(out->capsule, "dltensor");
  if (!managed) return -1;
  out->tensor = managed->dl_tensor;
  return 0;
}

/* The formats of one character that lathe's dtypes have, as the module struct writes them. */
static int type_of_format(const char* format, Py_ssize_t size, DLDataType* out) {
  if (!format) return -1;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (strlen(format) != 1) return -1;
  const int floating = strchr("efd", *format) != NULL;
  const int is_signed = strchr("bhilqn", *format) != NULL;
  const int is_unsigned = strchr("BHILQN", *format) != NULL;
  if (!floating && !is_signed && !is_unsigned) return -1;
  out->code = floating ? kDLFloat : is_signed ? kDLInt : kDLUInt;
  out->bits = (uint8_t)(8 * size);
  out->lanes = 1;
  return 0;
}

static int borrow_by_buffer(PyObject* object, const char* name, Borrowed* out) {
  if (PyObject_GetBuffer(object, &out->view, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    // NumPy has no format for types that others added to it, such as bfloat16 of ml_dtypes.
    if (!PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
    PyErr_Clear();
    raise_invalid(
        "%s has elements without a format; allowed are numbers, bfloat16 as %s.view(\"uint16\")",
        name, name);
    return -1;
  }
  out->viewed = 1;
  out->readonly = out->view.readonly;
  const Py_buffer* view = &out->view;
  DLTensor* tensor = &out->tensor;
  if (type_of_format(view->format, view->itemsize, &tensor->dtype) != 0) {
    raise_invalid("%s has elements of format \"%s\"; allowed are numbers", name,
                  view->format ? view->format : "B");
    return -1;
  }
  if (view->ndim > LATHE_MAX_RANK) {
    raise_invalid("%s has rank %d; allowed are up to %d", name, view->ndim, LATHE_MAX_RANK);
    return -1;
  }
  for (int d = 0; d < view->ndim; ++d) {
    if (view->strides[d] % view->itemsize != 0) {
      raise_invalid("%s has stride %zd at %d, in bytes; allowed are multiples of %zd", name,
                    view->strides[d], d, view->itemsize);
      return -1;
    }
    out->shape[d] = view->shape[d];
    out->strides[d] = view->strides[d] / view->itemsize;
  }
  tensor->data = view->buf;
  tensor->device = (DLDevice){kDLCPU, 0};
  tensor->ndim = view->ndim;
  tensor->shape = out->shape;
  tensor->strides = out->strides;
  return 0;
}

int borrow(PyObject* object, const char* name, Borrowed* out) {
  memset(out, 0, sizeof *out);
  const ExchangeTable* table = table_of(object);
  if (table) return borrow_by_table(table, object, out);
  if (PyObject_CheckBuffer(object)) return borrow_by_buffer(object, name, out);
  if (borrow_by_dlpack(object, out) == 0) return 0;
  if (PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    PyObject* type = PyObject_Str((PyObject*)Py_TYPE(object));
    const char* word = type ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;
    PyErr_Format(PyExc_TypeError,
                 "%s is no tensor but %s; allowed is what has __dlpack__ or a buffer", name,
                 word ? word : "?");
    Py_XDECREF(type);
  }
  return -1;
}

void give_back(Borrowed* borrowed, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Py_CLEAR(borrowed[i].capsule);
    if (borrowed[i].viewed) PyBuffer_Release(&borrowed[i].view);
  }
}

int dtype_of(DLDataType type, lathe_dtype* out) {
  static const struct {
    uint8_t code, bits;
    lathe_dtype dtype;
  } kTypes[] = {{kDLFloat, 32, LATHE_F32},
                {kDLFloat, 16, LATHE_F16},
                {kDLBfloat, 16, LATHE_BF16},
                {kDLUInt, 16, LATHE_BF16},
                {kDLInt, 32, LATHE_I32},
                {kDLInt, 64, LATHE_I64},
                /* DLPack's float8_e4m3fn, which older headers do not name */
                {10, 8, LATHE_F8_E4M3},
                {kDLUInt, 8, LATHE_U8}};
  for (size_t i = 0; i < sizeof kTypes / sizeof *kTypes; ++i) {
    if (type.lanes == 1 && kTypes[i].code == type.code && kTypes[i].bits == type.bits) {
      *out = kTypes[i].dtype;
      return 0;
    }
  }
  return -1;
}

/* ---- streams ------------------------------------------------------------------------------- */

static int stream_of_number(PyObject* number, void** out) {
  const size_t value = PyLong_AsSize_t(number);
  if (value == (size_t)-1 && PyErr_Occurred()) return -1;
  *out = (void*)value;
  return 0;
}

/* An object of CUDA Python has __cuda_stream__() -> (0, handle), one of torch cuda_stream. */
static int stream_of_object(PyObject* object, void** out) {
  PyObject* pair = PyObject_CallMethod(object, "__cuda_stream__", NULL);
  if (pair) {
    PyObject* handle = PySequence_GetItem(pair, 1);
    const int failed = !handle || stream_of_number(handle, out) != 0;
    Py_XDECREF(handle), Py_DECREF(pair);
    return failed ? -1 : 0;
  }
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
  PyErr_Clear();
  PyObject* handle = PyObject_GetAttrString(object, "cuda_stream");
  if (!handle) {
    PyErr_Clear();
    raise_invalid(
        "stream is neither None nor an int, and has neither __cuda_stream__ nor cuda_stream");
    return -1;
  }
  const int failed = stream_of_number(handle, out);
  Py_DECREF(handle);
  return failed;
}

/* Asks a torch older than 2.10, which has no exchange table, for its current stream. */
static int stream_of_old_torch(int ordinal, void** out) {
  PyObject* module = PyImport_ImportModule("torch._C");
  PyObject* stream =
      module ? PyObject_CallMethod(module, "_cuda_getCurrentRawStream", "i", ordinal) : NULL;
  const int failed = !stream || stream_of_number(stream, out) != 0;
  Py_XDECREF(stream), Py_XDECREF(module);
  return failed ? -1 : 0;
}

int find_stream(PyObject* stream, PyObject* const* objects, const Borrowed* borrowed, size_t count,
                void** out) {
  *out = NULL;
  if (stream && stream != Py_None) {
    return PyLong_Check(stream) ? stream_of_number(stream, out) : stream_of_object(stream, out);
  }
  for (size_t i = 0; i < count; ++i) {
    if (borrowed[i].tensor.device.device_type != kDLCUDA) continue;
    const ExchangeTable* table = table_of(objects[i]);
    const int ordinal = borrowed[i].tensor.device.device_id;
    if (!table && PyObject_HasAttrString(objects[i], "requires_grad")) {
      return stream_of_old_torch(ordinal, out);
    }
    if (!table || !table->current_work_stream) continue;
    return table->current_work_stream(kDLCUDA, ordinal, out);
  }
  return 0;
}
