// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file wraps the C API for tests: owners for its objects, failures as exceptions, device
// tensors whose gaps and surroundings are watched, and what the simulator reported.
//
// LATHE_TEST_DEVICE=sim (default) or cuda picks where the cases run; LATHE_TEST_ARCH what for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/family.h"
#include "tests/harness/owners.h"

namespace apitest {

// Throws std::runtime_error with the call, the status and lathe_last_error().
void check(lathe_status status, const char* call);
#define API(call) ::apitest::check(call, #call)

// Returns a path for a file of this process, which nothing has written yet and which goes with it.
std::string process_file(const std::string& what);
// For a child that ends by _exit, which calls nothing of that kind itself.
void remove_process_files();

bool on_simulator();
// Makes a context on the test's device, with a cache that the tests share.
Context make_context();

// A Report has the simulator's lines since the last call: its findings as text, its launches as
// JSON.
struct Report {
  std::vector<std::string> findings;
  std::vector<std::string> launches;
};
Report take_report();
// Returns the simulator's lines about the launches of `work`. Throws with a finding.
std::vector<std::string> counted_launches(const std::function<void()>& work);
void check_no_findings();  // throws with them: benches have no doctest

// A Memory is device memory of the helpers in lathe.h.
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

// Describes a contiguous tensor of a context's device; `shape` must outlive the tensor.
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

// A Placement says how a tensor lies in its buffer, in elements.
struct Placement {
  int64_t token_gap = 0;        // between rows of the second dimension from the right
  int64_t batch_gap = 0;        // between entries of the third
  int64_t offset = 0;           // before the first element; given as DLTensor::byte_offset
  int64_t guard = 0;            // poison before and behind, inside the allocation
  unsigned char poison = 0xff;  // every byte of it: a NaN, or 0x7a for a number near the largest
  bool turned = false;  // of the last two dimensions the first one's elements are neighbours
};

// Everything in the buffer that is no element holds poison and must still do so afterwards.
class Tensor {
 public:
  // The tensor's copies run in `stream`, in order with the work there.
  Tensor(lathe_context* context, lathe_dtype dtype, std::vector<int64_t> shape,
         const Placement& placement = {}, void* stream = nullptr);
  // Uploads row-major values; an output is left as poison.
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
