// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The host hands these parameters to the causal_conv1d kernels: one plain struct per kernel, read
// by the host compiler and by NVRTC. Widest fields first, no holes; each emitted unit asserts the
// size and the offset of the last field.
//
// Positions are global. A sequence axis of `length` tokens (packed, or one row of a batch) may be
// cut over ranks; a kernel works on the tokens [begin, end) and its activation pointers address
// token `begin`. On one rank begin = 0 and end = length.
//
// Sequences: packed input has batch = 1 and cu_seqlens [N + 1] over the whole axis; otherwise row b
// of the batch is sequence b and N = batch. States are [N, D, W] with all sequences on every rank;
// a rank reads and writes only the rows it owns: initial_state n where position cu[n] lies,
// final_state n where position cu[n + 1] - 1 lies, an empty sequence where min(cu[n], length - 1)
// lies (the rank with begin = 0 if length is 0).
//
// The halo is the history [begin - (W - 1), begin) of a sequence that began on an earlier rank.
#pragma once

namespace lathe {

struct ConvForwardParams {
  const void* x;                             // [B, end - begin, D]
  const void* weight;                        // [D, W]
  const void* bias;                          // [D]
  const void* residual;                      // [B, end - begin, D]
  const void* initial_state;                 // [N, D, W]
  const void* halo;                          // [W - 1, B, D], oldest position first
  const void* cu_seqlens;                    // [N + 1]
  void* y;                                   // [B, end - begin, D]
  void* final_state;                         // [N, D, W]
  long long x_batch_stride, x_token_stride;  // in elements; channels are contiguous
  long long residual_batch_stride, residual_token_stride;
  long long y_batch_stride, y_token_stride;
  int batch, channels, sequences;
  int length, begin, end;
  int first_tile;  // token tiles [first_tile, first_tile + tiles) of [begin, end) are computed
  int tiles;
  int state_tiles;  // trailing blocks of the grid that write final_state; 0: none in this launch
  int run;          // tokens of a warp: a multiple of 4, at most kTokens and at least W - 1
};

struct ConvBackwardParams {
  const void* x;              // [B, end - begin, D]
  const void* weight;         // [D, W]
  const void* bias;           // [D]
  const void* dy;             // [B, end - begin, D]
  const void* initial_state;  // [N, D, W]
  const void* dfinal_state;   // [N, D, W]
  const void* halo;           // [W - 1, B, D]
  const void* cu_seqlens;     // [N + 1]
  void* dx;                   // [B, end - begin, D]
  void* partials;             // float32 [all tiles, W + 1, D]: dweight by tap, then dbias
  void* dinitial_state;       // [N, D, W]
  void* dhalo;                // float32 [W - 1, B, D]: gradient of the halo's rows
  long long x_batch_stride, x_token_stride;
  long long dy_batch_stride, dy_token_stride;
  long long dx_batch_stride, dx_token_stride;
  int batch, channels, sequences;
  int length, begin, end;
  int first_tile, tiles;  // as in the forward
  int all_tiles;          // token tiles of [begin, end): rows of `partials` per batch row; with
                          // kPieces the sequences
  int state_tiles;        // trailing blocks that write dinitial_state and dhalo
  int run;                // as in the forward
  int reserved;
};

// Sums the partials in tile order: dweight[d, i] = sum over tiles of partials[tile, i, d]. Compiled
// with by_tap (ranks add the result) the output stays float32, dweight as [W, D] and dbias as [D]:
// with dbias right behind dweight it is one partial, fit for the same kernel with tiles = 1.
struct ConvWeightGradParams {
  const void* partials;  // float32 [tiles, W + 1, D]
  void* dweight;         // [D, W]
  void* dbias;           // [D], or null
  int tiles, channels;
};

struct ConvUpdateParams {
  const void* x;                                                // [B, D]
  const void* weight;                                           // [D, W]
  const void* bias;                                             // [D]
  const void* residual;                                         // [B, D]
  void* state;                                                  // [B, D, W], rolled by one in place
  void* y;                                                      // [B, D]
  long long x_stride, residual_stride, y_stride, state_stride;  // of the batch, in elements
  int batch, channels;
};

// Tokens of sequences over slots of a pool. Row r of x is r * x_row_stride further on, or with T
// tokens of each sequence n * x_batch_stride + t * x_row_stride.
struct ConvUpdateSlotsParams {
  const void* x;                    // [B, D], [B, T, D], or packed [rows, D]
  const void* weight;               // [D, W]
  const void* bias;                 // [D]
  const void* residual;             // as x
  const void* cu_seqlens;           // [N + 1]; null: all sequences have `tokens`
  const void* state_indices;        // [N]; null: n
  const void* source_indices;       // [N]; null: the slots that are written
  const void* cache_seqlens;        // int32 [N]; null: the newest input is at the right end
  const void* num_accepted_tokens;  // int32 [N], or null
  void* state;                      // [S, D, L]
  void* y;                          // as x
  long long x_batch_stride, x_row_stride, residual_batch_stride, residual_row_stride;
  long long y_batch_stride, y_row_stride, state_slot_stride, state_channel_stride;
  int sequences, tokens, rows;  // rows: of packed sequences
  int slots, length, null_slot, update_state;
  int channels;
};

// The rows that later ranks may need of this part: the history at positions [end - (W - 1), end)
// of the sequence that goes on past `end`: its tokens here, and the initial state's slots before
// its start. Rows that are not this rank's to know are written as zeros.
struct ConvHaloPackParams {
  const void* x;              // [B, end - begin, D]
  const void* initial_state;  // [N, D, W]
  const void* cu_seqlens;     // [N + 1]
  void* rows;                 // [W - 1, B, D]
  long long x_batch_stride, x_token_stride;
  int batch, channels, sequences;
  int length, begin, end;
};

// Parts that are shorter than W - 1 make a halo out of several ranks' rows: at most W - 1 <= 7.
constexpr int kConvMaxMessages = 7;

// halo[pos] = the row of the message whose part holds pos, or, for positions before the start of
// the sequence, of the message whose part holds that start.
struct ConvHaloJoinParams {
  const void*
      messages;  // [count, W - 1, B, D], row h of message m: position part_end[m] - (W-1) + h
  const void* cu_seqlens;  // [N + 1]
  void* halo;              // [W - 1, B, D]
  int part_begin[kConvMaxMessages], part_end[kConvMaxMessages];
  int count, batch, channels, sequences;
  int length, begin;
};

// Adds what later ranks found for the positions of this part: dx at tokens, dinitial_state before
// the start of the sequence. Messages are added in rank order, in float32, and rounded once.
struct ConvHaloAddParams {
  const void*
      messages;  // float32 [count, W - 1, B, D], row h of message m: from_begin[m] - (W-1) + h
  const void* cu_seqlens;  // [N + 1]
  void* dx;                // [B, end - begin, D], or null
  void* dinitial_state;    // [N, D, W], or null
  long long dx_batch_stride, dx_token_stride;
  int from_begin[kConvMaxMessages];  // where the sender's part begins
  int count, batch, channels, sequences;
  int length, begin, end;
};

}  // namespace lathe
