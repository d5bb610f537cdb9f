/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe._core.PlanTable: finds what was made for tensors of a kind, without making a Python object.
 *
 * The path of a call of lathe.torch, whose Call has a table (python/src/lathe/torch/_calls.py):
 *
 *   run_at_once    asks whether torch has to see the call: modes that trace, gradients (eager.c)
 *   take           checks the number and the types of the tensors and begins a Given
 *   run_given      borrows the tensors into the Given; asks whether one would have to be copied
 *   look_up        makes a Key (plan_key.c) and finds its entry (plan_entries.c); for a new key it
 *                  calls `build`, which is Call._prepare: it makes a plan and returns a Prepared
 *   run_prepared   makes the outputs by the Prepared's recipes and borrows them too (prepared.c)
 *   run_borrowed   finds the stream and the workspace and calls lathe_plan_run (run.c)
 *
 * A call that torch has to see, or to copy a tensor for, gets None: the Call then goes through
 * torch. */
#include <string.h>

#include "core.h"
#include "eager.h"
#include "plan_entries.h"
#include "prepared.h"

typedef struct {
  PyObject_HEAD
  PyObject *names, *build;
  PyObject* types;     /* a tuple of the only types of tensors that are looked at; or NULL: all */
  PyObject* shard;     /* of runs over a group; or NULL */
  PyObject* modes;     /* a tuple of functions, see `eager`; or NULL */
  PyObject* gradients; /* a function, see `inference`; or NULL */
  PyObject* negated;   /* a method of tensors, see `eager`; or NULL */
  unsigned long long rows, kept; /* see `eager` */
  const char* op;                /* of the operator table; or NULL */
  PyObject* note;                /* is told of what a call changed; or NULL */
  Changes changes;
  PyObject* copy;                  /* makes an aligned copy, which a run takes; or NULL */
  PyObject* pairs;                 /* those of the last call's dictionary of options; or NULL */
  Alignments alignments;           /* that this operator asks for; without one all count */
  const char* words[MOST_TENSORS]; /* the names */
  size_t count;
  FixedDims fixed;
  Entries entries;
} TableObject;

static PyTypeObject* TableType;

/* ---- a call -------------------------------------------------------------------------------- */

/* Calls build(options, alignment, *tensors) -> (value, problem). */
static PyObject* build_value(TableObject* table, const Key* key, const Given* given) {
  PyObject* arguments = PyTuple_New((Py_ssize_t)table->count + 2);
  if (!arguments) return NULL;
  Py_INCREF(given->options);
  PyTuple_SetItem(arguments, 0, given->options);
  PyTuple_SetItem(arguments, 1, PyLong_FromLong(key->alignment));
  for (size_t i = 0; i < table->count; ++i) {
    Py_INCREF(given->objects[i]);
    PyTuple_SetItem(arguments, (Py_ssize_t)i + 2, given->objects[i]);
  }
  PyObject* pair = PyObject_Call(table->build, arguments, NULL);
  Py_DECREF(arguments);
  PyObject *value, *problem;
  if (!pair || !PyArg_ParseTuple(pair, "OO!:build", &value, ProblemType, &problem)) {
    Py_XDECREF(pair);
    return NULL;
  }
  learn_dims(table->words, table->count, ((ProblemObject*)problem)->handle, &table->fixed);
  Py_INCREF(value);
  Py_DECREF(pair);
  return value;
}

/* Takes a call apart: the tensors begin at item `first` of the tuple. Returns 1, 0 if a tensor is
 * of a type that is not looked at, or -1; only after 1 there is something to give back. */
static int take(const TableObject* self, PyObject* options, PyObject* tensors, Py_ssize_t first,
                Given* out) {
  if (!self->build || !PyTuple_Check(tensors) ||
      PyTuple_Size(tensors) != (Py_ssize_t)self->count + first) {
    PyErr_Format(PyExc_TypeError, "a PlanTable takes options and %zd tensors", self->count);
    return -1;
  }
  out->options = options;
  out->count = self->count;
  out->tensors.count = 0;
  for (size_t i = 0; i < self->count; ++i) {
    out->objects[i] = PyTuple_GetItem(tensors, (Py_ssize_t)i + first);
    if (!has_type(out->objects[i], self->types)) return 0;
  }
  return 1;
}

