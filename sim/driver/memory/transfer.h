// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These functions check copies and fills and put them into a stream.
#pragma once

#include "sim/driver/state.h"

namespace sim::driver {

enum class Place { any, host, device };  // what the caller says an address is

// A Copy has `layers` of `rows` pieces of `width` bytes; pieces are `pitch` bytes apart on either
// side, layers `layer` bytes.
struct Copy {
  uint64_t to = 0, from = 0;
  Place to_place = Place::any, from_place = Place::any;
  size_t width = 0, rows = 1, layers = 1;
  size_t to_pitch = 0, from_pitch = 0;
  size_t to_layer = 0, from_layer = 0;
};

// Enqueues the copy. Pageable sources are read now; copies into pageable memory, and with
// `synchronous` all that touch the host, are over on return.
CUresult copy(CUstream stream, const Copy& what, bool synchronous);
// Makes the checks alone and returns the work, for a graph.
CUresult copy_action(Driver& driver, const Copy& what, Action* out);

struct Fill {
  uint64_t to = 0;
  uint32_t value = 0;
  unsigned element = 1;  // bytes: 1, 2 or 4
  size_t columns = 0, rows = 1, pitch = 0;
};

CUresult fill(CUstream stream, const Fill& what, bool synchronous);
CUresult fill_action(Driver& driver, const Fill& what, Action* out);

// Reads a caller's structure. Returns CUDA_ERROR_INVALID_VALUE for arrays, which are not modelled.
CUresult read_copy(const CUDA_MEMCPY3D& given, Copy* out);

}  // namespace sim::driver
