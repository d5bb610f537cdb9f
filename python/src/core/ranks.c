/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* lathe._core.Group and Shard: ranks, and who holds which tokens. */
#include "core.h"

PyTypeObject *GroupType, *ShardType;

/* ---- Group --------------------------------------------------------------------------------- */

/* Makes an object of a group that exists; takes the group. */
static PyObject* group_object(PyTypeObject* type, lathe_group* handle, ContextObject* context) {
  GroupObject* self = (GroupObject*)PyType_GenericNew(type, NULL, NULL);
  if (!self) {
    lathe_group_destroy(handle);
    return NULL;
  }
  self->handle = handle;
  Py_INCREF((PyObject*)context);
  self->context = context;
  return (PyObject*)self;
}

static int group_init(GroupObject* self, PyObject* arguments, PyObject* keywords) {
  static char* names[] = {"context", "id", "world", "rank", "timeout_ms", NULL};
  PyObject* context;
  const char* id;
  Py_ssize_t size;
  int world, rank, timeout = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O!y#ii|i:Group", names, ContextType,
                                   &context, &id, &size, &world, &rank, &timeout)) {
    return -1;
  }
  ContextObject* where = (ContextObject*)context;
  if (self->handle) return raise_invalid("a Group is made once"), -1;
  if (!is_made(where->handle, "Context")) return -1;
  if (size != LATHE_UNIQUE_ID_BYTES) {
    raise_invalid("id has %zd bytes; allowed are %d, of Context.unique_id", size,
                  LATHE_UNIQUE_ID_BYTES);
    return -1;
  }
  lathe_group* made = NULL;
  lathe_status status;
  Py_BEGIN_ALLOW_THREADS
  status = lathe_group_create(&made, where->handle, id, world, rank, timeout);
  Py_END_ALLOW_THREADS
  if (!succeeded(status)) return -1;
  self->handle = made;
  Py_INCREF(context);
  self->context = where;
  return 0;
}

static PyObject* group_from_env(PyObject* type, PyObject* arguments) {
  PyObject* context;
  int timeout = 0;
  if (!PyArg_ParseTuple(arguments, "O!|i:from_env", ContextType, &context, &timeout) ||
      !is_made(((ContextObject*)context)->handle, "Context")) {
    return NULL;
  }
  lathe_group* made = NULL;
  lathe_status status;
  Py_BEGIN_ALLOW_THREADS
  status = lathe_group_from_env(&made, ((ContextObject*)context)->handle, timeout);
  Py_END_ALLOW_THREADS
  if (!succeeded(status)) return NULL;
  return group_object((PyTypeObject*)type, made, (ContextObject*)context);
}

static PyObject* group_adopt(PyObject* type, PyObject* arguments) {
  PyObject* context;
  Py_ssize_t address;
  lathe_group* made = NULL;
  if (!PyArg_ParseTuple(arguments, "O!n:adopt", ContextType, &context, &address) ||
      !is_made(((ContextObject*)context)->handle, "Context") ||
      !succeeded(
          lathe_group_adopt(&made, ((ContextObject*)context)->handle, (void*)(size_t)address))) {
    return NULL;
  }
  return group_object((PyTypeObject*)type, made, (ContextObject*)context);
}

static PyObject* group_split(GroupObject* self, PyObject* arguments) {
  int color, key;
  lathe_group* made = NULL;
  if (!PyArg_ParseTuple(arguments, "ii:split", &color, &key) || !is_made(self->handle, "Group")) {
    return NULL;
  }
  lathe_status status;
  Py_BEGIN_ALLOW_THREADS
  status = lathe_group_split(&made, self->handle, color, key);
  Py_END_ALLOW_THREADS
  if (!succeeded(status)) return NULL;
  if (!made) Py_RETURN_NONE;
  return group_object(Py_TYPE((PyObject*)self), made, self->context);
}

static PyObject* group_check(GroupObject* self, PyObject* unused) {
  (void)unused;
  if (!is_made(self->handle, "Group") || !succeeded(lathe_group_error(self->handle))) return NULL;
  Py_RETURN_NONE;
}