/* Returns what was made for a call, whose tensors are borrowed; a new reference. */
static PyObject* look_up(TableObject* self, Given* given) {
  Key key;
  const int ranks = self->shard != NULL;
  if (make_key(self->words, &self->fixed, &self->alignments, given, ranks, &key) != 0) return NULL;
  if (key.alignment < self->alignments.least) {
    return refuse_unaligned(self->words, &self->alignments, self->op, given);
  }
  if (self->entries.used > 0) {
    const Entry* entry = find_entry(&self->entries, &key, given->options);
    if (!entry) return NULL;
    if (entry->words) {
      Py_INCREF(entry->value);
      return entry->value;
    }
  }
  PyObject* value = build_value(self, &key, given);
  if (value && PyObject_TypeCheck(value, PreparedType) &&
      !recipes_fit((PreparedObject*)value, given)) {
    raise_invalid("a recipe of an output names a tensor that the call does not have");
    Py_CLEAR(value);
  }
  /* The key may have become shorter by what was learned. */
  if (value && (make_key(self->words, &self->fixed, &self->alignments, given, ranks, &key) != 0 ||
                put_entry(&self->entries, &key, given->options, value) != 0)) {
    Py_CLEAR(value);
  }
  return value;
}

static PyObject* table_call(TableObject* self, PyObject* arguments, PyObject* keywords) {
  if (PyTuple_Size(arguments) == 0 || (keywords && PyDict_Size(keywords) > 0)) {
    PyErr_SetString(PyExc_TypeError, "a PlanTable takes options and tensors, and no keywords");
    return NULL;
  }
  Given given;
  const int taken = take(self, PyTuple_GetItem(arguments, 0), arguments, 1, &given);
  if (taken < 0) return NULL;
  if (taken == 0) Py_RETURN_NONE;
  PyObject* value = borrow_given(self->words, &given) == 0 ? look_up(self, &given) : NULL;
  give_back(given.tensors.borrowed, given.tensors.count);
  return value;
}

/* Runs what the table has for a call that was taken apart, into `outputs` if they are given. If
 * `only_laid`, the answer is None unless the tensors lie as kernels take them. */
static PyObject* run_given(TableObject* self, Given* given, int only_laid, PyObject* outputs) {
  const lathe_shard* shard = self->shard ? ((ShardObject*)self->shard)->handle : NULL;
  PyObject *made = NULL, *value = NULL, *copies = NULL;
  const int borrowed = borrow_given(self->words, given) == 0;
  int apart = borrowed && only_laid && !lie_well(given, self->rows, self->kept);
  if (borrowed && only_laid && !apart) apart = any_negated(self->negated, given);
  if (apart > 0) {
    Py_INCREF(Py_None);
    made = Py_None;
  } else if (borrowed && apart == 0 &&
             copy_unaligned(self->words, &self->alignments, self->copy, given, &copies) == 0) {
    value = look_up(self, given);
  }
  if (value && PyObject_TypeCheck(value, PreparedType)) {
    made = run_prepared((PreparedObject*)value, given, shard, outputs);
  } else if (value) {
    PyErr_SetString(PyExc_TypeError, "build must return a Prepared for a run");
  }
  Py_XDECREF(value);
  give_back(given->tensors.borrowed, given->tensors.count);
  Py_XDECREF(copies);
  return made;
}

static PyObject* table_run(TableObject* self, PyObject* const* arguments, Py_ssize_t count) {
  Given given;
  if (count != 2) return PyErr_SetString(PyExc_TypeError, "run takes options and tensors"), NULL;
  const int taken = take(self, arguments[0], arguments[1], 0, &given);
  if (taken < 0) return NULL;
  if (taken == 0) Py_RETURN_NONE;
  return run_given(self, &given, 0, NULL);
}

/* Returns 1 if torch has to see outputs that the caller has: of another type, or negated; -1. */
static int outputs_apart(const TableObject* self, PyObject* outputs) {
  int apart = 0;
  for (Py_ssize_t i = 0; apart == 0 && i < PyTuple_Size(outputs); ++i) {
    PyObject* each = PyTuple_GetItem(outputs, i);
    if (each == Py_None) continue;
    if (!has_type(each, self->types)) return 1;
    PyObject* no = self->negated ? PyObject_CallFunctionObjArgs(self->negated, each, NULL) : NULL;
    if (no) apart = PyObject_IsTrue(no);
    if (self->negated && !no) apart = -1;
    Py_XDECREF(no);
  }
  return apart;
}

