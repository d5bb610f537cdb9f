/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Operators, problems and plans. A part of lathe.h, which states the rules. */
#ifndef LATHE_PLAN_H
#define LATHE_PLAN_H

#ifndef LATHE_H
#error "include lathe.h"
#endif

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
  int wide; /* 1: accessed in pieces of up to 16 bytes, so that lathe_problem_alignment speaks of
               its address and strides; 0: it may begin at any multiple of its element's size */
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
  const char* allowed;  /* "none|silu", "0|1", "-1|>=0", "unset|[-5,0)"; FILE: a file's name;
                           LIST: "16,16,32"; any: any number */
  const char* sentence;
} lathe_operator_option;

typedef struct lathe_operator_info {
  const char* name;
  const char* sentence;
  const lathe_operator_tensor* tensors;
  size_t tensor_count;
  const lathe_operator_option* options;
  size_t option_count;
  int ranks;           /* 1 if it can be split over a group */
  int least_alignment; /* bytes: what lathe_problem_alignment must promise at least; 1: anything */
  const char* reference; /* of a caller's kernel: the file that its description names; NULL: none */
} lathe_operator_info;

/* Counts lathe's own operators. */
LATHE_API size_t lathe_operator_count(void);
/* Returns NULL if there is no such operator. The struct is lent for ever; of an operator that was
 * made of a text it is lent as long as the operator, a problem or a plan of it is there. */
LATHE_API const lathe_operator_info* lathe_operator_at(size_t index);
LATHE_API const lathe_operator_info* lathe_operator_find(const char* name);

/* Makes an operator of a kernel of the caller's own: `bytes` bytes of device text with a
 * description in front, which docs/own_kernels.md explains. Every function that takes an operator's
 * name takes its name as well, as long as `out` or a problem of it is there; everything else is as
 * with lathe's own operators. `file` (may be NULL) is what messages call the text; no file is
 * opened. The operator's name is the description's, or the file's without folder and ending, then @
 * and the first 16 digits of the text's SHA-256. Two texts are two operators, even under one name;
 * one text parsed twice is one operator. Kernels are cached by the bytes of the text, wherever they
 * came from. The text is code: it has the rights of the process that runs it, as a shared library
 * has, and compiling it reads no file. INVALID_ARGUMENT names the line and the column of the
 * description, or the line of the text, the thing found there and what is allowed. What does not
 * compile is refused when a plan is made, with the compiler's words. Thread-safe. */
LATHE_API lathe_status lathe_operator_parse(lathe_operator** out, const char* text, size_t bytes,
                                            const char* file);
/* Returns the operator's tables, lent as lathe_operator_find says; NULL for NULL. */
LATHE_API const lathe_operator_info* lathe_operator_describe(const lathe_operator* op);
/* Problems and plans of the operator stay good. */
LATHE_API void lathe_operator_destroy(lathe_operator* op);

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
 * tensors that are less aligned than its problem declared. With less than 16, kernels make narrower
 * accesses, and those that copy by tensor maps (sm_90a) are not taken. */
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
/* Sets an option that allows FILE to `size` bytes of device text, copied. Messages call the text
 * "<score_mod>". Kernels are cached by the bytes, wherever they came from. The text must compile,
 * have the functions that it must and be pure, which is checked when a plan is made
 * (INVALID_ARGUMENT, with the compiler's words and the text's line numbers). */
LATHE_API lathe_status lathe_problem_set_text(lathe_problem* problem, const char* option,
                                              const char* text, size_t size);

/* The sequence axis is split over `group`, which must outlive the plan. */
#define LATHE_REDUCE_PARAMETER_GRADS 1u /* weight and bias gradients are summed over the ranks */
/* Queries and keys of attention meet in one of these ways. Without one, keys and values travel a
 * ring. */
