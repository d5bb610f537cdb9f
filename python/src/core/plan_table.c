/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe._core.PlanTable: finds what was made for tensors of a kind, without making a Python object.
 *
 * The key of a call is, for each tensor, whether it is there, its dtype, rank, device and the extents
 * that change the code; then how well the tensors are aligned, and the options. Which extents change
 * the code is the operator's to say: it is learned from the first problem that has the tensor with
 * that rank (lathe_tensor_info.varies), and until then every extent is part of the key. */
#include <string.h>

#include "core.h"

enum {
  MOST_WORDS = MOST_TENSORS * (1 + LATHE_MAX_RANK) + 1,
  ALL_DIMS = (1 << LATHE_MAX_RANK) - 1,
  FIRST_ROOM = 16,
  BEST_ALIGNMENT = 16
};

typedef struct {
  int64_t words[MOST_WORDS];
  size_t count;
  uint64_t hash;
  int alignment;
} Key;

typedef struct {
  uint64_t hash;
  size_t count;
  int64_t *words; /* NULL: the place is free */
  PyObject *options, *value;
} Entry;

typedef struct {
  PyObject_HEAD
  PyObject *names, *build;
  PyObject *types; /* a tuple of the only types of tensors that are looked at; or NULL: all */
  Py_ssize_t count;
  uint8_t fixed[MOST_TENSORS][LATHE_MAX_RANK + 1]; /* a bit for each dimension that is in the key */
  Entry *entries;
  size_t used, room; /* room: a power of 2, at least twice `used` */
} TableObject;

static PyTypeObject *TableType;

/* ---- keys ----------------------------------------------------------------------------------------- */

static int lowest_bit(uint64_t value) {
  const uint64_t bit = value & (~value + 1);
  return bit == 0 || bit > BEST_ALIGNMENT ? BEST_ALIGNMENT : (int)bit;
}

/* Returns what a problem may promise of this tensor: 16, unless its address or a stride keeps it
 * from accesses as wide as its rows allow. Tensors of rank 1 and of integers take narrow ones. */
static int alignment_of(const DLTensor *tensor) {
  const int last = tensor->ndim - 1;
  if (last < 1 || tensor->dtype.code == kDLInt) return BEST_ALIGNMENT;
  const uint64_t item = tensor->dtype.bits / 8u;
  const int wanted = lowest_bit((uint64_t)tensor->shape[last] * item);
  int found = lowest_bit((uint64_t)(uintptr_t)tensor->data + tensor->byte_offset);
  for (int d = 0; tensor->strides && d < last; ++d) {
    if (tensor->shape[d] <= 1) continue;
    const int stride = lowest_bit((uint64_t)tensor->strides[d] * item);
    if (stride < found) found = stride;
  }
  return found < wanted ? found : BEST_ALIGNMENT;
}

static void add_tensor(const TableObject *table, size_t index, const DLTensor *tensor, Key *key) {
  const uint64_t device = (uint64_t)tensor->device.device_type << 8 | (uint8_t)tensor->device.device_id;
  key->words[key->count++] =
      (int64_t)(1u | (uint64_t)tensor->ndim << 8 | (uint64_t)tensor->dtype.code << 16 |
                (uint64_t)tensor->dtype.bits << 24 | device << 32);
  const uint8_t fixed = table->fixed[index][tensor->ndim];
  for (int d = 0; d < tensor->ndim; ++d) {
    if (fixed >> d & 1) key->words[key->count++] = tensor->shape[d];
  }
  const int alignment = alignment_of(tensor);
  if (alignment < key->alignment) key->alignment = alignment;
}

static int make_key(const TableObject *table, PyObject *given, Key *key) {
  key->count = 0;
  key->alignment = BEST_ALIGNMENT;
  for (Py_ssize_t i = 0; i < table->count; ++i) {
    PyObject *object = PyTuple_GetItem(given, i + 1);
    if (object == Py_None) {
      key->words[key->count++] = 0;
      continue;
    }
    Borrowed borrowed;
    const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(table->names, i), NULL);
    if (borrow(object, name ? name : "a tensor", &borrowed) != 0) return -1;
    const int fits = borrowed.tensor.ndim <= LATHE_MAX_RANK;
    if (fits) add_tensor(table, (size_t)i, &borrowed.tensor, key);
    const int rank = borrowed.tensor.ndim;
    give_back(&borrowed, 1);
    if (fits) continue;
    raise_invalid("%s has rank %d; allowed are up to %d", name, rank, LATHE_MAX_RANK);
    return -1;
  }
  key->words[key->count++] = key->alignment;
  PyObject *options = PyTuple_GetItem(given, 0);
  const Py_hash_t of_options = PyObject_Hash(options);
  if (of_options == -1) return -1;
  uint64_t hash = (uint64_t)of_options;
  for (size_t i = 0; i < key->count; ++i) {
    hash = (hash ^ (uint64_t)key->words[i]) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  key->hash = hash;
  return 0;
}

