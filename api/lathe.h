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

typedef enum lathe_dtype { LATHE_F32 = 0, LATHE_F16, LATHE_BF16, LATHE_I32, LATHE_I64 } lathe_dtype;

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

/* "INVALID_ARGUMENT" and so on. Never NULL. */
LATHE_API const char* lathe_status_name(lathe_status status);

/* The text of the calling thread's last failure; empty if there was none. Stays good until the
 * thread's next failing call. */
LATHE_API const char* lathe_last_error(void);

/* "0.1.0" of the library that is loaded. */
LATHE_API const char* lathe_version(void);

/* Level 1 warnings, 2 what was compiled or found, 3 more. `sink` may be called from any thread;
 * NULL drops everything, which is the default. */
typedef void (*lathe_log_sink)(void* user, int level, const char* text);
LATHE_API void lathe_set_log(lathe_log_sink sink, void* user);

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
} lathe_context_options;
#define LATHE_CONTEXT_OPTIONS_INIT \
  { sizeof(lathe_context_options), LATHE_DEVICE_DEFAULT, 0, NULL, NULL }

/* One device, one cache. `options` NULL: all defaults.
 * INVALID_ARGUMENT (unknown arch or kind), NO_DEVICE, CUDA. An unusable cache directory is a
 * warning. */
LATHE_API lathe_status lathe_context_create(lathe_context** out,
                                            const lathe_context_options* options);
/* After all plans, groups and memory of the context. */
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

/* What the machine offers, for `lathe doctor`: one line per item, "name<TAB>found|missing<TAB>where
 * and version<TAB>remedy". Needs no context. Copies at most `bytes` with a final NUL; `needed` (may
 * be NULL) gets the size of the whole. */
LATHE_API lathe_status lathe_doctor(char* text, size_t bytes, size_t* needed);

/* ---- device memory and streams: helpers for callers without a framework -------------------------
 */

LATHE_API lathe_status lathe_malloc(lathe_context* context, void** out, size_t bytes);
LATHE_API lathe_status lathe_free(lathe_context* context, void* pointer);
/* Ordered on `stream`; the host buffer may be reused when the call returns. */
LATHE_API lathe_status lathe_copy_to_device(lathe_context* context, void* to, const void* from,
                                            size_t bytes, void* stream);
/* Returns when the bytes have arrived. */
LATHE_API lathe_status lathe_copy_to_host(lathe_context* context, void* to, const void* from,
                                          size_t bytes, void* stream);
LATHE_API lathe_status lathe_stream_create(lathe_context* context, void** out);
LATHE_API lathe_status lathe_stream_destroy(lathe_context* context, void* stream);
LATHE_API lathe_status lathe_stream_synchronize(lathe_context* context, void* stream);

/* ---- the operator table ------------------------------------------------------------------------
 */

typedef enum lathe_role { LATHE_INPUT = 0, LATHE_OUTPUT, LATHE_INOUT } lathe_role;

typedef struct lathe_operator_tensor {
  const char* name;
  /* "B,T,D": dims of operators.md; "B,H,Sq|H,Tq": the rank tells which; "N,HV,K,V|N,HV,V,K": the
   * second with the option state_v_first; with the option axis, of several that one. */
  const char* shape;
  lathe_role role;
  int optional;
  const char* dtypes;   /* "f32|f16|bf16", or "=x": that of tensor x */
  const char* alias_of; /* "dy": always equal to that tensor, so it is no slot; NULL otherwise */
  const char* sentence;
  const char* given_if;   /* "saved_forward": an input where that option is 1; NULL otherwise */
  const char* changed_by; /* "k_new": in and out, but only read unless that tensor is given */
} lathe_operator_tensor;

typedef enum lathe_option_type {
  LATHE_OPTION_INT = 0,
  LATHE_OPTION_DOUBLE,
  LATHE_OPTION_STRING
} lathe_option_type;

typedef struct lathe_operator_option {
  const char* name;
  lathe_option_type type;
  const char* fallback; /* the default as text */
  const char* allowed;  /* "none|silu", "0|1", "-1|>=0", "unset|[-5,0)"; FILE: a file's name; any:
                           any number */
  const char* sentence;
} lathe_operator_option;

