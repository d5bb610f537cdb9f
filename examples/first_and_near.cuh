// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// A mask_mod: each row keeps the first 4 keys of its sequence and the last 128 up to its own.
constexpr int kFirst = 4, kNear = 128;

__device__ bool mask_mod(int batch, int head, int q_idx, int kv_idx) {
  return kv_idx <= q_idx && (kv_idx < kFirst || q_idx - kv_idx < kNear);
}

// Rows q0 to q1 - 1 and keys k0 to k1 - 1: 0 if no pair of them is kept, 2 if all are, 1 if some.
__device__ int mask_tile(int batch, int head, int q0, int q1, int k0, int k1) {
  if (k0 >= q1 || (k0 >= kFirst && q0 - (k1 - 1) >= kNear)) return 0;
  return k1 - 1 <= q0 && q1 - 1 - k0 < kNear ? 2 : 1;
}
