// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file says how copies and fills are checked, staged and executed.
#include "sim/driver/memory/transfer.h"

#include <cstring>

#include "sim/driver/entry.h"
#include "sim/driver/order.h"
#include "sim/driver/report/timeline.h"
#include "sim/driver/work.h"

namespace sim::driver {
namespace {

// One end of a copy, as the tables knew it at the call.
struct End {
  uint64_t address = 0;
  bool pageable = false;
  bool on_device = false;    // device, managed or symbol
  Memory* memory = nullptr;  // of the device the block belongs to
};

CUresult check_end(Driver& driver, uint64_t address, size_t span, Place place, End* out) {
  if (address == 0) return CUDA_ERROR_INVALID_VALUE;
  const Block* block = driver.find_block(address);
  if (block == nullptr) {
    if (place == Place::device) return CUDA_ERROR_INVALID_VALUE;
    *out = {address, true, false, nullptr};
    return CUDA_SUCCESS;
  }
  if (driver.find_block(address, span) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool device_only = block->kind == MemoryKind::device || block->kind == MemoryKind::symbol;
  if (place == Place::host && device_only) return CUDA_ERROR_INVALID_VALUE;
  const bool shared = block->kind == MemoryKind::managed || block->kind == MemoryKind::mapped;
  *out = {address, false, device_only || shared, block->device->memory.get()};
  return CUDA_SUCCESS;
}

// Freed by other work since the call: touching it would be an illegal access.
bool is_live(const End& end) {
  if (end.pageable) return true;
  const std::shared_ptr<const Allocation> allocation = end.memory->find(end.address);
  return allocation && !allocation->freed;
}

void tell_move(const Copy& what, const End& to, const End& from) {
  const Path path = !to.on_device || !from.on_device ? Path::host
                    : to.memory == from.memory       ? Path::device
                                                     : Path::link;
  record_copy("copy", what.width * what.rows * what.layers, path);
}

CUresult move_rows(const Copy& what, const End& to, const End& from) {
  if (!is_live(to) || !is_live(from)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  tell_move(what, to, from);
  const auto checked = [](const End& end, uint64_t address) { return end.pageable ? 0 : address; };
  for (size_t at = 0; at < what.rows * what.layers; ++at) {
    const size_t row = at % what.rows, layer = at / what.rows;
    const uint64_t target = to.address + row * what.to_pitch + layer * what.to_layer;
    const uint64_t source = from.address + row * what.from_pitch + layer * what.from_layer;
    check_move("copy", to.memory, checked(to, target), 0, what.width);
    check_move("copy", from.memory, 0, checked(from, source), what.width);
    std::memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source),
                 what.width);
    if (!to.on_device) continue;
    if (from.on_device && from.memory == to.memory) {
      to.memory->copy_definedness(target, source, what.width);
    } else {
      to.memory->define(target, what.width);
    }
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<std::vector<char>> stage(const Copy& what) {
  auto staged = std::make_shared<std::vector<char>>(what.width * what.rows * what.layers);
  for (size_t at = 0; at < what.rows * what.layers; ++at) {
    const size_t row = at % what.rows, layer = at / what.rows;
    std::memcpy(
        staged->data() + at * what.width,
        reinterpret_cast<const char*>(what.from) + row * what.from_pitch + layer * what.from_layer,
        what.width);
  }
  return staged;
}

size_t span_of(size_t width, size_t rows, size_t pitch) { return (rows - 1) * pitch + width; }

CUresult check_copy(Driver& driver, const Copy& what, End* to, End* from) {
  const size_t to_rows = span_of(what.width, what.rows, what.to_pitch);
  const size_t from_rows = span_of(what.width, what.rows, what.from_pitch);
  if (what.rows > 1 && (what.to_pitch < what.width || what.from_pitch < what.width)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (what.layers > 1 && (what.to_layer < to_rows || what.from_layer < from_rows)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result =
      check_end(driver, what.to, span_of(to_rows, what.layers, what.to_layer), what.to_place, to);
  if (result != CUDA_SUCCESS) return result;
  return check_end(driver, what.from, span_of(from_rows, what.layers, what.from_layer),
                   what.from_place, from);
}

bool is_nothing(const Copy& what) { return what.width == 0 || what.rows == 0 || what.layers == 0; }

CUresult check_fill(Driver& driver, const Fill& what, End* to) {
  const size_t width = what.columns * what.element;
  if (what.to % what.element != 0 || (what.rows > 1 && what.pitch < width) ||
      what.pitch % what.element != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return check_end(driver, what.to, span_of(width, what.rows, what.pitch), Place::device, to);
}

CUresult fill_rows(const Fill& what, const End& to) {
  if (!is_live(to)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  record_copy("fill", what.columns * what.element * what.rows, Path::fill);
  for (size_t row = 0; row < what.rows; ++row) {
    const uint64_t start = to.address + row * what.pitch;
    check_move("fill", to.memory, to.pageable ? 0 : start, 0, what.columns * what.element);
    auto* bytes = reinterpret_cast<char*>(start);
    if (what.element == 1) {
      std::memset(bytes, static_cast<int>(what.value & 0xff), what.columns);
    } else {
      for (size_t at = 0; at < what.columns; ++at) {
        std::memcpy(bytes + at * what.element, &what.value, what.element);  // little endian
      }
    }
    if (to.on_device) to.memory->define(start, what.columns * what.element);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy(CUstream handle, const Copy& what, bool synchronous) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    std::shared_ptr<Stream> stream;
    CUresult result = resolve_stream(driver, context, handle, &stream);
    if (result != CUDA_SUCCESS || is_nothing(what)) return result;
    End to, from;
    result = check_copy(driver, what, &to, &from);
    if (result != CUDA_SUCCESS) return result;
    const bool capturing = stream->capture != nullptr;
    CompletionPtr completion;
    if (from.pageable && !capturing) {
      Copy packed = what;
      packed.from_pitch = what.width;
      packed.from_layer = what.width * what.rows;
      auto staged = stage(what);
      from.address = reinterpret_cast<uint64_t>(staged->data());
      result = submit(
          driver, *stream, [packed, to, from, staged] { return move_rows(packed, to, from); }, {},
          &completion);
    } else {
      result = submit(
          driver, *stream, [what, to, from] { return move_rows(what, to, from); }, {}, &completion);
    }
    if (result != CUDA_SUCCESS || capturing) return result;
    const bool on_host = !to.on_device || !from.on_device;
    if (!to.pageable && !(synchronous && on_host)) return CUDA_SUCCESS;
    return wait_for(driver, lock, *stream->context, completion);
  });
}

CUresult fill(CUstream handle, const Fill& what, bool synchronous) {
  return with_context([&](Driver& driver, Lock& lock, Context& context) -> CUresult {
    std::shared_ptr<Stream> stream;
    CUresult result = resolve_stream(driver, context, handle, &stream);
    if (result != CUDA_SUCCESS || what.columns == 0 || what.rows == 0) return result;
    End to;
    result = check_fill(driver, what, &to);
    if (result != CUDA_SUCCESS) return result;
    const bool capturing = stream->capture != nullptr;
    CompletionPtr completion;
    result = submit(
        driver, *stream, [what, to] { return fill_rows(what, to); }, {}, &completion);
    if (result != CUDA_SUCCESS || capturing || !synchronous || to.on_device) return result;
    return wait_for(driver, lock, *stream->context, completion);
  });
}

// A graph's copy reads its source when it runs, wherever that is.
CUresult copy_action(Driver& driver, const Copy& what, Action* out) {
  *out = nullptr;
  if (is_nothing(what)) return CUDA_SUCCESS;
  End to, from;
  const CUresult result = check_copy(driver, what, &to, &from);
  if (result == CUDA_SUCCESS) *out = [what, to, from] { return move_rows(what, to, from); };
  return result;
}

CUresult fill_action(Driver& driver, const Fill& what, Action* out) {
  *out = nullptr;
  if (what.columns == 0 || what.rows == 0) return CUDA_SUCCESS;
  if (what.element != 1 && what.element != 2 && what.element != 4) return CUDA_ERROR_INVALID_VALUE;
  End to;
  const CUresult result = check_fill(driver, what, &to);
  if (result == CUDA_SUCCESS) *out = [what, to] { return fill_rows(what, to); };
  return result;
}

}  // namespace sim::driver
