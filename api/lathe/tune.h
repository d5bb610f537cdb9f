/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Tuned choices: tiles that were measured on a GPU. A part of lathe.h, which states the rules. */
#ifndef LATHE_TUNE_H
#define LATHE_TUNE_H

#ifndef LATHE_H
#error "include lathe.h"
#endif

/* ---- tuned choices
 * -------------------------------------------------------------------------------------- */

/* Rules choose a kernel's tile, unless tiles were measured on the GPU at hand: then the database
 * <cache>/v1/tuned/<gpu>.txt chooses, which is read when a context is created. A choice is a few
 * constants of a kernel, whose key does not know that it was tuned. */

typedef struct lathe_tune_candidate {
  const char* kernel;        /* "causal_conv1d" */
  const char* problem_class; /* its text without the tile's constants */
  const char* choice;        /* "tokens=64 warps=4" */
  const char* verdict;       /* "won", "default" (the rules' choice, and nothing beat it), "slower",
                                "out" */
  const char* reason;        /* why it is out; "" */
  int registers, smem_bytes, spill_bytes, stack_bytes; /* of that kernel; -1: unknown */
  double microseconds; /* median of a run of the whole plan; 0 if it is out */
  double spread;       /* (third quartile - first) / median */
} lathe_tune_candidate;

typedef struct lathe_tune_report {
  size_t size;                            /* in: sizeof(lathe_tune_report) */
  const lathe_tune_candidate* candidates; /* kernel by kernel, each with the rules' choice first */
  size_t count;
  size_t kernels;        /* that had a choice */
  size_t improved;       /* of which the rules' choice was beaten */
  double default_us, us; /* of a run of the plan before and after */
  int by_model;          /* times are predicted by the simulator, not measured */
  int cancelled;         /* nothing was decided or stored */
  const char* stored_in; /* the file; "" if nothing was stored */
  const char* gpu;       /* whose database it is, "h100" */
} lathe_tune_report;

/* Set `size`, or use LATHE_TUNE_OPTIONS_INIT. */
typedef struct lathe_tune_options {
  size_t size;
  int repeats;        /* runs of each candidate; 0: 20. One on the simulator, where all are alike */
  int candidates;     /* at most so many of a kernel, those that the rules like best; 0: all */
  double seconds;     /* that a run may take; 0: 30. After ten times as much tuning ends, TIMEOUT */
  int keep_cache;     /* 1: the device's L2 cache is not emptied before each run */
  int store;          /* 1: into the database of the cache directory */
  lathe_shard* shard; /* of a problem with a group; else NULL */
  /* Called between candidates; another result than 0 ends the tuning. May be NULL. */
  int (*progress)(void* user, const char* what, size_t done, size_t total);
  void* user;
} lathe_tune_options;
#define LATHE_TUNE_OPTIONS_INIT \
  { sizeof(lathe_tune_options), 0, 0, 0, 0, 0, NULL, NULL, NULL }

/* Tries the tiles that the problem's kernels could have, on these tensors: `slots` as
 * lathe_plan_run takes them, on the device, complete, only read (outputs are written into buffers
 * of the call's own). A candidate is out if it does not compile, spills where the rules' choice
 * does not, fails, takes too long, writes outside of its outputs or computes something else; of the
 * others one must save more than 2 % and more than times vary. Takes compiles and hundreds of runs;
 * the context's memory helpers are not used. Nothing is left allocated, but after TIMEOUT what a
 * kernel that did not end may still write to.
 * On the simulator LATHE_SIM_TIMELINE must be set (/dev/null will do): times are its model's, or
 * its clock's if LATHE_SIM_CLOCK is set too. With a group every rank calls it, with the same
 * options, in place of a run; ranks agree on each choice by the slowest of them. `options` NULL:
 * all defaults. The report's texts are lent until the calling thread's next call. Plans made before
 * keep their kernels; those that the context makes later have what was stored. INVALID_ARGUMENT,
 * NO_DEVICE, CUDA, TIMEOUT, NCCL, CACHE_IO if it cannot be stored; if the rules' own choice fails,
 * what it failed with, or INTERNAL where that was on another rank. */
LATHE_API lathe_status lathe_tune(lathe_context* context, const lathe_problem* problem,
                                  const DLTensor* const* slots, const lathe_tune_options* options,
                                  lathe_tune_report* out);

/* Collective: from now on plans of problems with `group` use the tuned choices of rank 0's context,
 * on every rank. Without it such plans use none, as ranks whose databases differ would run
 * different kernels. lathe_tune with the group does it as well. NCCL, TIMEOUT. */
LATHE_API lathe_status lathe_group_share_tuned(lathe_group* group);

typedef struct lathe_tuned_report {
  size_t size;         /* in: sizeof(lathe_tuned_report) */
  uint64_t records;    /* in the database of the context's GPU */
  uint64_t used;       /* questions of this context's plans that it answered */
  uint64_t ignored;    /* choices that the templates no longer offer */
  uint64_t skipped;    /* lines of the given file that are no records */
  uint64_t changed;    /* records added, replaced or removed by the call */
  const char* path;    /* the file that was, or would be, written; "" without a directory */
  const char* problem; /* what is wrong with the file or the line; "" */
} lathe_tuned_report;

/* Lists what the context knows, a record a line: "MARK<TAB>SOURCE<TAB>RECORD". MARK is "holds";
 * "stale" for one that holds and was found with other sources or another version of the library;
 * "hidden" where another of the class decides; "other" for one of another GPU, architecture or
 * number of multiprocessors. The lines are lent until the context's next call of this function.
 * `out` may be NULL. */
LATHE_API lathe_status lathe_tuned_list(lathe_context* context, const char** lines,
                                        lathe_tuned_report* out);
/* Adds the records of a file, of whatever GPU, to the databases in the cache directory: of two for
 * the same the measured one wins, then the faster. INVALID_ARGUMENT if it is no such file,
 * CACHE_IO. */
LATHE_API lathe_status lathe_tuned_merge(lathe_context* context, const char* path,
                                         lathe_tuned_report* out);
/* Removes the records of a kernel, or all (NULL), from the database of the context's GPU.
 * CACHE_IO. */
LATHE_API lathe_status lathe_tuned_forget(lathe_context* context, const char* kernel,
                                          lathe_tuned_report* out);

#endif /* LATHE_TUNE_H */
