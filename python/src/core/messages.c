/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The library's messages for a function of Python, and one more: that a compile takes long. */
#include "core.h"

/* Python's header, which comes first, says which POSIX is meant. */
#include <time.h>

/* Levels of lathe_set_log. */
enum { kInfo = 2 };
/* Seconds after which a person at a keyboard wonders why Ctrl-C does nothing. */
enum { kPatience = 2 };

static PyObject* log_sink; /* the interpreter's lock guards it */

/* The library calls this function in any thread, with or without the interpreter's lock. */
static void tell(void* user, int level, const char* text) {
  (void)user;
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* sink = log_sink;
  if (sink) {
    Py_INCREF(sink); /* the sink may replace itself */
    PyObject *kind = NULL, *value = NULL, *trace = NULL;
    PyErr_Fetch(&kind, &value, &trace);
    PyObject* result = PyObject_CallFunction(sink, "is", level, text);
    if (!result) PyErr_WriteUnraisable(sink);
    Py_XDECREF(result);
    PyErr_Restore(kind, value, trace);
    Py_DECREF(sink);
  }
  PyGILState_Release(state);
}

PyObject* set_log(PyObject* self, PyObject* sink) {
  (void)self;
  lathe_set_log(NULL, NULL);
  Py_CLEAR(log_sink);
  if (sink != Py_None) {
    Py_INCREF(sink);
    log_sink = sink;
    lathe_set_log(tell, NULL);
  }
  Py_RETURN_NONE;
}

/* ---- kernels that are compiled --------------------------------------------------------------- */

static PyObject* compile_sink; /* the interpreter's lock guards it */

/* The library calls this function in any thread, with or without the interpreter's lock. */
static void tell_compiled(void* user, const lathe_compile_info* info) {
  (void)user;
  if (!Py_IsInitialized()) return;
  const PyGILState_STATE state = PyGILState_Ensure();
  PyObject* sink = compile_sink;
  if (sink) {
    Py_INCREF(sink); /* the sink may replace itself */
    PyObject *kind = NULL, *value = NULL, *trace = NULL;
    PyErr_Fetch(&kind, &value, &trace);
    PyObject* result =
        PyObject_CallFunction(sink, "ssssssd", info->kernel, info->arch, info->key, info->spec,
                              info->call, info->line, info->milliseconds);
    if (!result) PyErr_WriteUnraisable(sink);
    Py_XDECREF(result);
    PyErr_Restore(kind, value, trace);
    Py_DECREF(sink);
  }
  PyGILState_Release(state);
}

PyObject* on_compile(PyObject* self, PyObject* sink) {
  (void)self;
  lathe_on_compile(NULL, NULL);
  Py_CLEAR(compile_sink);
  if (sink != Py_None) {
    Py_INCREF(sink);
    compile_sink = sink;
    lathe_on_compile(tell_compiled, NULL);
  }
  Py_RETURN_NONE;
}

/* ---- compiles that take long --------------------------------------------------------------- */

static void* wait_and_tell(void* user) {
  Patience* self = user;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += kPatience;
  int timed_out = 0;
  pthread_mutex_lock(&self->mutex);
  while (!self->over && !timed_out) {
    timed_out = pthread_cond_timedwait(&self->ended, &self->mutex, &until) != 0;
  }
  const int over = self->over;
  pthread_mutex_unlock(&self->mutex);
  if (over) return NULL;
  tell(NULL, kInfo,
       "a plan has been in the making for 2 s; an interrupt (Ctrl-C) takes effect when it is done");
  return NULL;
}

void begin_waiting(Patience* self) {
  pthread_condattr_t attributes;
  self->over = self->started = 0;
  if (!log_sink) return;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&self->mutex, NULL);
  pthread_cond_init(&self->ended, &attributes);
  pthread_condattr_destroy(&attributes);
  self->started = pthread_create(&self->thread, NULL, wait_and_tell, self) == 0;
}

void end_waiting(Patience* self) {
  if (!self->started) return;
  pthread_mutex_lock(&self->mutex);
  self->over = 1;
  pthread_cond_signal(&self->ended);
  pthread_mutex_unlock(&self->mutex);
  pthread_join(self->thread, NULL);
  pthread_cond_destroy(&self->ended);
  pthread_mutex_destroy(&self->mutex);
}
