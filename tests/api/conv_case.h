// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// One case of causal_conv1d, described in a line of a table: its inputs, the call through lathe.h,
// on one rank or several, and the comparison with the double reference.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/harness/session.h"
#include "tests/ref/conv.h"

namespace apitest {

struct ConvCase {
  lathe_dtype x = LATHE_F32, weight = LATHE_F32;
  int64_t batch = 1, tokens = 1, channels = 8, width = 4;
  bool silu = false, bias = false, residual = false;
  bool states = false;  // initial_state, final_state and both their gradients
  bool backward = true;
  std::vector<int64_t> cu_seqlens;  // empty: not packed
  lathe_dtype cu_dtype = LATHE_I32;
  Placement placement;     // of x, residual, dy, y and dx
  int alignment = 0;       // promise in bytes; 0: the default
  bool any_shape = false;  // D is not declared
  double scale = 1;        // of x

  int64_t sequences() const {
    return cu_seqlens.empty() ? batch : static_cast<int64_t>(cu_seqlens.size()) - 1;
  }
  std::string text() const;
};

using Values = std::map<std::string, std::vector<double>>;

// Seeded by `seed`; every value is one of its dtype.
ref::Conv make_inputs(const ConvCase& conv, uint64_t seed = 1);
// What the reference says, under the names of the outputs.
Values reference(const ConvCase& conv, const ref::Conv& inputs);

// The call, set up once and run as often as wanted.
class ConvRun {
 public:
  // With a group, `shard` cuts the tokens and `inputs` stay those of the whole axis.
  ConvRun(lathe_context* context, const ConvCase& conv, const ref::Conv& inputs,
          lathe_group* group = nullptr, lathe_shard* shard = nullptr, unsigned flags = 0);
  Values operator()();
  // The same in pieces: what is enqueued may be captured in a graph.
  void poison_outputs();
  void enqueue();
  Values outputs();
  void* stream() const { return stream_.get(); }
  // Overwrites the tokens of a rank, [batch, tokens, channels].
  void set_x(const std::vector<double>& values) { at("x").upload(values); }
  // Overwrites what lies in cu_seqlens on the device.
  void set_cu_seqlens(const std::vector<double>& values) { at("cu_seqlens").upload(values); }
  const lathe_plan* plan() const { return plan_.get(); }
  lathe_estimate estimate() const;

 private:
  void input(const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
             const std::vector<double>& values, const Placement& placement = {});
  void output(const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
              const Placement& placement = {});
  void declare(const char* name, lathe_dtype dtype, const std::vector<int64_t>& shape);
  void add_inputs(const ref::Conv& inputs, int64_t begin, int64_t end);
  void add_outputs(int64_t tokens);
  Tensor& at(const std::string& name) { return *tensors_.at(name); }

  lathe_context* context_;
  ConvCase case_;
  lathe_shard* shard_;
  Stream stream_;  // of this rank: ranks that share a device would wait for each other on one
  Problem problem_;
  Plan plan_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
  std::vector<std::string> outputs_;
  std::vector<const DLTensor*> slots_;
  std::unique_ptr<Memory> workspace_;
};

// Runs `conv` on one rank.
Values run_conv(lathe_context* context, const ConvCase& conv, const ref::Conv& inputs);

// Runs it on parts.size() ranks that are threads, part r of parts[r] tokens, and puts the pieces
// together: activations by position, states from the rank that owns them (each row from exactly
// one), parameter gradients summed unless the ranks did it. Throws what a rank threw.
Values run_conv_ranks(const ConvCase& conv, const ref::Conv& inputs,
                      const std::vector<int64_t>& parts, unsigned flags);

// doctest CHECKs: outputs against the reference by the rules of causal_conv1d.md, section 8, and no
// finding of the simulator. `roundings` allowed in 16-bit gradients.
void check_conv(const ConvCase& conv, const Values& actual, const Values& expected,
                int roundings = 1);
// Equal bit for bit (any NaN equals any NaN).
void check_same(const Values& actual, const Values& expected,
                const std::vector<std::string>& names);

}  // namespace apitest