#define LATHE_ALLGATHER 2u      /* keys and values are gathered on every rank */
#define LATHE_DISPATCH 4u       /* both move to where the planner balances the work */
#define LATHE_EXCHANGE_HEADS 8u /* all-to-all: whole sequences, a share of the heads */
#define LATHE_NARROW_GRADIENTS                                      \
  16u /* gradients of keys travel in the keys' type, not in float32 \
       */
/* Every output and gradient has the same bits for any number of ranks, one included, any layout
 * whose bounds are multiples of 64 tokens of a sequence, and whatever else is in the pack. Other
 * bounds are refused when a shard is prepared. A plan of a group of one rank takes a shard too.
 * Sums over ranks (dweight, dA_log, dsinks) have the same bits with LATHE_REDUCE_PARAMETER_GRADS.
 * It goes with none of the flags above but that one. docs/context_parallel.md says what it costs.
 */
#define LATHE_RANK_INVARIANT 32u
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
/* `index` is as in lathe_operator_info. */
LATHE_API lathe_status lathe_problem_tensor_info(const lathe_problem* problem, size_t index,
                                                 lathe_tensor_info* out);

/* Writes a problem as one line of text: a JSON object,
 *   {"op": "flash_attention", "tensors": {"q": ["bf16", [-1, -1, 32, 128]], ...},
 *    "options": {"causal": 1}, "alignment": 8, "mods": {"score_mod": "..."},
 *    "group": {"world": 4, "flags": ["allgather"]}}
 * and, of an operator that was made of a text, "kernel": the whole text,
 * with what was declared, in the order of the operator's table: each tensor's dtype and extents, -1
 * where they vary; the options that were set; the alignment if it is not 16; the whole texts of
 * options that take a FILE; of a group the number of ranks and the flags (reduce_parameter_grads,
 * allgather, dispatch, exchange_heads, narrow_gradients, rank_invariant). Equal problems have equal
 * lines, in ASCII without a newline; the kernels of a line are those of the problem, on any
 * machine. A manifest is a file of such lines. `mods` was called `snippets` in older lines, which
 * are still read. Copies at most `bytes` with a final NUL; `needed` (may be NULL) gets the size of
 * the whole. INVALID_ARGUMENT if a text is no UTF-8. */
LATHE_API lathe_status lathe_problem_text(const lathe_problem* problem, char* text, size_t bytes,
                                          size_t* needed);
/* Makes the problem of a line of `bytes` bytes. Its text is the line, if the line is canonical:
 * spaces, another order, true for 1 and numbers as texts are read too. INVALID_ARGUMENT, with what
 * was found and what is allowed, for what is no JSON, has over 8 MiB, holds a name twice or an
 * unknown field, or what the function for that part of a problem refuses. No file is opened: a text
 * is in mods, or it is refused.
 * The line gives only the number of ranks of a group: plans can be made, described and warmed, but
 * lathe_plan_run and lathe_shard_prepare refuse them. lathe_problem_group gives the problem a real
 * group. */
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
/* The caller waits until the plan's runs have finished on the device. */
LATHE_API void lathe_plan_destroy(lathe_plan* plan);

/* Gives the index of a declared tensor in the array that lathe_plan_run takes. */
LATHE_API lathe_status lathe_plan_slot(const lathe_plan* plan, const char* name, size_t* out);
LATHE_API size_t lathe_plan_slot_count(const lathe_plan* plan);

/* Gives the device bytes that a run with tensors of these shapes needs; only shapes are read, data
 * may be NULL. With a group, `shard` says how the sequence axis is cut; NULL otherwise. */
LATHE_API lathe_status lathe_plan_workspace(const lathe_plan* plan, const DLTensor* const* slots,
                                            const lathe_shard* shard, size_t* out_bytes);

