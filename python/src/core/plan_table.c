/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe._core.PlanTable: finds what was made for tensors of a kind, without making a Python object.
 */
#include <string.h>

#include "core.h"
#include "plan_key.h"

enum { FIRST_ROOM = 16 };

typedef struct {
  uint64_t hash;
  size_t count;
  int64_t* words; /* NULL: the place is free */
  PyObject *options, *value;
} Entry;

typedef struct {
  PyObject_HEAD
  PyObject *names, *build;
  PyObject* types; /* a tuple of the only types of tensors that are looked at; or NULL: all */
  PyObject* shard; /* of runs over a group; or NULL */
  Py_ssize_t count;
  FixedDims fixed;
  Entry* entries;
  size_t used, room; /* room: a power of 2, at least twice `used` */
} TableObject;

static PyTypeObject* TableType;

/* ---- entries ------------------------------------------------------------------------------- */

/* Returns the entry of a key, or the free place for it; NULL with an exception if options cannot be
 * compared. There always is a free place. */
static Entry* find(const TableObject* table, const Key* key, PyObject* options) {
  for (size_t at = key->hash & (table->room - 1);; at = (at + 1) & (table->room - 1)) {
    Entry* entry = &table->entries[at];
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

static int grow(TableObject* table) {
  if (2 * (table->used + 1) <= table->room) return 0;
  const size_t room = table->room == 0 ? FIRST_ROOM : 2 * table->room;
  Entry* entries = PyMem_Calloc(room, sizeof *entries);
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

static int put(TableObject* table, const Key* key, PyObject* options, PyObject* value) {
  if (grow(table) != 0) return -1;
  Entry* entry = find(table, key, options);
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

/* ---- a call -------------------------------------------------------------------------------- */

/* Calls build(options, alignment, *tensors) -> (value, problem). */
static PyObject* build_value(TableObject* table, const Key* key, PyObject* given) {
  PyObject* arguments = PyTuple_New(table->count + 2);
  if (!arguments) return NULL;
  for (Py_ssize_t i = 0; i <= table->count; ++i) {
    PyObject* item = PyTuple_GetItem(given, i);
    Py_INCREF(item);
    PyTuple_SetItem(arguments, i == 0 ? 0 : i + 1, item);
  }
  PyTuple_SetItem(arguments, 1, PyLong_FromLong(key->alignment));
  PyObject* pair = PyObject_Call(table->build, arguments, NULL);
  Py_DECREF(arguments);
  PyObject *value, *problem;
  if (!pair || !PyArg_ParseTuple(pair, "OO!:build", &value, ProblemType, &problem)) {
    Py_XDECREF(pair);
    return NULL;
  }
  learn_dims(table->names, ((ProblemObject*)problem)->handle, &table->fixed);
  Py_INCREF(value);
  Py_DECREF(pair);
  return value;
}

/* Returns 1 if every tensor has one of the table's types. */
static int has_types(const TableObject* table, PyObject* given) {
  const Py_ssize_t types = table->types ? PyTuple_Size(table->types) : 0;
  for (Py_ssize_t i = 1; types > 0 && i <= table->count; ++i) {
    PyObject* object = PyTuple_GetItem(given, i);
    Py_ssize_t at = object == Py_None ? -1 : 0;
    while (at >= 0 && at < types &&
           (PyObject*)Py_TYPE(object) != PyTuple_GetItem(table->types, at)) {
      ++at;
    }
    if (at == types) return 0;
  }
  return 1;
}

/* Returns what was made for a call; a new reference. None if a tensor has another type. */
static PyObject* look_up(TableObject* self, PyObject* given) {
  if (!self->build || PyTuple_Size(given) != self->count + 1) {
    PyErr_Format(PyExc_TypeError, "a PlanTable takes options and %zd tensors", self->count);
    return NULL;
  }
  Key key;
  if (!has_types(self, given)) Py_RETURN_NONE;
  if (make_key(self->names, &self->fixed, given, self->shard != NULL, &key) != 0) return NULL;
  PyObject* options = PyTuple_GetItem(given, 0);
  if (self->used > 0) {
    const Entry* entry = find(self, &key, options);
    if (!entry) return NULL;
    if (entry->words) {
      Py_INCREF(entry->value);
      return entry->value;
    }
  }
  PyObject* value = build_value(self, &key, given);
  /* The key may have become shorter by what was learned. */
  if (value && (make_key(self->names, &self->fixed, given, self->shard != NULL, &key) != 0 ||
                put(self, &key, options, value) != 0)) {
    Py_CLEAR(value);
  }
  return value;
}

static PyObject* table_call(TableObject* self, PyObject* given, PyObject* keywords) {
  if (keywords && PyDict_Size(keywords) > 0) {
    PyErr_SetString(PyExc_TypeError, "a PlanTable takes no keywords");
    return NULL;
  }
  return look_up(self, given);
}

/* Runs the plan of a value (plan, make, workspace) on the tensors given and those that
 * make(tensors) returns, and returns the latter. */
static PyObject* run_value(const TableObject* self, PyObject* value, PyObject* given) {
  PyObject *plan, *make, *workspace, *objects[2 * MOST_TENSORS];
  if (!PyArg_ParseTuple(value, "O!OO:run", PlanType, &plan, &make, &workspace)) return NULL;
  size_t count = 0;
  for (Py_ssize_t i = 1; i < PyTuple_Size(given); ++i) objects[count++] = PyTuple_GetItem(given, i);
  PyObject* made = PyObject_CallFunctionObjArgs(make, given, NULL);
  if (!made) return NULL;
  const Py_ssize_t outputs = PyTuple_Check(made) ? PyTuple_Size(made) : -1;
  if (outputs < 0 || outputs > MOST_TENSORS) {
    PyErr_SetString(PyExc_TypeError, "make must return a tuple of tensors");
    Py_DECREF(made);
    return NULL;
  }
  for (Py_ssize_t i = 0; i < outputs; ++i) objects[count++] = PyTuple_GetItem(made, i);
  const lathe_shard* shard = self->shard ? ((ShardObject*)self->shard)->handle : NULL;
  if (run_plan((PlanObject*)plan, objects, count, NULL, workspace, shard) != 0) Py_CLEAR(made);
  return made;
}

static PyObject* table_run(TableObject* self, PyObject* given) {
  PyObject* value = look_up(self, given);
  if (!value || value == Py_None) return value;
  PyObject* made = run_value(self, value, given);
  Py_DECREF(value);
  return made;
}

static void drop_entries(TableObject* self) {
  Entry* entries = self->entries;
  const size_t room = self->room;
  self->entries = NULL;
  self->used = self->room = 0;
  for (size_t i = 0; i < room; ++i) {
    PyMem_Free(entries[i].words);
    Py_XDECREF(entries[i].options), Py_XDECREF(entries[i].value);
  }
  PyMem_Free(entries);
}

static PyObject* table_clear(TableObject* self, PyObject* unused) {
  (void)unused;
  drop_entries(self);
  Py_RETURN_NONE;
}

static Py_ssize_t table_length(TableObject* self) { return (Py_ssize_t)self->used; }

static int table_init(TableObject* self, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"names", "build", "types", "shard", NULL};
  PyObject *list, *build, *types = NULL, *shard = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O|O!O!:PlanTable", names, &PyTuple_Type,
                                   &list, &build, &PyTuple_Type, &types, ShardType, &shard)) {
    return -1;
  }
  if (self->build) return raise_invalid("a PlanTable is made once"), -1;
  if (PyTuple_Size(list) > MOST_TENSORS) {
    return raise_invalid("names has %zd entries; allowed are up to %d", PyTuple_Size(list),
                         MOST_TENSORS),
           -1;
  }
  memset(&self->fixed, ALL_DIMS, sizeof self->fixed);
  Py_INCREF(list), Py_INCREF(build), Py_XINCREF(types), Py_XINCREF(shard);
  self->names = list, self->build = build, self->types = types, self->shard = shard,
  self->count = PyTuple_Size(list);
  return 0;
}

static void table_dealloc(TableObject* self) {
  drop_entries(self);
  Py_XDECREF(self->names), Py_XDECREF(self->build), Py_XDECREF(self->types),
      Py_XDECREF(self->shard);
  free_object((PyObject*)self);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)table_run, METH_VARARGS,
     "run(options, *tensors)\n\nRuns what the table has for them, a tuple (plan, make, "
     "workspace),\n"
     "on the tensors and on those of make((options, *tensors)), a tuple that is returned. None as\n"
     "for a call."},
    {"clear", (PyCFunction)table_clear, METH_NOARGS, "clear()\n\nForgets all entries."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "PlanTable(names, build, types=(), shard)\n\n"
     "table(options, *tensors) returns what build(options, alignment, "
     "*tensors) made for tensors of\n"
     "that kind; build returns (value, problem). The options must be "
     "hashable. With types it returns\n"
     "None if a tensor is of another type. With a shard, runs are over its group, and every entry\n"
     "promises the best alignment: ranks must have the same entries."},
    {Py_tp_init, table_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, table_dealloc},
    {Py_tp_call, table_call},
    {Py_tp_methods, methods},
    {Py_mp_length, table_length},
    {0, NULL}};

static PyType_Spec spec = {"lathe._core.PlanTable", sizeof(TableObject), 0, Py_TPFLAGS_DEFAULT,
                           slots};

int add_plan_table_type(PyObject* module) { return add_type(module, &spec, &TableType); }