static PyObject* group_abort(GroupObject* self, PyObject* unused) {
  (void)unused;
  if (!is_made(self->handle, "Group") || !succeeded(lathe_group_abort(self->handle))) return NULL;
  Py_RETURN_NONE;
}

static PyObject* group_rank(GroupObject* self, void* unused) {
  (void)unused;
  return is_made(self->handle, "Group") ? PyLong_FromLong(lathe_group_rank(self->handle)) : NULL;
}

static PyObject* group_world(GroupObject* self, void* unused) {
  (void)unused;
  return is_made(self->handle, "Group") ? PyLong_FromLong(lathe_group_world(self->handle)) : NULL;
}

static void group_dealloc(GroupObject* self) {
  lathe_group* handle = self->handle;
  Py_BEGIN_ALLOW_THREADS
  lathe_group_destroy(handle);
  Py_END_ALLOW_THREADS
  Py_XDECREF((PyObject*)self->context);
  free_object((PyObject*)self);
}

static PyMethodDef group_methods[] = {
    {"from_env", group_from_env, METH_VARARGS | METH_CLASS,
     "from_env(context, timeout_ms=0) -> Group\n\nTakes rank and world from a launcher."},
    {"adopt", group_adopt, METH_VARARGS | METH_CLASS,
     "adopt(context, ncclComm_t) -> Group\n\nUses a communicator, which stays the caller's."},
    {"split", (PyCFunction)group_split, METH_VARARGS,
     "split(color, key) -> Group or None\n\nCollective: ranks of one color become a group."},
    {"check", (PyCFunction)group_check, METH_NOARGS,
     "check()\n\nRaises what went wrong, if it did."},
    {"abort", (PyCFunction)group_abort, METH_NOARGS,
     "abort()\n\nEnds pending communication on this rank."},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef group_getters[] = {
    {"rank", (getter)group_rank, NULL, "This rank.", NULL},
    {"world", (getter)group_world, NULL, "The number of ranks.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot group_slots[] = {
    {Py_tp_doc,
     "Group(context, id, world, rank, timeout_ms=0)\n\n"
     "Ranks that share a sequence. Collective: all ranks make it, with one id."},
    {Py_tp_init, group_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, group_dealloc},
    {Py_tp_methods, group_methods},
    {Py_tp_getset, group_getters},
    {0, NULL}};

static PyType_Spec group_spec = {"lathe._core.Group", sizeof(GroupObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, group_slots};

/* ---- Shard --------------------------------------------------------------------------------- */

/* Reads a sequence of ints into new memory; None: *out stays NULL. */
static int read_offsets(PyObject* list, int64_t** out, size_t* count) {
  *out = NULL;
  *count = 0;
  if (!list || list == Py_None) return 0;
  const Py_ssize_t size = PySequence_Size(list);
  if (size < 0) return -1;
  *out = PyMem_Malloc(((size_t)size + 1) * sizeof **out);
  if (!*out) return PyErr_NoMemory(), -1;
  *count = (size_t)size;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PySequence_GetItem(list, i);
    (*out)[i] = item ? PyLong_AsLongLong(item) : -1;
    Py_XDECREF(item);
    if (PyErr_Occurred()) return -1;
  }
  return 0;
}

/* Reads a list, by rank, of lists of (first, last) pairs: into one array, and how many each rank
 * has. None leaves both NULL. */
static int read_ranges(PyObject* table, int world, int64_t** ranges, size_t** counts) {
  *ranges = NULL, *counts = NULL;
  if (!table || table == Py_None) return 0;
  const Py_ssize_t ranks = PySequence_Size(table);
  if (ranks < 0) return -1;
  if (ranks != world) {
    return raise_invalid("ranges has lists for %zd ranks; the world has %d", ranks, world), -1;
  }
  *counts = PyMem_Calloc((size_t)ranks + 1, sizeof(size_t));
  if (!*counts) return PyErr_NoMemory(), -1;
  size_t total = 0;
  for (Py_ssize_t rank = 0; rank < ranks; ++rank) {
    PyObject* own = PySequence_GetItem(table, rank);
    const Py_ssize_t count = own ? PySequence_Size(own) : -1;
    int64_t* grown = count < 0 ? NULL : PyMem_Realloc(*ranges, 16 * (total + (size_t)count) + 1);
    if (count >= 0 && !grown) PyErr_NoMemory();
    if (grown) *ranges = grown;
    for (Py_ssize_t i = 0; grown && i < count; ++i, ++total) {
      PyObject* pair = PySequence_GetItem(own, i);
      PyObject* both = pair ? PySequence_Tuple(pair) : NULL;
      long long first = 0, last = 0;
      if (both &&
          PyArg_ParseTuple(both, "LL;a range is a pair of first and last + 1", &first, &last)) {
        (*ranges)[2 * total] = first, (*ranges)[2 * total + 1] = last;
      }
      Py_XDECREF(both), Py_XDECREF(pair);
      if (PyErr_Occurred()) break;
    }
    Py_XDECREF(own);
    if (PyErr_Occurred()) return -1;
    (*counts)[rank] = (size_t)count;
  }
  return 0;
}

/* Makes the shard, or gives one that was made another layout, on `stream`. */
static int make_shard(ShardObject* self, lathe_shard_options* options, PyObject* cu_seqlens,
                      PyObject* cu_seqlens_k, PyObject* bounds, PyObject* table, void* stream) {
  int64_t *queries = NULL, *keys = NULL, *cuts = NULL, *ranges = NULL;
  size_t key_count = 0, cut_count = 0, *counts = NULL;
  int failed = read_offsets(cu_seqlens, &queries, &options->offsets) != 0 ||
               read_offsets(cu_seqlens_k, &keys, &key_count) != 0 ||
               read_offsets(bounds, &cuts, &cut_count) != 0 ||
               read_ranges(table, options->world, &ranges, &counts) != 0;
  if (!failed && keys && key_count != options->offsets) {
    raise_invalid("cu_seqlens_k has %zu offsets; allowed are %zu, as cu_seqlens", key_count,
                  options->offsets);
    failed = 1;
  }
  if (!failed && cuts && cut_count != (size_t)options->world + 1) {
    raise_invalid("bounds has %zu entries; allowed are %d, world + 1", cut_count,
                  options->world + 1);
    failed = 1;
  }
  options->cu_seqlens = queries, options->cu_seqlens_k = keys, options->bounds = cuts;
  options->ranges = ranges, options->range_counts = counts;
  if (!failed) {
    lathe_status status;
    Py_BEGIN_ALLOW_THREADS
    status = self->handle ? lathe_shard_update(self->handle, options, stream)
                          : lathe_shard_create_with(&self->handle, options);
    Py_END_ALLOW_THREADS
    failed = !succeeded(status);
  }
  PyMem_Free(queries), PyMem_Free(keys), PyMem_Free(cuts);
  PyMem_Free(ranges), PyMem_Free(counts);
  return failed ? -1 : 0;
}

/* Reads the arguments of Shard, or those of update, which begin with the stream. */
static int read_shard(ShardObject* self, PyObject* arguments, PyObject* keywords, int updates) {
  static char* names[] = {"world",   "rank",       "length",          "key_length",
                          "balance", "cu_seqlens", "cu_seqlens_k",    "block_size",
                          "bounds",  "ranges",     "capacity_tokens", "capacity_pieces",
                          "stream",  NULL};
  lathe_shard_options options = LATHE_SHARD_OPTIONS_INIT;
  PyObject *queries = NULL, *keys = NULL, *bounds = NULL, *ranges = NULL;
  long long length, key_length = -1, block = 0, tokens = 0, pieces = 0;
  unsigned long long stream = 0;
  int balance = LATHE_BALANCE_NONE;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "iiL|$LiOOLOOLLK:Shard", names,
                                   &options.world, &options.rank, &length, &key_length, &balance,
                                   &queries, &keys, &block, &bounds, &ranges, &tokens, &pieces,
                                   &stream)) {
    return -1;
  }
  if (!updates && self->handle) return raise_invalid("a Shard is made once"), -1;
  if (updates && !is_made(self->handle, "Shard")) return -1;
  options.length = length, options.key_length = key_length, options.block_size = block;
  options.balance = (lathe_balance)balance;
  options.capacity_tokens = tokens, options.capacity_pieces = pieces;
  if (!self->plans) self->plans = PySet_New(NULL);
  if (!self->plans) return -1;
  return make_shard(self, &options, queries, keys, bounds, ranges, (void*)(size_t)stream);
}