/* Enqueues the work on `stream` and returns: no allocation, lock, file or wait; may be captured in
 * a CUDA graph. slots[i] may live on the stack. The last dimension of activations is contiguous;
 * their batch, token and head strides are free. `workspace` is 256-byte aligned device memory, not
 * used by anybody else until the run has finished.
 *
 * A tensor that a run writes shares no element with another one of the call: tiles read what
 * their neighbours may already have written; it may be a view of the same buffer that lies between
 * the other's rows. Two tensors that are changed in place may overlap, as the pages of a cache for
 * keys and of one for values do in one buffer: then the call's indices must keep apart what is
 * written.
 *
 * Checked on the host at every call: presence, dtype, rank, extents against each other and the
 * problem, strides (overlap, but for an input's stride of 0 where no kernel copies by tensor maps,
 * overflow, alignment), pointers (device, null unless the tensor is
 * empty, alignment, an output with an element of another tensor), workspace. Not
 * checked: the contents of cu_seqlens, which are on the device; kernels clamp every offset to [0,
 * T], so bad contents give wrong numbers but never an access outside the tensors. INVALID_ARGUMENT,
 * CUDA. */
LATHE_API lathe_status lathe_plan_run(const lathe_plan* plan, const DLTensor* const* slots,
                                      void* workspace, size_t workspace_bytes, void* stream);

/* Does the same on one rank of a group; every rank calls it. Activations hold this rank's tokens of
 * the shard; cu_seqlens and states are those of the whole axis, on every rank: rank r reads and
 * writes the states it owns (initial state n where token cu_seqlens[n] lies, final state n where
 * the last token lies; an empty sequence where min(cu_seqlens[n], T - 1) lies) and leaves the
 * others alone. If the whole axis has no token, every rank owns all states and writes the same
 * values.
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
  const char* family;        /* "portable", or "sm90": for Hopper alone */
  const char* family_reason; /* "not sm90: the elements are float32"; "": no other was considered */
} lathe_kernel_info;
LATHE_API size_t lathe_plan_kernel_count(const lathe_plan* plan);
LATHE_API lathe_status lathe_plan_kernel(const lathe_plan* plan, size_t index,
                                         lathe_kernel_info* out);

typedef enum lathe_text {
  LATHE_TEXT_SOURCE = 0,
  LATHE_TEXT_PTX,
  LATHE_TEXT_KEY,
  /* What ptxas remarked on the kernel's speed, "code<TAB>class<TAB>lines<TAB>sentence" in a line,
   * where the class is loss (wgmma is serialised, setmaxnreg is ignored) or note, and `lines` of
   * the log say so. "?": the kernel was cached by a lathe that kept none. */
  LATHE_TEXT_REMARKS,
  LATHE_TEXT_CUBIN /* the machine code, an ELF file */
} lathe_text;
/* The text is lent as long as the plan; `size` leaves out the final NUL. */
LATHE_API lathe_status lathe_plan_kernel_text(const lathe_plan* plan, size_t index,
                                              lathe_text which, const char** out, size_t* size);

typedef struct lathe_estimate {
  size_t size; /* in: sizeof(lathe_estimate) */
  uint64_t launches;
  uint64_t bytes;         /* what the kernels move */
  uint64_t minimum_bytes; /* every input read once, every output written once */
  uint64_t flops;
  /* A lower bound, not a time: what the rates of the GPU's data sheet allow; 0 if unknown. The
   * simulator's clock tells times: `lathe explain`. */
  double microseconds;
  const char* bound;   /* "memory", "tensor" or "launch" */
  uint64_t tensor_ops; /* of matrix instructions, masked pairs of visited tiles included */
  double memory_microseconds, tensor_microseconds; /* each alone */
  const char* gpu;         /* whose rates, "h200"; lent as long as the context */
  uint64_t exchanges;      /* NCCL groups of this rank; attention over ranks only, else 0 */
  uint64_t exchange_bytes; /* what it sends in them */
} lathe_estimate;
LATHE_API lathe_status lathe_plan_estimate(const lathe_plan* plan, const DLTensor* const* slots,
                                           const lathe_shard* shard, lathe_estimate* out);

#endif /* LATHE_PLAN_H */