typedef struct lathe_operator_info {
  const char* name;
  const char* sentence;
  const lathe_operator_tensor* tensors;
  size_t tensor_count;
  const lathe_operator_option* options;
  size_t option_count;
  int ranks; /* 1 if it can be split over a group */
} lathe_operator_info;

LATHE_API size_t lathe_operator_count(void);
/* NULL if there is no such operator. Lent for ever. */
LATHE_API const lathe_operator_info* lathe_operator_at(size_t index);
LATHE_API const lathe_operator_info* lathe_operator_find(const char* name);

/* ---- problems ----------------------------------------------------------------------------------
 */

/* A problem says which tensors there are and of what kind; what is declared among the outputs is
 * what a plan computes. INVALID_ARGUMENT names the operators there are. */
LATHE_API lathe_status lathe_problem_create(lathe_problem** out, const char* op);
LATHE_API void lathe_problem_destroy(lathe_problem* problem);

/* `shape` [rank]; -1: varies from run to run. Extents that change the code (W) must be given;
 * others (D) are taken as a promise that picks the widest memory accesses. */
LATHE_API lathe_status lathe_problem_tensor(lathe_problem* problem, const char* name,
                                            lathe_dtype dtype, int rank, const int64_t* shape);
/* Every activation pointer and every stride of the runs is a multiple of `bytes` (1 to 16, a power
 * of two). Default 16: what allocators give, with contiguous rows of the declared D. A plan refuses
 * tensors that are less aligned than its problem declared. */
LATHE_API lathe_status lathe_problem_alignment(lathe_problem* problem, int bytes);

LATHE_API lathe_status lathe_problem_set_int(lathe_problem* problem, const char* option,
                                             int64_t value);
LATHE_API lathe_status lathe_problem_set_double(lathe_problem* problem, const char* option,
                                                double value);
/* Any option can be given as text: "1", "silu". An option that allows FILE is a path; the file is
 * read here, once, and what it holds later changes nothing. INVALID_ARGUMENT names it if it is
 * missing, empty or over 256 KiB. */
LATHE_API lathe_status lathe_problem_set_string(lathe_problem* problem, const char* option,
                                                const char* value);
/* What an option that allows FILE would be read from: `size` bytes of device text, copied. Messages
 * call it "<score_mod>". Kernels are cached by the bytes, wherever they came from. Whether the text
 * compiles, has the functions that it must and is pure is seen when a plan is made
 * (INVALID_ARGUMENT, with the compiler's words and the text's line numbers). */
LATHE_API lathe_status lathe_problem_set_text(lathe_problem* problem, const char* option,
                                              const char* text, size_t size);

/* The sequence axis is split over `group`, which must outlive the plan. */
#define LATHE_REDUCE_PARAMETER_GRADS 1u /* weight and bias gradients are summed over the ranks */
/* How queries and keys of attention meet. Without one of these keys and values travel a ring. */
#define LATHE_ALLGATHER 2u      /* keys and values are gathered on every rank */
#define LATHE_DISPATCH 4u       /* both move to where the planner balances the work */
#define LATHE_EXCHANGE_HEADS 8u /* all-to-all: whole sequences, a share of the heads */
#define LATHE_NARROW_GRADIENTS                                      \
  16u /* gradients of keys travel in the keys' type, not in float32 \
       */
LATHE_API lathe_status lathe_problem_group(lathe_problem* problem, lathe_group* group,
                                           unsigned flags);

/* Declares the outputs that follow from the inputs that are declared and the options that are set:
 * results, as options output_NAME say, and with the gradient of the first result the gradients of
 * the inputs that are there. If outputs are declared already, they are what is wanted, and none is
 * added. Set options and declare inputs before.
 * `values`: NULL, or one pointer for each tensor of the operator, in the order of
 * lathe_operator_info: host tensors, contiguous, of the declared shape and dtype; NULL where values
 * are not at hand. Values that a kernel trusts (offsets, slots, pages, attention ranges) are then
 * checked, and extents that follow from them are exact.
 * INVALID_ARGUMENT names the tensor, what was found and what is allowed. */
LATHE_API lathe_status lathe_problem_infer(lathe_problem* problem, const DLTensor* const* values);
/* Leaves every extent open that may vary without a new kernel: tokens, batch, sequences, pages. */
LATHE_API lathe_status lathe_problem_open(lathe_problem* problem);

#define LATHE_MAX_RANK 5
typedef enum lathe_axis { LATHE_QUERIES = 0, LATHE_KEYS } lathe_axis;

