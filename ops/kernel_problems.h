// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Describes the request to a kernel family in integers and flags. A struct has everything that
// changes the code, and nothing that varies from call to call (batch, tokens, sequences, pointers,
// strides).
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "codegen/base/dtype.h"
#include "codegen/spec.h"

namespace lathe {

struct ConvProblem {
  Dtype x = Dtype::bf16;          // also y, residual, states and their gradients
  Dtype weight = Dtype::bf16;     // also bias, dweight, dbias
  Dtype cu_seqlens = Dtype::i32;  // meaningful if packed
  int width = 4;                  // 2..8
  int vector_bytes = 16;          // D, strides and pointers of activations are multiples of this
  bool silu = false;
  bool bias = false;
  bool residual = false;
  bool initial_state = false;
  bool packed = false;
  bool halo = false;              // the sequence axis is cut over ranks
  bool wide_state_grads = false;  // dinitial_state is float32: ranks add to it
  // Sums for dweight and dbias are those of sequences, of at most 64 tokens each; the caller adds
  // them up.
  bool by_pieces = false;

  bool forward = false;  // y, and final_state if the next flag is set
  bool final_state = false;

  bool backward = false;     // dx
  bool weight_grad = false;  // dweight, and dbias if `bias`
  bool dfinal_state = false;
  bool dinitial_state = false;

  bool pool = false;                // states before and behind sequences are slots of a pool
  bool checkpoints = false;         // with a pool: and some in between
  int parts = 0;                    // results of y; 0: one
  std::array<int64_t, 8> widths{};  // channels of each; parameters of the launch
  // Returns whether the forward is the one over slots.
  bool over_slots() const { return pool || parts > 0; }

  bool update = false;  // causal_conv1d_update
  bool slots = false;   // of the update: anything but one token for each row of the states
  bool indexed = false, ring = false, drafts = false;
  bool several = false;      // of the update: tokens of a sequence
  Dtype index = Dtype::i32;  // of slots; meaningful with a pool or if `indexed`
  int columns = 0;           // of a state in a slot
  // These two are parameters of the launch.
  int null_slot = -1;
  bool update_state = true;
};

struct AttentionProblem {
  Dtype element = Dtype::bf16;    // q, k, v and out
  Dtype cu_seqlens = Dtype::i32;  // meaningful if packed
  int head_dim = 128;             // of q and k: a multiple of 8 up to 256; 576 if latent
  int value_dim = 128;            // of v and out: the same; 512 if latent
  bool packed = false;
  bool local = false;  // causal or a window; which one varies from call to call
  bool softcap = false;
  bool alibi = false;
  bool sinks = false;
  bool pack_gqa = false;  // the query heads of a key head are rows of one tile

  bool forward = false;  // out and lse

  bool backward = false;       // any of dq, dk and dv
  bool dsinks = false;         // with or without them
  bool dlse = false;           // lse has a gradient of its own
  bool deterministic = false;  // dq too is the same bit for bit, whatever the order of blocks
  // With `deterministic`: and whatever sequences are beside one. No matter of the kernels.
  bool rank_invariant = false;

  bool decode = false;  // flash_attention_decode: out and lse over keys and values in pages
  bool append = false;  // new keys and values are stored there first
  bool split = true;    // the keys of a row may be cut into parts
  bool latent = false;  // of decoding: values are the first columns of the keys, 512 of 576
  bool ragged = false;  // of decoding: rows of sequences of any length, by offsets
  bool spread = false;  // of decoding: a rank has some of the keys, or they begin behind padding
  // Of decoding: how a cache in 8 bits is scaled, as templates/attention/decode/narrow_rows.cuh has
  // it; 0: it has q's dtype.
  int narrow = 0;
  bool rotary = false;       // of decoding: queries and new keys turn
  bool interleaved = false;  // meaningful if `rotary`: pairs are neighbours
  Dtype angle = Dtype::f32;  // meaningful if `rotary`

  // A block step has one of these: rows and keys are parts of sequences, and attention ranges or
  // positions say which rows see which keys. At most one is set.
  bool ranges = false;
  bool positions = false;
  bool persistent = false;  // fewer blocks of threads than tiles, which take turns

  int alignment = 16;  // of the caller's rows: pointers and strides are multiples, in bytes

  std::vector<Mod> mods;                           // score_mod, mask_mod
  std::array<std::optional<Dtype>, 4> captures{};  // types of the arrays that mods read

