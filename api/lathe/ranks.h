/* SPDX-FileCopyrightText: 2026 The lathe authors */
/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks, and shards: who holds which tokens. A part of lathe.h, which states the rules.
 */
#ifndef LATHE_RANKS_H
#define LATHE_RANKS_H

#ifndef LATHE_H
#error "include lathe.h"
#endif

/* ---- groups and shards
 * --------------------------------------------------------------------------- */

#define LATHE_UNIQUE_ID_BYTES 128
/* One rank makes the id, and the caller carries it to the others by means of its own. */
LATHE_API lathe_status lathe_unique_id(lathe_context* context, char out[LATHE_UNIQUE_ID_BYTES]);
/* Collective: returns when all `world` ranks, 1 to 65536, have called it, or TIMEOUT. With the
 * simulator the ranks are threads of one process. `timeout_ms` 0: 60000. */
LATHE_API lathe_status lathe_group_create(lathe_group** out, lathe_context* context,
                                          const char id[LATHE_UNIQUE_ID_BYTES], int world, int rank,
                                          int timeout_ms);
/* Adopts an ncclComm_t, which stays the caller's and must outlive the group. */
LATHE_API lathe_status lathe_group_adopt(lathe_group** out, lathe_context* context,
                                         void* nccl_comm);
/* Takes rank and world from the environment of a launcher: torchrun (RANK, WORLD_SIZE), Open MPI
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
/* Returns OK, or what went wrong, naming both sides where known: NCCL, or TIMEOUT if an exchange of
 * this rank took longer than the group's timeout on the device. A thread of the library notices
 * that, and ends the communicator (never an adopted one), so that streams go on; replays of CUDA
 * graphs are not looked after. A group that failed answers the same from then on, and so does every
 * run on it; the process can make another. */
LATHE_API lathe_status lathe_group_error(const lathe_group* group);
/* Ends pending communication on this rank; runs in flight finish with wrong numbers. */
LATHE_API lathe_status lathe_group_abort(lathe_group* group);

/* Cuts a sequence axis of bounds[world] tokens: rank r holds [bounds[r], bounds[r + 1]). Parts may
 * be uneven or empty. `bounds` NULL: even parts of `length` tokens, [r * length / world, (r + 1) *
 * length / world). */
LATHE_API lathe_status lathe_shard_create(lathe_shard** out, int world, int rank, int64_t length,
                                          const int64_t* bounds);
LATHE_API void lathe_shard_destroy(lathe_shard* shard);
/* Gives the rank's tokens; the shard must be one of contiguous parts. */
LATHE_API lathe_status lathe_shard_range(const lathe_shard* shard, int64_t* begin, int64_t* end);

/* Chooses the tokens that a rank holds. Where the axis does not divide, chunks have different
 * lengths and may be empty. A causal mask costs the last ranks of contiguous parts the most. */
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
  /* Any table of ranges, in place of bounds: pairs of first and last + 1, those of rank 0 first,
   * and how many pairs each rank has, [world]. A rank's ranges ascend, and its tensors hold them
   * one after another. A token that no range or more than one holds is refused. Keys on an axis of
   * another length have even parts. */
  const int64_t* ranges; /* [sum of range_counts, 2]; NULL: none */
  const size_t* range_counts;
  /* Both or neither: what every rank holds at most. Then lathe_shard_update may give the shard
   * another layout, and one CUDA graph of a run replays for all of them. Every rank's tensors have
   * capacity_tokens rows, of which its tokens are the first ones: the others enter no result, and
   * what a run leaves in them is undefined. A piece is a run of neighbouring tokens of one sequence
   * on one rank; an empty sequence is a piece, too. Between two ranks travels what the most pieces
   * may need. It is for causal_conv1d and kda, of one row, and for flash_attention by a ring or
   * gathered keys without dsinks, over two ranks and more; lathe_shard_prepare refuses others,
   * LATHE_RANK_INVARIANT and chunk_states: UNSUPPORTED. */
  int64_t capacity_tokens; /* 1 to 2^31 - 1; 0: none */
  int64_t capacity_pieces; /* 1 to 1024; 0: none */
} lathe_shard_options;
#define LATHE_SHARD_OPTIONS_INIT                                                                \
  {                                                                                             \
    sizeof(lathe_shard_options), 1, 0, LATHE_BALANCE_NONE, 0, -1, NULL, NULL, 0, 0, NULL, NULL, \
        NULL, 0, 0                                                                              \
  }
/* The call copies what `options` points to. Every rank gives the same options but for `rank`. */
LATHE_API lathe_status lathe_shard_create_with(lathe_shard** out,
                                               const lathe_shard_options* options);
/* Gives the positions that this rank holds, in the order of its tensors: `count` pairs of begin and
 * end. They are lent as long as the shard. */
LATHE_API lathe_status lathe_shard_intervals(const lathe_shard* shard, lathe_axis axis,
                                             const int64_t** begin_end, size_t* count);
/* Gives the same positions, token by token: what the operators shard and unshard take, once it is
 * on the device. `count`: how many `out` has room for, at least as many as this rank holds. */
LATHE_API lathe_status lathe_shard_indices(const lathe_shard* shard, lathe_axis axis, int32_t* out,
                                           size_t count);
/* Makes the tables and schedules that runs of `plan` on this shard need: once, before the first
 * lathe_plan_workspace or run, by every rank; it may allocate and wait. The ranks compare what they
 * are about to run: INVALID_ARGUMENT on all of them, with what differs on which rank, if it is not
 * the same. causal_conv1d runs without, unchecked, over
 * contiguous parts.
 * The shard must be destroyed before the plan's context, and after its runs have finished. */
LATHE_API lathe_status lathe_shard_prepare(lathe_shard* shard, const lathe_plan* plan);
/* Gives a shard with a capacity another layout: other lengths, ranges, bounds or balance. World,
 * rank, capacities and the number of sequences stay, as graphs have them; a layout with fewer
 * sequences has empty ones behind. What the shard's plans need of it is copied in the order of
 * `stream`: runs and replays that are on it so far have the old layout, later ones the new one. A
 * run on another stream must wait for this one. The ranks compare the layouts, so every rank calls,
 * and the call waits for the work on `stream`; it allocates on the host, and is refused in a
 * capture. After an error the shard has its old layout. INVALID_ARGUMENT, with the rank that holds
 * too much, what it holds and what is allowed, or what differs on which rank; NCCL, TIMEOUT. */
LATHE_API lathe_status lathe_shard_update(lathe_shard* shard, const lathe_shard_options* options,
                                          void* stream);

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
/* `cu_seqlens` [count] lies on the host and covers the whole axis. The view is lent until the next
 * call or _destroy. */
LATHE_API lathe_status lathe_shard_view_of(lathe_shard* shard, const int64_t* cu_seqlens,
                                           size_t count, lathe_shard_view* out);

/* Calls the pure functions behind context parallelism, for callers that place their own data: cuts,
 * rings, gathers, halos, and shards that are computed elsewhere than they live. `input` is the JSON
 * text {"cases": [{...}]}, `*out` {"cases": [{...}]} with the results in the same order, or
 * {"error": "..."} for a case that must be refused. Kinds: cp_context, cp_context_ragged,
 * balancers, ring_schedule, range_rule (pair_rule is its older name), gather_slices, conv_halo,
 * merge, pieces, dispatch_query, dispatch_kv, planner. INVALID_ARGUMENT for another kind or for
 * text that is no list of cases.
 * `*out` is lent until the calling thread's next call. */
LATHE_API lathe_status lathe_shard_plan(const char* kind, const char* input, const char** out);

#endif /* LATHE_RANKS_H */