/* A tensor of a problem. */
typedef struct lathe_tensor_info {
  size_t size; /* set it to the sizeof of the struct */
  const char* name;
  int declared; /* what follows means something only if it is; all of it is lent by the problem */
  int read;     /* a run reads it */
  int written;  /* a run writes it */
  const char* alias_of; /* not declared, but wanted: always equal to that tensor; else NULL */
  lathe_dtype dtype;
  int rank;
  int64_t shape[LATHE_MAX_RANK];    /* -1: varies */
  const char* dims[LATHE_MAX_RANK]; /* "T", "N"; "" for a number that is always the same */
  int added[LATHE_MAX_RANK];        /* "N+1": 1 */
  int varies[LATHE_MAX_RANK];       /* 1: the extent may differ from run to run */
  int token_dim;                    /* the dimension that is cut over ranks; -1: none */
  lathe_axis token_axis;            /* whose tokens these are */
  int counts_chunks;                /* the dimension counts chunks of tokens, not tokens */
} lathe_tensor_info;
/* `index` as in lathe_operator_info. */
LATHE_API lathe_status lathe_problem_tensor_info(const lathe_problem* problem, size_t index,
                                                 lathe_tensor_info* out);

/* A problem as one line of text: a JSON object,
 *   {"op": "flash_attention", "tensors": {"q": ["bf16", [-1, -1, 32, 128]], ...},
 *    "options": {"causal": 1}, "alignment": 8, "mods": {"score_mod": "..."},
 *    "group": {"world": 4, "flags": ["allgather"]}}
 * with what was declared, in the order of the operator's table: each tensor's dtype and extents, -1
 * where they vary; the options that were set; the alignment if it is not 16; the whole texts of
 * options that take a FILE; of a group the number of ranks and the flags (reduce_parameter_grads,
 * allgather, dispatch, exchange_heads, narrow_gradients). Equal problems have equal lines, in ASCII
 * without a newline; the kernels of a line are those of the problem, on any machine. A manifest is
 * a file of such lines.
 * Copies at most `bytes` with a final NUL; `needed` (may be NULL) gets the size of the whole.
 * INVALID_ARGUMENT if a text is no UTF-8. */
LATHE_API lathe_status lathe_problem_text(const lathe_problem* problem, char* text, size_t bytes,
                                          size_t* needed);
/* The problem of a line of `bytes` bytes. Its text is the line, if the line is canonical: spaces,
 * another order, true for 1 and numbers as texts are read too. INVALID_ARGUMENT, with what was
 * found and what is allowed, for what is no JSON, has over 8 MiB, holds a name twice or an unknown
 * field, or what the function for that part of a problem refuses. No file is opened: a text is in
 * mods, or it is refused.
 * Of a group only the number of ranks is known: plans can be made, described and warmed, but
 * lathe_plan_run and lathe_shard_prepare refuse them. lathe_problem_group gives it a real one. */
LATHE_API lathe_status lathe_problem_parse(lathe_problem** out, const char* line, size_t bytes);

/* ---- plans --------------------------------------------------------------------------------------
 */

/* Validates, chooses, compiles or loads; kernels that must be compiled side by side, by threads of
 * the library that end before it returns, as many as there are cores and memory (250 MB each) for.
 * With LATHE_RECORD=FILE the problem's line is appended to that file, once in a process.
 * NOT_CACHED has the problem's line in its text, on a line of its own. May take as long as a
 * compile; a plan for a problem whose kernels are cached takes about a millisecond. With the option
 * head_ranks the group is split, and every rank calls this. INVALID_ARGUMENT, UNSUPPORTED,
 * COMPILE_FAILED, NOT_CACHED, CUDA, NCCL, TIMEOUT. The problem may be destroyed afterwards. */
LATHE_API lathe_status lathe_plan_create(lathe_plan** out, lathe_context* context,
                                         const lathe_problem* problem);
/* After its runs have finished on the device. */
LATHE_API void lathe_plan_destroy(lathe_plan* plan);

/* The index of a declared tensor in the array that lathe_plan_run takes. */
LATHE_API lathe_status lathe_plan_slot(const lathe_plan* plan, const char* name, size_t* out);
LATHE_API size_t lathe_plan_slot_count(const lathe_plan* plan);