/* ---- entries --------------------------------------------------------------------------------------- */

/* Returns the entry of a key, or the free place for it; NULL with an exception if options cannot be
 * compared. There always is a free place. */
static Entry *find(const TableObject *table, const Key *key, PyObject *options) {
  for (size_t at = key->hash & (table->room - 1);; at = (at + 1) & (table->room - 1)) {
    Entry *entry = &table->entries[at];
    if (!entry->words) return entry;
    if (entry->hash != key->hash || entry->count != key->count ||
        memcmp(entry->words, key->words, key->count * sizeof *key->words) != 0) {
      continue;
    }
    const int same = PyObject_RichCompareBool(entry->options, options, Py_EQ);
    if (same < 0) return NULL;
    if (same) return entry;
  }
}

static int grow(TableObject *table) {
  if (2 * (table->used + 1) <= table->room) return 0;
  const size_t room = table->room == 0 ? FIRST_ROOM : 2 * table->room;
  Entry *entries = PyMem_Calloc(room, sizeof *entries);
  if (!entries) return PyErr_NoMemory(), -1;
  for (size_t i = 0; i < table->room; ++i) {
    if (!table->entries[i].words) continue;
    size_t at = table->entries[i].hash & (room - 1);
    while (entries[at].words) at = (at + 1) & (room - 1);
    entries[at] = table->entries[i];
  }
  PyMem_Free(table->entries);
  table->entries = entries;
  table->room = room;
  return 0;
}

static int put(TableObject *table, const Key *key, PyObject *options, PyObject *value) {
  if (grow(table) != 0) return -1;
  Entry *entry = find(table, key, options);
  if (!entry) return -1;
  if (entry->words) return 0; /* another thread was first */
  entry->words = PyMem_Malloc(key->count * sizeof *key->words);
  if (!entry->words) return PyErr_NoMemory(), -1;
  memcpy(entry->words, key->words, key->count * sizeof *key->words);
  entry->hash = key->hash, entry->count = key->count;
  Py_INCREF(options), Py_INCREF(value);
  entry->options = options, entry->value = value;
  ++table->used;
  return 0;
}

/* ---- a call ---------------------------------------------------------------------------------------- */

/* Learns from a problem which extents of its tensors change the code. */
static void learn(TableObject *table, const lathe_problem *problem) {
  lathe_tensor_info info = {.size = sizeof info};
  for (size_t i = 0; lathe_problem_tensor_info(problem, i, &info) == LATHE_OK; ++i) {
    for (Py_ssize_t at = 0; info.declared && at < table->count; ++at) {
      const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(table->names, at), NULL);
      if (!name || strcmp(name, info.name) != 0) continue;
      uint8_t fixed = 0;
      for (int d = 0; d < info.rank; ++d) fixed |= (uint8_t)(!info.varies[d] << d);
      table->fixed[at][info.rank] = fixed;
    }
  }
}

/* Calls build(options, alignment, *tensors) -> (value, problem). */
static PyObject *build_value(TableObject *table, const Key *key, PyObject *given) {
  PyObject *arguments = PyTuple_New(table->count + 2);
  if (!arguments) return NULL;
  for (Py_ssize_t i = 0; i <= table->count; ++i) {
    PyObject *item = PyTuple_GetItem(given, i);
    Py_INCREF(item);
    PyTuple_SetItem(arguments, i == 0 ? 0 : i + 1, item);
  }
  PyTuple_SetItem(arguments, 1, PyLong_FromLong(key->alignment));
  PyObject *pair = PyObject_Call(table->build, arguments, NULL);
  Py_DECREF(arguments);
  PyObject *value, *problem;
  if (!pair || !PyArg_ParseTuple(pair, "OO!:build", &value, ProblemType, &problem)) {
    Py_XDECREF(pair);
    return NULL;
  }
  learn(table, ((ProblemObject *)problem)->handle);
  Py_INCREF(value);
  Py_DECREF(pair);
  return value;
}