  // Returns whether scores are modified, which takes registers, for mods an unknown number.
  bool modifies_scores() const { return softcap || alibi || !mods.empty(); }
  const Mod* mod(const char* name) const {
    for (const Mod& each : mods) {
      if (each.name == name) return &each;
    }
    return nullptr;
  }
};

struct LseMergeProblem {
  Dtype block_out = Dtype::f32;  // meaningful if `block`
  int value_dim = 128;           // a multiple of 8
  bool block = false;            // another partial; without it a sink alone is folded in
  bool sinks = false;
  bool rounded = false;              // the result in 16 bits as well
  Dtype rounded_type = Dtype::bf16;  // meaningful if `rounded`
  int alignment = 16;                // of the caller's rows, as above
};

struct SparseProblem {
  Dtype element = Dtype::bf16;    // q, k, v, rotary parts and out
  Dtype cu_seqlens = Dtype::i32;  // meaningful if packed
  int head_dim = 512;             // D: a multiple of 8; D + R up to 576
  int rope_dim = 64;              // R: a multiple of 8; 0: no rotary parts
  int value_dim = 512;            // DV: a multiple of 8 up to 512
  int group = 0;                  // query heads of a key head; 0: varies, tiles then hold 64
  bool packed = false;            // sequences by offsets
  bool sinks = false;
  bool extra = false;           // keys of a second cache, with a list of their own
  bool byte_rows = false;       // keys are rows of bytes, e4m3_656
  bool values_in_keys = false;  // v is the first DV columns of k, and its gradient a part of dk

  bool forward = false;    // out, and the statistics that are asked for
  bool float_out = false;  // out in float32: a part of the keys, to be merged with others
  bool split = true;       // a list may be cut into parts, which a second kernel joins

  bool backward = false;       // any of dq, dk, dv and those of the rotary parts
  bool dsinks = false;         // with or without them
  bool deterministic = false;  // gradients of keys too are the same bit for bit
  // Sums of gradients of keys and sinks are exact ones, which the caller rounds; with
  // `deterministic`.
  bool exact = false;
};

struct KdaProblem {
  Dtype element = Dtype::bf16;    // q, k, v and o
  Dtype gate = Dtype::f32;        // g
  Dtype beta = Dtype::bf16;       // beta
  Dtype cu_seqlens = Dtype::i32;  // meaningful if packed
  Dtype index = Dtype::i32;       // state_indices, num_accepted_tokens; meaningful with a pool
  Dtype pooled = Dtype::f32;      // state_pool; meaningful with a pool
  int key_dim = 128;              // K: a multiple of 4, 8..256
  int value_dim = 128;            // V: the same
  bool packed = false;
  bool l2norm = false;
  int gate_kind = 0;  // KdaGate: how g becomes a decay
  bool A_log = false;
  bool dt_bias = false;
  bool sigmoid = false;        // beta is a logit
  bool state_v_first = false;  // states are [.., V, K]

  int states = 0;            // KdaStates: where those of kda_recurrent are
  bool pool = false;         // those of kda are in slots, the initial and the final ones
  bool checkpoints = false;  // with a pool: and some in between
  Dtype ring = Dtype::f32;   // ring_u; meaningful with rings
  int alignment = 16;  // of kda_recurrent's rows: pointers and strides are multiples, in bytes

  int vector_bytes =
      16;  // 8 or 16: rows of q, k, v and g, and what lies between them, are multiples
  bool initial_state = false;

  bool forward = false;  // o
  bool final_state = false;
  bool chunk_states = false;
  bool saves = false;      // the forward leaves what the backward would walk through the tokens for
  bool no_output = false;  // meaningful with saves: the forward leaves nothing else

  bool backward = false;        // any gradient but that of the initial state alone
  bool given_saved = false;     // a forward of another call has left it
  bool dht = false;             // the final state has a gradient of its own
  bool dinitial_state = false;  // also without `backward`
  bool dA_log = false, ddt_bias = false;
  bool warmup = false;     // segments of the forward start early instead, from zero
  bool segmented = false;  // sequences may be cut, of which a call tells more
  bool ranks = false;      // sequences may begin and go on on other ranks
  bool grouped = true;     // value heads share those of q and k, or may
  // The caller adds up what dA_log and ddt_bias are sums of. No matter of the kernels.
  bool sums_outside = false;
  // The number of segments that the caller gave, and with it the bits; 0: none.
  int fixed_segments = 0;

  // Returns whether the backward repeats the forward walk.
  bool recomputes() const { return backward && !saves && !given_saved; }
};

}  // namespace lathe