/* Device bytes a run with tensors of these shapes needs; only shapes are read, data may be NULL.
 * With a group, `shard` says how the sequence axis is cut; NULL otherwise. */
LATHE_API lathe_status lathe_plan_workspace(const lathe_plan* plan, const DLTensor* const* slots,
                                            const lathe_shard* shard, size_t* out_bytes);

/* Enqueues the work on `stream` and returns: no allocation, lock, file or wait; may be captured in
 * a CUDA graph. slots[i] may live on the stack. The last dimension of activations is contiguous;
 * their batch, token and head strides are free. `workspace` is 256-byte aligned device memory, not
 * used by anybody else until the run has finished.
 *
 * Outputs need memory of their own: tiles read what their neighbours may already have written. Only
 * `state` of the update is input and output at once.
 *
 * Checked on the host at every call: presence, dtype, rank, extents against each other and the
 * problem, strides (overlap, overflow, alignment), pointers (device, null unless the tensor is
 * empty, alignment, an output that begins where another tensor does), workspace. Not
 * checked: the contents of cu_seqlens, which are on the device; kernels clamp every offset to [0,
 * T], so bad contents give wrong numbers but never an access outside the tensors. INVALID_ARGUMENT,
 * CUDA. */
LATHE_API lathe_status lathe_plan_run(const lathe_plan* plan, const DLTensor* const* slots,
                                      void* workspace, size_t workspace_bytes, void* stream);

/* The same on one rank of a group; every rank calls it. Activations hold this rank's tokens of the
 * shard; cu_seqlens and states are those of the whole axis, on every rank: rank r reads and writes
 * the states it owns (initial state n where token cu_seqlens[n] lies, final state n where the last
 * token lies; an empty sequence where min(cu_seqlens[n], T - 1) lies) and leaves the others alone.
 * If the whole axis has no token, every rank owns all states and writes the same values.
 * Ranks that share a device need a stream each, not the legacy default one: on a common stream one
 * waits for itself.
 * A CUDA graph may capture it, after one run outside, in which NCCL connects the ranks. Replays are
 * exchanges as runs are: every rank replays, or runs, as often as the others.
 * INVALID_ARGUMENT, CUDA, NCCL. */
LATHE_API lathe_status lathe_plan_run_sharded(const lathe_plan* plan, const lathe_shard* shard,
                                              const DLTensor* const* slots, void* workspace,
                                              size_t workspace_bytes, void* stream);

typedef struct lathe_kernel_info {
  size_t size;      /* in: sizeof(lathe_kernel_info) */
  const char* name; /* "causal_conv1d_bwd" */
  const char* spec; /* canonical text: template and constants */
  const char* key;  /* hexadecimal cache key */
  const char* from; /* "compiler", "disk", "memory" */
  int threads, registers, smem_bytes, spill_bytes, stack_bytes; /* -1: unknown */
  double compile_ms;
} lathe_kernel_info;
LATHE_API size_t lathe_plan_kernel_count(const lathe_plan* plan);
LATHE_API lathe_status lathe_plan_kernel(const lathe_plan* plan, size_t index,
                                         lathe_kernel_info* out);

typedef enum lathe_text { LATHE_TEXT_SOURCE = 0, LATHE_TEXT_PTX, LATHE_TEXT_KEY } lathe_text;
/* Lent as long as the plan; `size` without the final NUL. */
LATHE_API lathe_status lathe_plan_kernel_text(const lathe_plan* plan, size_t index,
                                              lathe_text which, const char** out, size_t* size);

typedef struct lathe_estimate {
  size_t size; /* in: sizeof(lathe_estimate) */
  uint64_t launches;
  uint64_t bytes;         /* what the kernels move */
  uint64_t minimum_bytes; /* every input read once, every output written once */
  uint64_t flops;
  double microseconds; /* a prediction: what the device's published rates allow; 0 if unknown */
  const char* bound;   /* "memory", "tensor", "chain" (thread blocks one after another), "launch" */
  uint64_t tensor_ops; /* of matrix instructions, masked pairs of visited tiles included */
  double memory_microseconds, tensor_microseconds; /* each alone */
  const char* gpu;           /* whose rates, "h200"; lent as long as the context */
  double chain_microseconds; /* thread blocks one after another, alone; 0: not known */
  uint64_t exchanges;        /* NCCL groups of this rank; attention over ranks only, else 0 */
  uint64_t exchange_bytes;   /* what it sends in them */
} lathe_estimate;
LATHE_API lathe_status lathe_plan_estimate(const lathe_plan* plan, const DLTensor* const* slots,
                                           const lathe_shard* shard, lathe_estimate* out);

