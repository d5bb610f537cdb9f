/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* The cache: warming, upkeep, tiers, bundles, files. A part of lathe.h, which states the rules. */
#ifndef LATHE_CACHE_H
#define LATHE_CACHE_H

#ifndef LATHE_H
#error "include lathe.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cache
 * --------------------------------------------------------------------------------------- */

/* Compiles what the problem needs, or finds it in the cache, as lathe_plan_create does; nothing is
 * loaded or launched, so a context of LATHE_DEVICE_NONE will do. Either count may be NULL. */
LATHE_API lathe_status lathe_warm(lathe_context* context, const lathe_problem* problem,
                                  uint64_t* compiled, uint64_t* hits);

/* Many problems, in contexts of as many architectures: each kernel is built once, however many need
 * it. Belongs to one thread at a time; the contexts must outlive it, the problems need not. */
typedef struct lathe_warming lathe_warming;
LATHE_API lathe_status lathe_warming_create(lathe_warming** out);
LATHE_API void lathe_warming_destroy(lathe_warming* warming);
/* Chooses the kernels of `problem` in `context`; compiles nothing. A problem that fails is an item
 * too, the next one, with the status that is returned. */
LATHE_API lathe_status lathe_warming_add(lathe_warming* warming, lathe_context* context,
                                         const lathe_problem* problem);
/* Called after each kernel, and once before the first; one call at a time, from any thread.
 * `compiled` is the number of the `done` kernels that were compiled. If the result is not 0, no
 * further kernel is begun. */
typedef int (*lathe_warming_progress)(void* user, size_t done, size_t total, size_t compiled);
/* Builds what is not built yet, `jobs` kernels at once; 0: as many as there are cores and memory
 * (250 MB each) for. A failure does not stop the others: when all were tried, the first one in the
 * order of the items is returned. `progress` may be NULL. May be called again. */
LATHE_API lathe_status lathe_warming_run(lathe_warming* warming, int jobs,
                                         lathe_warming_progress progress, void* user);

typedef struct lathe_warming_item_info {
  size_t size; /* in: sizeof(lathe_warming_item_info) */
  const char *op, *arch;
  lathe_status status;     /* OK, or the first of its failures */
  const char* error;       /* its text; "" */
  uint64_t kernels;        /* the sum of what follows */
  uint64_t compiled, hits; /* of those that no earlier item needs */
  uint64_t shared;         /* built for an earlier item */
  uint64_t failed, left;   /* `left`: not begun */
  double milliseconds;     /* spent on those that no earlier item needs */
} lathe_warming_item_info;
LATHE_API size_t lathe_warming_item_count(const lathe_warming* warming);
/* Items are in the order of lathe_warming_add. Lent strings stay good until the next call of _run,
 * or _destroy. */
LATHE_API lathe_status lathe_warming_item(const lathe_warming* warming, size_t index,
                                          lathe_warming_item_info* out);

typedef struct lathe_warming_kernel_info {
  size_t size; /* in: sizeof(lathe_warming_kernel_info) */
  const char *name, *spec, *arch;
  const char* key;  /* "" before it is built */
  const char* from; /* as in lathe_kernel_info; "" before it is built */
  lathe_status status;
  const char* error; /* "" */
  double milliseconds;
} lathe_warming_kernel_info;
LATHE_API size_t lathe_warming_kernel_count(const lathe_warming* warming);
LATHE_API lathe_status lathe_warming_kernel(const lathe_warming* warming, size_t index,
                                            lathe_warming_kernel_info* out);

/* A manifest, read line by line: JSON Lines, each a problem (lathe_problem_text), a model or one of
 * its layers (docs/cache.md), which stand for many problems. Belongs to one thread at a time. */
typedef struct lathe_manifest lathe_manifest;
LATHE_API lathe_status lathe_manifest_create(lathe_manifest** out);
LATHE_API void lathe_manifest_destroy(lathe_manifest* manifest);
/* Takes the next line, whose text need not end with a newline; a blank one counts and says nothing.
 * INVALID_ARGUMENT begins with the line's number, from 1, and says what was found and what is
 * allowed; of a model's line nothing holds then, and of a layer's some problems may be there. Opens
 * no file. */
LATHE_API lathe_status lathe_manifest_read(lathe_manifest* manifest, const char* line,
                                           size_t bytes);
/* The problems of all lines, each once, in their order. */
LATHE_API size_t lathe_manifest_count(const lathe_manifest* manifest);
/* `out` is lent as long as the manifest; `line` (may be NULL) gets the number of the line that says
 * it first. */
LATHE_API lathe_status lathe_manifest_problem(const lathe_manifest* manifest, size_t index,
                                              const lathe_problem** out, size_t* line);

typedef struct lathe_cache_info {
  size_t size; /* in: sizeof(lathe_cache_info) */
  const char* directory;
  uint64_t entries, bytes;                                     /* on disk */
  uint64_t hits, misses, corrupt, published, publish_failures; /* by this context */
} lathe_cache_info;
LATHE_API lathe_status lathe_cache_stat(lathe_context* context, lathe_cache_info* out);
/* Reads every entry; bad ones are removed. `problems` (may be NULL) is lent until the context's
 * next call of it: a line per bad entry. CACHE_IO if the directory cannot be read. */
LATHE_API lathe_status lathe_cache_verify(lathe_context* context, uint64_t* checked,
                                          uint64_t* removed, const char** problems);