static int shard_init(ShardObject* self, PyObject* arguments, PyObject* keywords) {
  return read_shard(self, arguments, keywords, 0);
}

static PyObject* shard_update(ShardObject* self, PyObject* arguments, PyObject* keywords) {
  if (read_shard(self, arguments, keywords, 1) != 0) return NULL;
  Py_RETURN_NONE;
}

static void shard_dealloc(ShardObject* self) {
  lathe_shard_destroy(self->handle);
  Py_XDECREF(self->plans); /* the tables on the plans' devices are gone by now */
  free_object((PyObject*)self);
}

static PyObject* shard_prepare(ShardObject* self, PyObject* plan) {
  if (!PyObject_TypeCheck(plan, PlanType)) {
    PyErr_SetString(PyExc_TypeError, "prepare takes a Plan");
    return NULL;
  }
  if (!is_made(self->handle, "Shard") || !is_made(((PlanObject*)plan)->handle, "Plan")) return NULL;
  lathe_status status;
  Py_BEGIN_ALLOW_THREADS
  status = lathe_shard_prepare(self->handle, ((PlanObject*)plan)->handle);
  Py_END_ALLOW_THREADS
  if (!succeeded(status) || PySet_Add(self->plans, plan) != 0) return NULL;
  Py_RETURN_NONE;
}