/* Returns 1 if every tensor has one of the table's types. */
static int has_types(const TableObject *table, PyObject *given) {
  const Py_ssize_t types = table->types ? PyTuple_Size(table->types) : 0;
  for (Py_ssize_t i = 1; types > 0 && i <= table->count; ++i) {
    PyObject *object = PyTuple_GetItem(given, i);
    Py_ssize_t at = object == Py_None ? -1 : 0;
    while (at >= 0 && at < types && (PyObject *)Py_TYPE(object) != PyTuple_GetItem(table->types, at)) {
      ++at;
    }
    if (at == types) return 0;
  }
  return 1;
}

static PyObject *table_call(TableObject *self, PyObject *given, PyObject *keywords) {
  if ((keywords && PyDict_Size(keywords) > 0) || PyTuple_Size(given) != self->count + 1) {
    PyErr_Format(PyExc_TypeError, "a PlanTable takes options and %zd tensors", self->count);
    return NULL;
  }
  Key key;
  if (!has_types(self, given)) Py_RETURN_NONE;
  if (!self->build || make_key(self, given, &key) != 0) return NULL;
  PyObject *options = PyTuple_GetItem(given, 0);
  if (self->used > 0) {
    const Entry *entry = find(self, &key, options);
    if (!entry) return NULL;
    if (entry->words) {
      Py_INCREF(entry->value);
      return entry->value;
    }
  }
  PyObject *value = build_value(self, &key, given);
  /* The key may have become shorter by what was learned. */
  if (value && (make_key(self, given, &key) != 0 || put(self, &key, options, value) != 0)) {
    Py_CLEAR(value);
  }
  return value;
}

static void drop_entries(TableObject *self) {
  Entry *entries = self->entries;
  const size_t room = self->room;
  self->entries = NULL;
  self->used = self->room = 0;
  for (size_t i = 0; i < room; ++i) {
    PyMem_Free(entries[i].words);
    Py_XDECREF(entries[i].options), Py_XDECREF(entries[i].value);
  }
  PyMem_Free(entries);
}

static PyObject *table_clear(TableObject *self, PyObject *unused) {
  (void)unused;
  drop_entries(self);
  Py_RETURN_NONE;
}

static Py_ssize_t table_length(TableObject *self) { return (Py_ssize_t)self->used; }

static int table_init(TableObject *self, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"names", "build", "types", NULL};
  PyObject *list, *build, *types = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O|O!:PlanTable", names, &PyTuple_Type,
                                   &list, &build, &PyTuple_Type, &types)) {
    return -1;
  }
  if (self->build) return raise_invalid("a PlanTable is made once"), -1;
  if (PyTuple_Size(list) > MOST_TENSORS) {
    return raise_invalid("names has %zd entries; allowed are up to %d", PyTuple_Size(list),
                         MOST_TENSORS),
           -1;
  }
  memset(self->fixed, ALL_DIMS, sizeof self->fixed);
  Py_INCREF(list), Py_INCREF(build), Py_XINCREF(types);
  self->names = list, self->build = build, self->types = types, self->count = PyTuple_Size(list);
  return 0;
}

static void table_dealloc(TableObject *self) {
  drop_entries(self);
  Py_XDECREF(self->names), Py_XDECREF(self->build), Py_XDECREF(self->types);
  free_object((PyObject *)self);
}

static PyMethodDef methods[] = {{"clear", (PyCFunction)table_clear, METH_NOARGS,
                                 "clear()\n\nForgets all entries."},
                                {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "PlanTable(names, build, types=())\n\n"
     "table(options, *tensors) returns what build(options, alignment, *tensors) made for tensors of\n"
     "that kind; build returns (value, problem). The options must be hashable. With types it returns\n"
     "None if a tensor is of another type."},
    {Py_tp_init, table_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_call, table_call},
    {Py_tp_methods, methods},
    {Py_mp_length, table_length},
    {0, NULL}};

static PyType_Spec spec = {"lathe._core.PlanTable", sizeof(TableObject), 0, Py_TPFLAGS_DEFAULT, slots};

int add_plan_table_type(PyObject *module) { return add_type(module, &spec, &TableType); }