/* Returns the pairs of a dictionary of options; a new reference. A server's calls have the same
 * options over and over, so those of the last call are kept. */
static PyObject* kept_pairs(TableObject* self, PyObject* options) {
  if (!self->pairs || !are_pairs_of(self->pairs, options)) {
    PyObject* made = pairs_of(options);
    if (!made) return NULL;
    PyObject* before = self->pairs;
    self->pairs = made;
    Py_XDECREF(before);
  }
  Py_INCREF(self->pairs);
  return self->pairs;
}

/* Runs a call at once, unless torch has to see it or to copy a tensor: then the answer is None. */
static PyObject* run_at_once(TableObject* self, PyObject* const* arguments, Py_ssize_t count,
                             int inference) {
  Given given;
  PyObject* outputs = count == 3 ? arguments[2] : NULL;
  if ((count != 2 && count != 3) || (outputs && !PyTuple_Check(outputs))) {
    return PyErr_SetString(PyExc_TypeError, "it takes options, tensors, and perhaps outputs"), NULL;
  }
  int seen = any_says_yes(self->modes);
  if (seen == 0 && outputs) seen = outputs_apart(self, outputs);
  if (seen == 0) {
    const int taken = take(self, arguments[0], arguments[1], 0, &given);
    PyObject* gradients = inference ? self->gradients : NULL;
    seen = taken < 0 ? -1 : taken == 0 ? 1 : wants_gradient(gradients, given.objects, given.count);
  }
  if (seen < 0) return NULL;
  if (seen > 0) Py_RETURN_NONE;
  PyObject *pairs = NULL, *made = NULL;
  if (PyDict_Check(given.options)) given.options = pairs = kept_pairs(self, given.options);
  if (given.options) made = run_given(self, &given, 1, outputs);
  Py_XDECREF(pairs);
  if (inference && made && made != Py_None &&
      note_changes(self->note, &self->changes, given.objects, outputs) != 0) {
    Py_CLEAR(made);
  }
  return made;
}

static PyObject* table_eager(TableObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return run_at_once(self, arguments, count, 0);
}

static PyObject* table_inference(TableObject* self, PyObject* const* arguments, Py_ssize_t count) {
  return run_at_once(self, arguments, count, 1);
}

static PyObject* table_clear(TableObject* self, PyObject* unused) {
  (void)unused;
  drop_entries(&self->entries);
  Py_RETURN_NONE;
}

static Py_ssize_t table_length(TableObject* self) { return (Py_ssize_t)self->entries.used; }

/* Reads a tuple of pairs: which tensor a call changes, and by which one. */
static int read_changes(PyObject* pairs, size_t count, Changes* out) {
  out->count = 0;
  for (Py_ssize_t i = 0; pairs && i < PyTuple_Size(pairs); ++i) {
    int tensor, by;
    if (!PyArg_ParseTuple(PyTuple_GetItem(pairs, i), "ii:change", &tensor, &by)) return -1;
    if (tensor < 0 || by < 0 || (size_t)tensor >= count || (size_t)by >= count ||
        out->count == MOST_TENSORS) {
      return raise_invalid("a change is of tensor %d by %d, of %zu", tensor, by, count), -1;
    }
    out->tensor[out->count] = (unsigned char)tensor;
    out->by[out->count++] = (unsigned char)by;
  }
  return 0;
}