/* ---- groups and shards
 * --------------------------------------------------------------------------- */

#define LATHE_UNIQUE_ID_BYTES 128
/* Made by one rank and carried to the others by the caller's own means. */
LATHE_API lathe_status lathe_unique_id(lathe_context* context, char out[LATHE_UNIQUE_ID_BYTES]);
/* Collective: returns when all `world` ranks, 1 to 65536, have called it, or TIMEOUT. With the
 * simulator the ranks are threads of one process. `timeout_ms` 0: 60000. */
LATHE_API lathe_status lathe_group_create(lathe_group** out, lathe_context* context,
                                          const char id[LATHE_UNIQUE_ID_BYTES], int world, int rank,
                                          int timeout_ms);
/* Adopts an ncclComm_t, which stays the caller's and must outlive the group. */
LATHE_API lathe_status lathe_group_adopt(lathe_group** out, lathe_context* context,
                                         void* nccl_comm);
/* Rank and world from the environment of a launcher: torchrun (RANK, WORLD_SIZE), Open MPI
 * (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE), PMI, as of MPICH and Intel (PMI_RANK, PMI_SIZE), or
 * Slurm (SLURM_PROCID, SLURM_NTASKS); sets that contradict each other are refused. Ranks meet at
 * MASTER_ADDR, on the port after MASTER_PORT (29500); where that is not set, in the folder that
 * LATHE_RENDEZVOUS_DIR names and all of them see; with NCCL_COMM_ID=host:port NCCL brings them
 * together. At MASTER_ADDR ranks prove to each other that they know LATHE_RENDEZVOUS_SECRET; if it
 * is not set, rank 0 believes whoever connects, and the network must be trusted. The folder's files
 * are believed if they belong to this user. After TIMEOUT the call may be repeated.
 * INVALID_ARGUMENT, TIMEOUT with the ranks that did not come, NCCL. */
LATHE_API lathe_status lathe_group_from_env(lathe_group** out, lathe_context* context,
                                            int timeout_ms);
/* Collective over the ranks of `group`: those that give the same `color` become a group, ordered by
 * `key` and then by their rank in `group`. A negative color takes no part: *out becomes NULL. Two
 * levels, as heads within a node and a ring between nodes, are two splits. The new group is one of
 * its own, with the timeout of `group`, which may go first. INVALID_ARGUMENT, NCCL, TIMEOUT. */
LATHE_API lathe_status lathe_group_split(lathe_group** out, lathe_group* group, int color, int key);
LATHE_API void lathe_group_destroy(lathe_group* group);
LATHE_API int lathe_group_rank(const lathe_group* group);
LATHE_API int lathe_group_world(const lathe_group* group);
/* OK, or what went wrong, naming both sides where known: NCCL, or TIMEOUT if an exchange of this
 * rank took longer than the group's timeout on the device. That is noticed by a thread of the
 * library, which then ends the communicator (never an adopted one), so that streams go on; replays
 * of CUDA graphs are not looked after. A group that failed answers the same from then on, and so
 * does every run on it; the process can make another. */
LATHE_API lathe_status lathe_group_error(const lathe_group* group);
/* Ends pending communication on this rank; runs in flight finish with wrong numbers. */
LATHE_API lathe_status lathe_group_abort(lathe_group* group);

/* How a sequence axis of bounds[world] tokens is cut: rank r holds [bounds[r], bounds[r + 1]).
 * Parts may be uneven or empty. `bounds` NULL: even parts of `length` tokens, [r * length / world,
 * (r + 1) * length / world). */
LATHE_API lathe_status lathe_shard_create(lathe_shard** out, int world, int rank, int64_t length,
                                          const int64_t* bounds);
LATHE_API void lathe_shard_destroy(lathe_shard* shard);
/* Of a shard of contiguous parts. */
LATHE_API lathe_status lathe_shard_range(const lathe_shard* shard, int64_t* begin, int64_t* end);

/* Which tokens a rank holds; chunks of different lengths, empty ones too, where it does not divide.
 * A causal mask costs the last ranks of contiguous parts the most. */
