// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Element types and their conversions: lathe::f16, bf16 and f32; to_float, from_float<Element>;
// load_element and store_element for one element of global memory.
//
//   const long long i = 256LL * blockIdx.x + threadIdx.x;
//   if (i >= p.N) return;
//   p.y[i] = lathe::from_float<typename Config::y_t>(2.0f * lathe::to_float(p.x[i]));
#pragma once

#include "common/types.cuh"