typedef struct lathe_trim_report {
  size_t size;             /* in: sizeof(lathe_trim_report) */
  uint64_t entries, bytes; /* that are left */
  uint64_t removed, freed; /* entries, and their bytes */
  uint64_t temporaries;    /* files of processes that died while they published */
  int busy;                /* another process is trimming, so this call did nothing */
  const char* names;       /* "NAME BYTES" a line; lent until the context's next call of it */
} lathe_trim_report;
/* If the entries have more than `max_bytes`, removes those used longest ago until a tenth below;
 * entries that a process is compiling right now stay. `dry_run`: nothing is removed, the report is
 * the same. The library does this by itself beyond LATHE_CACHE_MAX_BYTES. CACHE_IO if there is no
 * directory. */
LATHE_API lathe_status lathe_cache_trim(lathe_context* context, uint64_t max_bytes, int dry_run,
                                        lathe_trim_report* out);

/* One place where kernels are looked for below memory. The first is the user's directory; then come
 * the directories of LATHE_CACHE_READONLY and the bundles of LATHE_BUNDLES, in their order. The
 * latter two are never changed, and what is found in them is not copied up. */
typedef struct lathe_tier_info {
  size_t size;         /* in: sizeof(lathe_tier_info) */
  const char* kind;    /* "directory", "read-only" or "bundle" */
  const char* path;    /* "" if the user's directory is off or cannot be used */
  const char* problem; /* why it is not used, with the remedy; "" */
  uint64_t entries, bytes;
  uint64_t hits, misses, corrupt; /* by this context */
} lathe_tier_info;
/* Returns 0 if the context is NULL. */
LATHE_API size_t lathe_cache_tier_count(const lathe_context* context);
/* Lent strings stay good as long as the context. INVALID_ARGUMENT beyond the last. */
LATHE_API lathe_status lathe_cache_tier(lathe_context* context, size_t index, lathe_tier_info* out);

/* Lists the kernels in all tiers, a line each: "key<TAB>kernel<TAB>arch<TAB>bytes<TAB>spec<TAB>path
 * of the tier". A key that several tiers hold is told for the first; damaged entries are not told.
 * `lines` is lent until the calling thread's next call that lists or reports. */
LATHE_API lathe_status lathe_cache_list(lathe_context* context, const char** lines);

/* ---- bundles
 * ---------------------------------------------------------------------------------------
 * Many kernels in one file: made from a cache, merged, unpacked into another, or opened in place by
 * LATHE_BUNDLES. The same entries make the same bytes. A file that is no sound bundle, has another
 * version, or is not the user's or root's alone to write is INVALID_ARGUMENT with the reason;
 * CACHE_IO if it cannot be read or written. New files take the place of regular files whole, or not
 * at all; any other kind of file, a symbolic link too, stays and is INVALID_ARGUMENT. Any thread
 * may call any of these. */

typedef struct lathe_bundle_report {
  size_t size;             /* in: sizeof(lathe_bundle_report) */
  uint64_t entries, bytes; /* of the bundle, and of its file */
  uint64_t added, present; /* by unpacking: stored, and there before */
  uint64_t bad;            /* damaged entries, which were left out */
  const char* problems;    /* a line for each of them */
  const char* information; /* lines "arch=sm_90a", "compiler=nvrtc 13.0 ...", "tuned=..." */
} lathe_bundle_report;     /* its texts are lent until the calling thread's next call that lists or
                              reports */

/* Packs kernels into a new file at `path`: those named by `keys` (hexadecimal, as
 * lathe_kernel_info.key has them) from whichever tier has them; with `keys` NULL all of the user's
 * directory. NOT_CACHED names a key that is in no tier, and nothing is written. `out` may be NULL.
 */
LATHE_API lathe_status lathe_cache_pack(lathe_context* context, const char* path,
                                        const char* const* keys, size_t key_count,
                                        lathe_bundle_report* out);
/* Stores what is in a bundle into the user's directory; what is there already stays. CACHE_IO if
 * there is no directory, or if it did not take an entry. `out` may be NULL. */
LATHE_API lathe_status lathe_cache_unpack(lathe_context* context, const char* path,
                                          lathe_bundle_report* out);
/* Writes the union of `count` bundles into a new one, which may be one of them. INVALID_ARGUMENT if
 * two hold other code under one key, which it names. `out` may be NULL. */
LATHE_API lathe_status lathe_bundle_merge(const char* path, const char* const* from, size_t count,
                                          lathe_bundle_report* out);
/* Reads every entry. LATHE_OK with out->bad > 0 if some are damaged. */
LATHE_API lathe_status lathe_bundle_verify(const char* path, lathe_bundle_report* out);
/* Does the same, and `lines` (lent as the report's texts) tells the entries as lathe_cache_list
 * does, without the last field. A damaged entry has "?" for kernel and arch. `out` may be NULL. */
LATHE_API lathe_status lathe_bundle_list(const char* path, const char** lines,
                                         lathe_bundle_report* out);

/* ---- files
 * ------------------------------------------------------------------------------------------------
 * A file that appears whole or not at all, as bundles do: written under a random name beside
 * `path`, synced and renamed. Only a regular file is replaced: a symbolic link (which is not
 * followed), a device, a pipe, a folder and a path without a file's name are INVALID_ARGUMENT.
 * CACHE_IO if the disk or the folder refuses, which the text names; what was at `path` is then
 * still there. */

/* Checks that lathe_file_write can work, before time is spent on what is to be written. */
LATHE_API lathe_status lathe_file_check(const char* path);
/* Writes `count` pieces one after another; a piece of 0 bytes may be NULL. */
LATHE_API lathe_status lathe_file_write(const char* path, const void* const* pieces,
                                        const size_t* bytes, size_t count);

#ifdef __cplusplus
}
#endif

#endif /* LATHE_CACHE_H */