static int table_init(TableObject* self, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"names", "build", "types", "shard", "modes",   "gradients", "negated",
                          "rows",  "kept",  "op",    "copy",  "changes", "note",      NULL};
  PyObject *list, *build, *types = NULL, *shard = NULL, *modes = NULL, *gradients = NULL;
  PyObject *negated = NULL, *copy = NULL, *changes = NULL, *note = NULL;
  const char* op = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!O|O!O!O!OOKKsOO!O:PlanTable", names,
                                   &PyTuple_Type, &list, &build, &PyTuple_Type, &types, ShardType,
                                   &shard, &PyTuple_Type, &modes, &gradients, &negated, &self->rows,
                                   &self->kept, &op, &copy, &PyTuple_Type, &changes, &note)) {
    return -1;
  }
  if (self->build) return raise_invalid("a PlanTable is made once"), -1;
  if (PyTuple_Size(list) > MOST_TENSORS) {
    return raise_invalid("names has %zd entries; allowed are up to %d", PyTuple_Size(list),
                         MOST_TENSORS),
           -1;
  }
  for (Py_ssize_t i = 0; i < PyTuple_Size(list); ++i) {
    self->words[i] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(list, i), NULL);
    if (!self->words[i]) return -1;
  }
  self->alignments = (Alignments){.least = 1, .wide = ~(uint64_t)0};
  const size_t count = (size_t)PyTuple_Size(list);
  if (op && read_alignments(op, self->words, count, &self->alignments) != 0) return -1;
  if (read_changes(changes, count, &self->changes) != 0) return -1;
  self->op = op ? lathe_operator_find(op)->name : NULL;
  memset(&self->fixed, ALL_DIMS, sizeof self->fixed);
  Py_INCREF(list), Py_INCREF(build), Py_XINCREF(types), Py_XINCREF(shard);
  Py_XINCREF(modes), Py_XINCREF(gradients), Py_XINCREF(negated), Py_XINCREF(copy), Py_XINCREF(note);
  self->names = list, self->build = build, self->types = types, self->shard = shard;
  self->modes = modes, self->gradients = gradients, self->negated = negated, self->copy = copy;
  self->note = note;
  self->count = (size_t)PyTuple_Size(list);
  return 0;
}

static void table_dealloc(TableObject* self) {
  drop_entries(&self->entries);
  Py_XDECREF(self->names), Py_XDECREF(self->build), Py_XDECREF(self->types),
      Py_XDECREF(self->shard), Py_XDECREF(self->modes), Py_XDECREF(self->gradients),
      Py_XDECREF(self->negated), Py_XDECREF(self->copy), Py_XDECREF(self->pairs),
      Py_XDECREF(self->note);
  free_object((PyObject*)self);
}

static PyMethodDef methods[] = {
    {"run", (PyCFunction)(void (*)(void))table_run, METH_FASTCALL,
     "run(options, tensors)\n\nFinds the Prepared of a call, runs it and returns the outputs. "
     "Returns\n"
     "None if a tensor is of another type than `types` has."},
    {"eager", (PyCFunction)(void (*)(void))table_eager, METH_FASTCALL,
     "eager(options, tensors)\n\nRuns a call as run does, and returns None too if one of modes() "
     "says yes,\n"
     "or if a tensor would have to be copied: those whose bits are set in `rows` have contiguous\n"
     "rows and are not expanded, the others are contiguous, except for those whose bits are set\n"
     "in `kept`; and negated(tensor) says no. options may be a dictionary, whose Nones do not\n"
     "count."},
    {"inference", (PyCFunction)(void (*)(void))table_inference, METH_FASTCALL,
     "inference(options, tensors, outputs)\n\nRuns a call as eager does, and returns None too if "
     "gradients() says yes\n"
     "and a tensor requires a gradient. outputs, which may be left out: tensors that are written "
     "in\n"
     "place of fresh ones, None for each that the call does not have. note(list) is told of what\n"
     "the call changed."},
    {"clear", (PyCFunction)table_clear, METH_NOARGS, "clear()\n\nForgets all entries."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot slots[] = {
    {Py_tp_doc,
     "PlanTable(names, build, types=(), shard, modes=(), gradients, negated, rows=0, kept=0, op,\n"
     "copy, changes=(), note)\n\n"
     "table(options, *tensors) returns what build(options, alignment, "
     "*tensors) made for tensors of\n"
     "that kind; build returns (value, problem). The options must be "
     "hashable. With types it returns\n"
     "None if a tensor is of another type. With a shard, runs are over its group, and every entry\n"
     "promises the best alignment: ranks must have the same entries. op: the operator's name, "
     "which\n"
     "says of which tensors the alignment counts. copy(tensor) makes a copy that a run takes for "
     "a\n"
     "tensor that is less aligned than the operator takes; without it such a tensor is refused.\n"
     "changes: pairs of indices of names, a tensor that a call changes in place and the one that\n"
     "makes it do so."},
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
