/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lathe: CUDA kernel templates, compiled at run time for the problem at hand, cached, launched.
 *
 * The order of things: a context (a device and a cache), a problem (what is asked), a plan (the
 * kernels for it, compiled or loaded), runs of the plan. Ranks of a sequence split over devices
 * share a group.
 *
 *   lathe_context* context;  lathe_context_create(&context, NULL);
 *   lathe_problem* problem;  lathe_problem_create(&problem, "causal_conv1d");
 *   lathe_problem_tensor(problem, "x", LATHE_BF16, 3, (int64_t[]){-1, -1, 4096});  ...
 *   lathe_plan* plan;        lathe_plan_create(&plan, context, problem);
 *   lathe_plan_run(plan, slots, workspace, workspace_bytes, stream);
 *
 * Rules that hold everywhere
 * - Every function returns a lathe_status unless it says otherwise. On failure nothing was launched
 *   or written, `out` is untouched, and lathe_last_error() has the text: what was wrong, the value
 *   found, the values allowed.
 * - `out` comes first. A pointer to a pointer gives ownership, to be ended by the matching
 * _destroy; a getter lends. _destroy takes NULL.
 * - Contexts and plans are immutable or locked inside: use them from any thread. A problem or group
 *   belongs to one thread at a time.
 * - No function prints, exits, aborts or throws. Messages go to the sink of lathe_set_log.
 * - Signals stay the program's, in every thread: NVRTC, which has handlers of its own, runs in a
 *   process of its own. The program gets no SIGCHLD and no child to wait for.
 * - A child of fork() cannot use a device that its parent used: CUDA refuses, and so does the
 *   simulator. Calls that need the device answer LATHE_CUDA there, with that reason; _destroy
 *   and whatever needs no device work.
 * - Streams are CUstream values passed as void*; NULL is the legacy default stream. Device pointers
 *   are plain addresses. Tensors are DLPack's.
 */
#ifndef LATHE_H
#define LATHE_H

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(LATHE_BUILD)
#define LATHE_API __attribute__((visibility("default")))
#else
#define LATHE_API
#endif

#define LATHE_VERSION_MAJOR 0
#define LATHE_VERSION_MINOR 1
#define LATHE_VERSION_PATCH 0

typedef enum lathe_status {
  LATHE_OK = 0,
  LATHE_INVALID_ARGUMENT, /* the caller's input: tensor or option, value found, values allowed */
  LATHE_UNSUPPORTED,      /* legal, but no template covers it; names the constant */
  LATHE_NO_DEVICE,        /* no driver or no GPU; names the remedy */
  LATHE_COMPILE_FAILED,   /* with NVRTC's log and the path of the saved source */
  LATHE_NOT_CACHED, /* compilation is off (LATHE_JIT=off) and the kernel is not in the cache */
  LATHE_CACHE_IO,   /* only from the cache functions: elsewhere a bad cache is a warning */
  LATHE_CUDA,       /* a driver call failed; call, name, sentence */
  LATHE_NCCL,       /* a collective failed */
  LATHE_TIMEOUT,    /* a rank did not come */
  LATHE_INTERNAL    /* a bug in lathe */
} lathe_status;

typedef enum lathe_dtype {
  LATHE_F32 = 0,
  LATHE_F16,
  LATHE_BF16,
  LATHE_I32,
  LATHE_I64,
  LATHE_F8_E4M3, /* DLPack's float8_e4m3fn, or unsigned 8-bit numbers that are its codes */
  LATHE_U8
} lathe_dtype;

typedef enum lathe_device_kind {
  LATHE_DEVICE_DEFAULT = 0, /* LATHE_DEVICE if set, else LATHE_DEVICE_CUDA. Never falls back. */
  LATHE_DEVICE_CUDA,        /* the real libcuda.so.1 */
  LATHE_DEVICE_SIM,         /* the simulator beside the library, or in LATHE_SIM_DIR */
  LATHE_DEVICE_NONE         /* compile only: plans can be made, described and warmed, not run */
} lathe_device_kind;

typedef struct lathe_context lathe_context;
typedef struct lathe_problem lathe_problem;
typedef struct lathe_plan lathe_plan;
typedef struct lathe_group lathe_group;
typedef struct lathe_shard lathe_shard;

/* ---- errors, versions, log --------------------------------------------------------------------
 */

/* Returns the name of a status, "INVALID_ARGUMENT" and so on. Never NULL. */
LATHE_API const char* lathe_status_name(lathe_status status);

/* Returns the text of the calling thread's last failure; empty if there was none. The text stays
 * good until the thread's next failing call. */
LATHE_API const char* lathe_last_error(void);

/* Returns the version of the library that is loaded, "0.1.0". */
LATHE_API const char* lathe_version(void);

/* Level 1 is warnings, 2 what was compiled or found, 3 more. `sink` may be called from any thread;
 * NULL drops everything, which is the default. */
typedef void (*lathe_log_sink)(void* user, int level, const char* text);
LATHE_API void lathe_set_log(lathe_log_sink sink, void* user);

/* A kernel that was compiled. A server that is up wants none: each is a wait of a second and more.
 * Texts are lent for the time of the call. */