/* Returns the positions that this rank holds: [(begin, end), ...] in the order of its tensors. */
static PyObject* shard_intervals(ShardObject* self, PyObject* arguments) {
  int axis = LATHE_QUERIES;
  const int64_t* pairs;
  size_t count;
  if (!PyArg_ParseTuple(arguments, "|i:intervals", &axis) || !is_made(self->handle, "Shard") ||
      !succeeded(lathe_shard_intervals(self->handle, (lathe_axis)axis, &pairs, &count))) {
    return NULL;
  }
  PyObject* out = PyList_New(0);
  for (size_t i = 0; out && i < count; ++i) {
    PyObject* pair = Py_BuildValue("(LL)", (long long)pairs[2 * i], (long long)pairs[2 * i + 1]);
    if (!pair || PyList_Append(out, pair) != 0) Py_CLEAR(out);
    Py_XDECREF(pair);
  }
  return out;
}

static PyMethodDef shard_methods[] = {
    {"prepare", (PyCFunction)shard_prepare, METH_O,
     "prepare(plan)\n\nCollective: makes the tables that runs of the plan on this shard need."},
    {"update", (PyCFunction)(void (*)(void))shard_update, METH_VARARGS | METH_KEYWORDS,
     "update(world, rank, length, *, ..., stream=0)\n\nCollective: gives a shard with a capacity "
     "another layout, in the order of a stream; arguments as of Shard."},
    {"intervals", (PyCFunction)shard_intervals, METH_VARARGS,
     "intervals(axis=0) -> list\n\nReturns this rank's positions as pairs of begin and end; axis "
     "1: "
     "of keys."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot shard_slots[] = {
    {Py_tp_doc,
     "Shard(world, rank, length, *, key_length=-1, balance=0, cu_seqlens=None,\n"
     "      cu_seqlens_k=None, block_size=0, bounds=None, ranges=None, capacity_tokens=0,\n"
     "      capacity_pieces=0)\n\n"
     "Who holds which tokens of a sequence axis that is split over ranks."},
    {Py_tp_init, shard_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, shard_dealloc},
    {Py_tp_methods, shard_methods},
    {0, NULL}};

static PyType_Spec shard_spec = {"lathe._core.Shard", sizeof(ShardObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, shard_slots};

int add_ranks_types(PyObject* module) {
  return add_type(module, &group_spec, &GroupType) != 0 ? -1
                                                        : add_type(module, &shard_spec, &ShardType);
}
