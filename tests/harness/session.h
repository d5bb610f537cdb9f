// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// The C API for tests: owners for its objects, failures as exceptions, device tensors whose gaps
// and surroundings are watched, and what the simulator reported.
//
// LATHE_TEST_DEVICE=sim (default) or cuda picks where the cases run; LATHE_TEST_ARCH what for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/owners.h"

namespace apitest {

// Throws std::runtime_error with the call, the status and lathe_last_error().
void check(lathe_status status, const char* call);
#define API(call) ::apitest::check(call, #call)

bool on_simulator();
// A context on the test's device, with a cache that the tests share.
Context make_context();

// The simulator's lines since the last call: its findings as text, its launches as JSON.
struct Report {
  std::vector<std::string> findings;
  std::vector<std::string> launches;
};
Report take_report();
// Returns the simulator's lines about the launches of `work`. Throws with a finding.
std::vector<std::string> counted_launches(const std::function<void()>& work);
void check_no_findings();  // throws with them: benches have no doctest

// Device memory of the helpers in lathe.h.
class Memory {
 public:
  Memory(lathe_context* context, size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  lathe_context* context_;
  void* data_ = nullptr;
  size_t bytes_;
};

// A contiguous tensor of a context's device; `shape` must outlive it.
DLTensor describe(void* data, lathe_dtype dtype, const std::vector<int64_t>& shape);

class Stream {
 public:
  explicit Stream(lathe_context* context);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* get() const { return stream_; }

 private:
  lathe_context* context_;
  void* stream_ = nullptr;
};

// How a tensor lies in its buffer, in elements.
struct Placement {
  int64_t token_gap = 0;        // between rows of the second dimension from the right
  int64_t batch_gap = 0;        // between entries of the third
  int64_t offset = 0;           // before the first element; given as DLTensor::byte_offset
  int64_t guard = 0;            // poison before and behind, inside the allocation
  unsigned char poison = 0xff;  // every byte of it: a NaN, or 0x7a for a number near the largest
};

// Everything in the buffer that is no element holds poison and must still do so afterwards.
class Tensor {
 public:
  // `stream`: where its copies run, in order with the work on it.
  Tensor(lathe_context* context, lathe_dtype dtype, std::vector<int64_t> shape,
         const Placement& placement = {}, void* stream = nullptr);
  // Row-major values; an output is left as poison.
  void upload(const std::vector<double>& values);
  void poison();
  // Throws if a byte outside the elements has changed.
  std::vector<double> download() const;

  const DLTensor* dl() const { return &dl_; }
  const std::vector<int64_t>& shape() const { return shape_; }

 private:
  size_t index(size_t flat) const;  // element of the buffer

  lathe_context* context_;
  void* stream_;
  lathe_dtype dtype_;
  std::vector<int64_t> shape_, strides_;
  int64_t first_ = 0;
  size_t count_ = 1;
  unsigned char poison_;
  std::vector<unsigned char> image_;
  std::unique_ptr<Memory> memory_;
  DLTensor dl_{};
};

}  // namespace apitest