typedef struct lathe_compile_info {
  size_t size;        /* of the struct that the library has */
  const char* kernel; /* "kda_decode" */
  const char* arch;   /* "sm_90a" */
  const char* key;    /* hexadecimal cache key */
  const char* spec;   /* canonical text: template and constants */
  /* "kda_decode(qkv bf16[64, 4608], ...)": the call that needs it, with the extents that were
   * declared before lathe_problem_open; "" where it was compiled ahead (lathe_warming_run). */
  const char* call;
  const char* line;    /* the problem as a line of a manifest, which `lathe warm` takes; or "" */
  double milliseconds; /* that the compiler took */
} lathe_compile_info;
typedef void (*lathe_compile_sink)(void* user, const lathe_compile_info* info);
/* Calls `sink` for each kernel that any context of the process compiles, once, before the call that
 * needs it goes on; NULL: for none, which is the default. The call comes from the thread that
 * compiled, which need not be the caller's, and from several at once; no lock is held, so it may
 * call the library. LATHE_COMPILE_LOG=FILE appends a line for each such kernel to a file. */
LATHE_API void lathe_on_compile(lathe_compile_sink sink, void* user);

/* ---- contexts ---------------------------------------------------------------------------------
 */

/* Set `size` to sizeof(lathe_context_options), or use LATHE_CONTEXT_OPTIONS_INIT. A larger size is
 * taken if all that this version does not know is zero. */
typedef struct lathe_context_options {
  size_t size;
  lathe_device_kind device;
  int ordinal;           /* which device of that kind */
  const char* arch;      /* "sm_90a": what to compile for; NULL: the device's own. Required with
                            LATHE_DEVICE_NONE. For the simulator it also picks the profile, for the
                            whole process, at the first context. With LATHE_DEVICE_NONE it may also
                            name a GPU, "h200": its architecture, and its rates for estimates. */
  const char* cache_dir; /* NULL: LATHE_CACHE_DIR, else the user's cache folder; "off": none */
  const char* family;    /* kernels to choose from: "portable" (those that run on every GPU), "sm90"
                            (Hopper's where they cover the case, else portable) or "auto" (the faster
                            ones, as far as they were measured). NULL: LATHE_FAMILY, else "auto". */
} lathe_context_options;
#define LATHE_CONTEXT_OPTIONS_INIT \
  { sizeof(lathe_context_options), LATHE_DEVICE_DEFAULT, 0, NULL, NULL, NULL }

/* Makes a context of one device and one cache. `options` NULL: all defaults.
 * INVALID_ARGUMENT (unknown arch, kind or family), NO_DEVICE, CUDA. An unusable cache directory is
 * a warning. */
LATHE_API lathe_status lathe_context_create(lathe_context** out,
                                            const lathe_context_options* options);
/* The caller destroys all plans, groups and memory of the context first. */
LATHE_API void lathe_context_destroy(lathe_context* context);

typedef struct lathe_context_info {
  size_t size;              /* in: sizeof(lathe_context_info) */
  lathe_device_kind device; /* never DEFAULT */
  int ordinal;
  const char* device_name; /* "" without a device */
  const char* arch;
  const char* driver_path;   /* "" without a device */
  int driver_version;        /* 13000; 0 without a device */
  const char* compiler;      /* "nvrtc 13.0 <build id>"; "" while nothing was compiled */
  const char* cache_dir;     /* "" if memory only */
  const char* cache_problem; /* why it is memory only, with the remedy; "" */
  uint64_t compiled;         /* kernels compiled by this context */
  uint64_t hits;             /* kernels found on disk or in memory */
} lathe_context_info;
/* Lent strings stay good as long as the context. */
LATHE_API lathe_status lathe_context_get_info(const lathe_context* context,
                                              lathe_context_info* out);

/* Lists what the machine offers, for `lathe doctor`: one line per item,
 * "name<TAB>found|missing<TAB>where and version<TAB>remedy". The call needs no context. Copies at
 * most `bytes` with a final NUL; `needed` (may be NULL) gets the size of the whole. */
LATHE_API lathe_status lathe_doctor(char* text, size_t bytes, size_t* needed);

/* Path of nvdisasm, which lists the machine code of LATHE_TEXT_CUBIN. Copies as lathe_doctor does.
 * UNSUPPORTED if none is found; the text of the error names the places and the remedy. */
LATHE_API lathe_status lathe_nvdisasm(char* path, size_t bytes, size_t* needed);

/* ---- device memory and streams: helpers for callers without a framework -------------------------
 */

LATHE_API lathe_status lathe_malloc(lathe_context* context, void** out, size_t bytes);
LATHE_API lathe_status lathe_free(lathe_context* context, void* pointer);
/* The copy is ordered on `stream`; the host buffer may be reused when the call returns. */
LATHE_API lathe_status lathe_copy_to_device(lathe_context* context, void* to, const void* from,
                                            size_t bytes, void* stream);
/* Returns when the bytes have arrived. */
LATHE_API lathe_status lathe_copy_to_host(lathe_context* context, void* to, const void* from,
                                          size_t bytes, void* stream);
LATHE_API lathe_status lathe_stream_create(lathe_context* context, void** out);
LATHE_API lathe_status lathe_stream_destroy(lathe_context* context, void* stream);
LATHE_API lathe_status lathe_stream_synchronize(lathe_context* context, void* stream);

#ifdef __cplusplus
}
#endif

#include "lathe/plan.h"

/* These use the types of lathe/plan.h. */
#include "lathe/cache.h"
#include "lathe/ranks.h"
#include "lathe/tune.h"

#endif /* LATHE_H */