typedef enum lathe_balance {
  LATHE_BALANCE_NONE = 0,     /* chunk r of `world` */
  LATHE_BALANCE_HEAD_TAIL,    /* chunks r and 2 * world - 1 - r of 2 * world */
  LATHE_BALANCE_PER_DOCUMENT, /* the same in each sequence */
  LATHE_BALANCE_PTRR          /* blocks of block_size tokens by their visible keys, round robin */
} lathe_balance;

/* Set `size`, or use LATHE_SHARD_OPTIONS_INIT. All lengths are those of the whole axes, on the
 * host: from them follows what each rank sends and computes, so nothing waits for the device. */
typedef struct lathe_shard_options {
  size_t size;
  int world, rank;
  lathe_balance balance;
  int64_t length;              /* of the axis that is split: T, Sq, Tq */
  int64_t key_length;          /* of Sk, Tk; -1: as `length` */
  const int64_t* cu_seqlens;   /* [offsets]; NULL: each row of the batch is one sequence */
  const int64_t* cu_seqlens_k; /* [offsets]; NULL: as cu_seqlens */
  size_t offsets;              /* sequences + 1 */
  int64_t block_size;          /* of LATHE_BALANCE_PTRR; 0: 128 */
  const int64_t* bounds;       /* [world + 1], of LATHE_BALANCE_NONE; NULL: even parts */
} lathe_shard_options;
#define LATHE_SHARD_OPTIONS_INIT \
  { sizeof(lathe_shard_options), 1, 0, LATHE_BALANCE_NONE, 0, -1, NULL, NULL, 0, 0, NULL }
/* What `options` points to is copied. Every rank gives the same but for `rank`. */
LATHE_API lathe_status lathe_shard_create_with(lathe_shard** out,
                                               const lathe_shard_options* options);
/* The positions that this rank holds, in the order of its tensors: `count` pairs of begin and end.
 * Lent as long as the shard. */
LATHE_API lathe_status lathe_shard_intervals(const lathe_shard* shard, lathe_axis axis,
                                             const int64_t** begin_end, size_t* count);
/* The same, token by token: what the operators shard and unshard take, once it is on the device.
 * `count`: how many `out` has room for, at least as many as this rank holds. */
LATHE_API lathe_status lathe_shard_indices(const lathe_shard* shard, lathe_axis axis, int32_t* out,
                                           size_t count);
/* Makes the tables and schedules that runs of `plan` on this shard need: once, before the first
 * lathe_plan_workspace or run, by every rank; it may allocate and wait. The ranks compare what they
 * are about to run: INVALID_ARGUMENT on all of them, with what differs on which rank, if it is not
 * the same. causal_conv1d runs without, unchecked.
 * The shard must be destroyed before the plan's context, and after its runs have finished. */
LATHE_API lathe_status lathe_shard_prepare(lathe_shard* shard, const lathe_plan* plan);

/* The rank-local view of packed sequences, for callers that run other kernels on the same cut. */
typedef struct lathe_shard_view {
  size_t size;               /* in: sizeof(lathe_shard_view) */
  const int64_t* cu_seqlens; /* relative to the part: sequences + 1 offsets */
  const int* sequence_ids;   /* global number of each local sequence */
  size_t sequences;
  int pre, post; /* ranks before (after) that hold the first (last) local sequence */
  int is_first, is_last;
  int64_t pre_tokens; /* tokens of the first local sequence on earlier ranks */
} lathe_shard_view;
/* `cu_seqlens` [count] on the host, over the whole axis. Lent until the next call or _destroy. */
LATHE_API lathe_status lathe_shard_view_of(lathe_shard* shard, const int64_t* cu_seqlens,
                                           size_t count, lathe_shard_view* out);

/* The pure functions behind context parallelism, for callers that place their own data: cuts,
 * rings, gathers, halos, and shards that are computed elsewhere than they live. `input` is the
 * JSON text {"cases": [{...}]}, `*out` {"cases": [{...}]} with the results in the same order, or
 * {"error": "..."} for a case that must be refused. Kinds: cp_context, cp_context_ragged,
 * balancers, ring_schedule, range_rule, gather_slices, conv_halo, merge, dispatch_query,
 * dispatch_kv, planner. INVALID_ARGUMENT for another kind or for text that is no list of cases.
 * `*out` is lent until the calling thread's next call. */
