/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the extension lathe._core share: its objects, tensors and errors.
 *
 * The extension is written against Python's limited API of 3.11, so one module serves all later
 * versions. Its types are global: a process has one module, and no sub-interpreter gets another. */
#ifndef LATHE_PYTHON_CORE_H
#define LATHE_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
/* The library's header stands behind Python's, which must come first. */
#include "lathe.h"

/* Tensors of one call: more than any operator has. */
#define MOST_TENSORS 40

/* ---- errors -------------------------------------------------------------------------------- */

/* Raises the exception of `status` with the text of lathe_last_error. Returns NULL. */
PyObject* raise_status(lathe_status status);
/* Raises lathe.InvalidArgument with this text. Returns NULL. */
PyObject* raise_invalid(const char* format, ...);
/* Raises lathe.Unsupported with this text. Returns NULL. */
PyObject* raise_unsupported(const char* format, ...);
/* Returns 1 if `status` is LATHE_OK; else raises and returns 0. */
int succeeded(lathe_status status);

/* ---- tensors of Python --------------------------------------------------------------------- */

/* A tensor that is borrowed for one call. `tensor` is complete; the rest is what to give back. */
typedef struct {
  DLTensor tensor;
  int64_t shape[LATHE_MAX_RANK], strides[LATHE_MAX_RANK];
  PyObject* capsule; /* of __dlpack__; it ends the borrowing when it goes */
  Py_buffer view;    /* of the buffer protocol, if `viewed` */
  int viewed, readonly;
} Borrowed;

/* Borrows `object`: by the exchange table of its type, else by the buffer protocol, else by
 * __dlpack__. `name` is for messages. Returns 0, or -1 with an exception. */
int borrow(PyObject* object, const char* name, Borrowed* out);
void give_back(Borrowed* borrowed, size_t count);

/* Gives the stream that `stream` names: an int, an object with __cuda_stream__ or cuda_stream, or
 * None for the stream on which the producer of `objects` works. Returns 0, or -1. */
int find_stream(PyObject* stream, PyObject* const* objects, const Borrowed* borrowed, size_t count,
                void** out);

/* Gives lathe's dtype of a tensor. Unsigned 16-bit numbers hold the bits of bfloat16, as NumPy has
 * none. Returns 0, or -1 without an exception. */
int dtype_of(DLDataType type, lathe_dtype* out);

/* ---- objects ------------------------------------------------------------------------------- */

typedef struct {
  PyObject_HEAD
  lathe_context* handle;
  lathe_device_kind kind;
  int ordinal;
} ContextObject;

typedef struct {
  PyObject_HEAD
  lathe_group* handle;
  ContextObject* context;
} GroupObject;

typedef struct {
  PyObject_HEAD
  lathe_shard* handle;
  PyObject* plans; /* a set: the shard has tables on their devices, so it must go before them */
} ShardObject;

typedef struct {
  PyObject_HEAD
  lathe_problem* handle;
  GroupObject* group; /* or NULL */
} ProblemObject;

typedef struct {
  const char* name;
  lathe_dtype dtype;
  int tensor; /* its index in the operator's table */
  int written;
} PlanSlot;

/* A workspace that lathe allocates itself, for the runs of one stream. */
typedef struct {
  void *stream, *data;
  size_t bytes;
} OwnWorkspace;

typedef struct {
  PyObject_HEAD
  lathe_plan* handle;
  ContextObject* context;
  GroupObject* group; /* or NULL */
  PlanSlot slots[MOST_TENSORS];
  size_t count;   /* of slots: the tensors that the problem declared */
  size_t tensors; /* that the operator has */
  OwnWorkspace* own;
  size_t own_count;
} PlanObject;

extern PyTypeObject *ContextType, *GroupType, *ShardType, *ProblemType, *PlanType;
int add_context_type(PyObject* module);
int add_ranks_types(PyObject* module);
int add_problem_type(PyObject* module);
int add_plan_type(PyObject* module);
int add_plan_table_type(PyObject* module);
int add_prepared_type(PyObject* module);

/* Makes a type of `spec`, adds it to the module and keeps it in `out`. Returns 0, or -1. */
int add_type(PyObject* module, PyType_Spec* spec, PyTypeObject** out);
/* Ends an object whose members are gone: what each tp_dealloc ends with. */
void free_object(PyObject* object);

/* True unless an object's __init__ has not run. Raises ValueError otherwise. */
int is_made(const void* handle, const char* type);

/* The tensors of one call of a plan. */
typedef struct {
  PyObject* objects[MOST_TENSORS];
  Borrowed borrowed[MOST_TENSORS];
  const DLTensor* slots[MOST_TENSORS];
  size_t count;
  int on_host;
} Tensors;

/* Borrows one more tensor of a call. Returns 0, or -1; either way `out` is to be given back. */
int borrow_more(PyObject* object, const char* name, Tensors* out);
/* Borrows the tensors of a call: those given, in the order of the slots, without Nones, and fits
 * them to the plan's slots. Returns 0, or -1; either way `out` is to be given back. */
int borrow_all(const PlanObject* plan, PyObject* const* given, size_t count, Tensors* out);
/* Runs a plan on tensors that were borrowed in the order of its slots. `stream` and `workspace` may
 * be NULL. Returns 0, or -1. */
int run_borrowed(PlanObject* self, Tensors* tensors, PyObject* stream, PyObject* workspace,
                 const lathe_shard* shard);
/* Borrows these tensors, runs a plan on them and gives them back. Returns 0, or -1. */
int run_plan(PlanObject* self, PyObject* const* given, size_t count, PyObject* stream,
             PyObject* workspace, const lathe_shard* shard);

/* What a plan says of itself (plan_info.c). */
PyObject* estimate(const PlanObject* self, const Tensors* tensors, const lathe_shard* shard);
PyObject* plan_kernels(PlanObject* self, PyObject* unused);
PyObject* plan_slots(PlanObject* self, void* unused);
PyObject* plan_context(PlanObject* self, void* unused);

/* Runs a plan on tensors in host memory, which only the simulator can: each gets memory of its own
 * on the device. `slots` are changed and given back as they were. Returns 0, or -1. */
int run_staged(PlanObject* plan, Borrowed* slots, const lathe_shard* shard);

/* ---- messages ------------------------------------------------------------------------------ */

/* set_log(sink): calls sink(level, text) for each message of the library; None: for none. */
PyObject* set_log(PyObject* self, PyObject* sink);
PyObject* on_compile(PyObject* self, PyObject* sink);

/* The caller makes a plan, which an interrupt does not end. If that takes over 2 s, the log says
 * so; a thread of its own looks at the clock. Without a log there is no thread. */
typedef struct {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  int started, over;
} Patience;

void begin_waiting(Patience* self); /* with the interpreter's lock */
void end_waiting(Patience* self);   /* without it: the thread may wait for it */

/* Sets `name` of a new dictionary's item and drops the reference to `value`. Returns 0, or -1. */
int set_item(PyObject* dict, const char* name, PyObject* value);

#endif /* LATHE_PYTHON_CORE_H */
