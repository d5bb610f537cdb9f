// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The other half of linked.cu.
__device__ int factor = 1;
__device__ float scaled(float x) { return x * factor; }