LATHE_API lathe_status lathe_shard_plan(const char* kind, const char* input, const char** out);

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
/* Chooses the kernels of `problem` in `context`; compiles nothing. What fails is an item too, the
 * next one, with the status that is returned. */
LATHE_API lathe_status lathe_warming_add(lathe_warming* warming, lathe_context* context,
                                         const lathe_problem* problem);
/* After each kernel, and once before the first; one call at a time, from any thread. `compiled` of
 * those that are `done`. Other than 0: no further kernel is begun. */
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
/* In the order of lathe_warming_add. Lent strings stay good until the next call of _run, or
 * _destroy. */
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
/* 0 if the context is NULL. */
LATHE_API size_t lathe_cache_tier_count(const lathe_context* context);
/* Lent strings stay good as long as the context. INVALID_ARGUMENT beyond the last. */
LATHE_API lathe_status lathe_cache_tier(lathe_context* context, size_t index, lathe_tier_info* out);

/* What is in all tiers, a line each: "key<TAB>kernel<TAB>arch<TAB>bytes<TAB>spec<TAB>path of the
 * tier". A key that several tiers hold is told for the first; damaged entries are not told. `lines`
 * is lent until the calling thread's next call that lists or reports. */
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
/* The union of `count` bundles into a new one, which may be one of them. INVALID_ARGUMENT if two
 * hold other code under one key, which it names. `out` may be NULL. */
LATHE_API lathe_status lathe_bundle_merge(const char* path, const char* const* from, size_t count,
                                          lathe_bundle_report* out);
/* Reads every entry. LATHE_OK with out->bad > 0 if some are damaged. */
LATHE_API lathe_status lathe_bundle_verify(const char* path, lathe_bundle_report* out);
/* The same, and `lines` (lent as the report's texts) tells the entries as lathe_cache_list does,
 * without the last field. Of a damaged one kernel and arch are "?". `out` may be NULL. */
LATHE_API lathe_status lathe_bundle_list(const char* path, const char** lines,
                                         lathe_bundle_report* out);

/* ---- files
 * ------------------------------------------------------------------------------------------------
 * A file that appears whole or not at all, as bundles do: written under a random name beside
 * `path`, synced and renamed. Only a regular file is replaced: a symbolic link (which is not
 * followed), a device, a pipe, a folder and a path without a file's name are INVALID_ARGUMENT.
 * CACHE_IO if the disk or the folder refuses, which the text names; what was at `path` is then
 * still there. */

/* Whether lathe_file_write can work, before time is spent on what is to be written. */
LATHE_API lathe_status lathe_file_check(const char* path);
/* Writes `count` pieces one after another; a piece of 0 bytes may be NULL. */
LATHE_API lathe_status lathe_file_write(const char* path, const void* const* pieces,
                                        const size_t* bytes, size_t count);

/* ---- tuned choices
 * -------------------------------------------------------------------------------------- */

/* Which tile a kernel has is chosen by rules, unless it was measured on the GPU at hand: then by
 * the database <cache>/v1/tuned/<gpu>.txt, which is read when a context is created. A choice is a
 * few constants of a kernel, whose key does not know that it was tuned. */

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
  int by_model;          /* times are the simulator's model's, not measured */
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
 * On the simulator LATHE_SIM_TIMELINE must be set (/dev/null will do): times are its model's.
 * With a group every rank calls it, with the same options, in place of a run; ranks agree on each
 * choice by the slowest of them.
 * `options` NULL: all defaults. The report's texts are lent until the calling thread's next call.
 * Plans made before keep their kernels; those that the context makes later have what was stored.
 * INVALID_ARGUMENT, NO_DEVICE, CUDA, TIMEOUT, NCCL, CACHE_IO if it cannot be stored; if the rules'
 * own choice fails, what it failed with, or INTERNAL where that was on another rank. */
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

/* What the context knows, a record a line: "MARK<TAB>SOURCE<TAB>RECORD". MARK is "holds"; "stale"
 * for one that holds and was found with other sources or another version of the library; "hidden"
 * where another of the class decides; "other" for one of another GPU, architecture or number of
 * multiprocessors. Lent until the context's next call of it. `out` may be NULL. */
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

#ifdef __cplusplus
}
#endif

#endif /* LATHE_H */
