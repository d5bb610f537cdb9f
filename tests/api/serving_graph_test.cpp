// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This test serves sequences that come, grow, draft tokens, are preempted and end, over pages of
// attention and over pools of a convolution and of KDA. A step is captured once for each batch size
// and replayed with other values on the device; every replay is compared with the definitions in
// float64. What nobody owns is NaN on the device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "tests/harness/check.h"
#include "tests/harness/graph_client.h"
#include "tests/numbers.h"

using namespace apitest;

namespace {

constexpr int64_t kHeads = 2, kWidth = 32, kPage = 16, kPages = 20, kTable = 3;  // attention
constexpr int64_t kChannels = 40, kTaps = 4, kSpec = 3, kColumns = kTaps - 1 + kSpec - 1;
constexpr int64_t kState = 16, kSlots = 7;  // of KDA: [kHeads, kState, kState]
constexpr int64_t kMostKeys = kPage * kTable;
constexpr int kSteps = 200;
const std::vector<int64_t> kBatches = {1, 2, 4};

using Row = std::vector<double>;

// What a sequence has behind its accepted tokens, by the definitions.
struct Sequence {
  std::vector<Row> keys, values, inputs;  // of attention and of the convolution, a row a token
  std::vector<Row> states;                // of KDA: after each token of the last step
  std::vector<int64_t> pages;
  int64_t conv_slot = 0;
  std::vector<int64_t> kda_slots;  // kSpec of them
  int64_t drafted = 0, accepted = 0;
  bool fresh() const { return states.empty(); }
};

// Numbers that nobody has.
class Pool {
 public:
  explicit Pool(int64_t count) {
    for (int64_t i = 0; i < count; ++i) free_.push_back(i);
  }
  bool has(int64_t count) const { return std::ssize(free_) >= count; }
  int64_t take(std::mt19937_64& random) {
    std::swap(free_[random() % free_.size()], free_.back());
    const int64_t found = free_.back();
    free_.pop_back();
    return found;
  }
  void give(int64_t number) { free_.push_back(number); }

 private:
  std::vector<int64_t> free_;
};

// Tensors that all batch sizes share.
struct Device {
  explicit Device(lathe_context* its_context)
      : context(its_context),
        stream(its_context),
        keys(context, LATHE_BF16, {kPages, kPage, 1, kWidth}, {}, stream.get()),
        values(context, LATHE_BF16, {kPages, kPage, 1, kWidth}, {}, stream.get()),
        conv(context, LATHE_BF16, {kSlots, kChannels, kColumns}, {}, stream.get()),
        kda(context, LATHE_F32, {kSlots * kSpec, kHeads, kState, kState}, {}, stream.get()) {
    for (Tensor* each : {&keys, &values, &conv, &kda}) each->poison();
  }
  // Makes what one number of a pool names NaN again.
  void spoil(const Tensor& tensor, int64_t number) {
    const DLTensor& dl = *tensor.dl();
    size_t bytes = dl.dtype.bits / 8;
    for (int d = 1; d < dl.ndim; ++d) bytes *= static_cast<size_t>(dl.shape[d]);
    const std::vector<unsigned char> nan(bytes, 0xff);
    char* at = static_cast<char*>(dl.data) + static_cast<size_t>(number) * bytes;
    API(lathe_copy_to_device(context, at, nan.data(), bytes, stream.get()));
  }

  lathe_context* context;
  Stream stream;
  Tensor keys, values, conv, kda;
};

// The three calls of a step for one batch size, and their graph.
class Step {
 public:
  Step(Device& device, int64_t batch)
      : batch_(batch),
        attention_(planned(device, attention_call())),
        conv_(planned(device, conv_call())),
        kda_(planned(device, kda_call())) {
    attention_.replace("k_cache", device.keys.dl());
    attention_.replace("v_cache", device.values.dl());
    conv_.replace("state", device.conv.dl());
    kda_.replace("state_pool", device.kda.dl());
    for (PlannedCall* each : calls()) each->reset();
    graph_ = std::make_unique<CapturedGraph>(device.context, device.stream.get(), [this] {
      for (PlannedCall* each : calls()) each->enqueue();
    });
  }
  std::vector<PlannedCall*> calls() { return {&attention_, &conv_, &kda_}; }
  PlannedCall& attention() { return attention_; }
  PlannedCall& conv() { return conv_; }
  PlannedCall& kda() { return kda_; }
  int64_t batch() const { return batch_; }
  int64_t rows() const { return batch_ * kSpec; }
  void replay() {
    for (PlannedCall* each : calls()) each->reset();
    graph_->launch();
    kda_.synchronize();
  }

 private:
  static PlannedCall planned(Device& device, const Call& call) {
    return PlannedCall(device.context, call, {.stream = device.stream.get()});
  }
  // In-out tensors are the device's: the call's own stay as they are.
  Call attention_call() const {
    Call call;
    call.op = "flash_attention_decode";
    call.set("causal", int64_t{1});
    const std::vector<int64_t> pages = {kPages, kPage, 1, kWidth}, fresh = {rows(), 1, kWidth};
    call.draw("q", LATHE_BF16, {rows(), kHeads, kWidth}, 1);
    call.draw("k_cache", LATHE_BF16, pages, 2);
    call.draw("v_cache", LATHE_BF16, pages, 3);
    call.put("block_table", LATHE_I32, {batch_, kTable}, zeros(batch_ * kTable));
    call.put("cache_seqlens", LATHE_I32, {batch_}, zeros(batch_));
    call.draw("k_new", LATHE_BF16, fresh, 4);
    call.draw("v_new", LATHE_BF16, fresh, 5);
    call.put("cu_seqlens_q", LATHE_I32, {batch_ + 1}, zeros(batch_ + 1));
    call.want("out", LATHE_BF16, {rows(), kHeads, kWidth});
    call.want("lse", LATHE_F32, {kHeads, rows()});
    return call;
  }
  Call conv_call() const {
    Call call;
    call.op = "causal_conv1d_update";
    call.options["activation"] = "silu";
    call.draw("x", LATHE_BF16, {rows(), kChannels}, 1);
    call.draw("weight", LATHE_BF16, {kChannels, kTaps}, 2);
    call.draw("state", LATHE_BF16, {kSlots, kChannels, kColumns}, 3);
    call.put("cu_seqlens", LATHE_I32, {batch_ + 1}, zeros(batch_ + 1));
    for (const char* name : {"state_indices", "source_indices", "num_accepted_tokens"}) {
      call.put(name, LATHE_I32, {batch_}, zeros(batch_));
    }
    call.want("y", LATHE_BF16, {rows(), kChannels});
    return call;
  }
  Call kda_call() const {
    Call call;
    call.op = "kda_recurrent";
    const std::vector<int64_t> heads = {1, rows(), kHeads, kState};
    for (const char* name : {"q", "k", "v"}) call.draw(name, LATHE_BF16, heads, 1);
    call.draw("g", LATHE_F32, heads, 2);
    call.draw("beta", LATHE_F32, {1, rows(), kHeads}, 3);
    call.put("cu_seqlens", LATHE_I32, {batch_ + 1}, zeros(batch_ + 1));
    call.draw("state_pool", LATHE_F32, {kSlots * kSpec, kHeads, kState, kState}, 4);
    call.put("state_indices", LATHE_I32, {batch_, kSpec}, zeros(batch_ * kSpec));
    call.put("has_initial_state", LATHE_I32, {batch_}, zeros(batch_));
    call.put("num_accepted_tokens", LATHE_I32, {batch_}, zeros(batch_));
    call.want("o", LATHE_BF16, heads);
    return call;
  }
  static Values zeros(int64_t count) { return Values(static_cast<size_t>(count), 0.0); }

  int64_t batch_;
  PlannedCall attention_, conv_, kda_;
  std::unique_ptr<CapturedGraph> graph_;
};

// Draws a step's inputs, of all rows.
struct Inputs {
  Values q, k_new, v_new, x, kda_q, kda_k, kda_v, g, beta;
  Inputs(int64_t rows, uint32_t seed) {
    const auto draw = [&](lathe_dtype type, int64_t each) {
      return random_values(type, rows * each, ++seed);
    };
    q = draw(LATHE_BF16, kHeads * kWidth);
    k_new = draw(LATHE_BF16, kWidth), v_new = draw(LATHE_BF16, kWidth);
    x = draw(LATHE_BF16, kChannels);
    kda_q = draw(LATHE_BF16, kHeads * kState), kda_k = draw(LATHE_BF16, kHeads * kState);
    kda_v = draw(LATHE_BF16, kHeads * kState), g = draw(LATHE_F32, kHeads * kState);
    beta = draw(LATHE_F32, kHeads);
    for (double& each : kda_k) each = numbers::rounded(LATHE_BF16, 0.2 * each);
    for (double& each : g) each = -std::abs(each);
    for (double& each : beta) each = numbers::rounded(LATHE_F32, 1 / (1 + std::exp(-each)));
  }
};
Row row_of(const Values& all, int64_t row, int64_t width) {
  return {all.begin() + row * width, all.begin() + (row + 1) * width};
}

// What the definitions say of the rows of one sequence; the sequence moves on.
struct Expected {
  Values attention, conv, kda;

  void attend(const Sequence& s, const Row& q) {
    for (int64_t h = 0; h < kHeads; ++h) {
      Row weights;
      double sum = 0;
      for (const Row& key : s.keys) {
        double score = 0;
        for (int64_t d = 0; d < kWidth; ++d) {
          score += q[static_cast<size_t>(h * kWidth + d)] * key[static_cast<size_t>(d)];
        }
        weights.push_back(std::exp(score / std::sqrt(double(kWidth))));
        sum += weights.back();
      }
      for (size_t d = 0; d < kWidth; ++d) {
        double out = 0;
        for (size_t j = 0; j < weights.size(); ++j) out += weights[j] / sum * s.values[j][d];
        attention.push_back(out);
      }
    }
  }
  void convolve(const Sequence& s, const Values& weight) {
    for (size_t d = 0; d < kChannels; ++d) {
      double z = 0;
      for (int64_t i = 0; i < kTaps; ++i) {
        const int64_t at = std::ssize(s.inputs) - kTaps + i;
        if (at >= 0) {
          z += weight[d * kTaps + static_cast<size_t>(i)] * s.inputs[static_cast<size_t>(at)][d];
        }
      }
      conv.push_back(z / (1 + std::exp(-z)));
    }
  }
  // Adds o and returns the state behind the token.
  Row recur(Row state, const Inputs& in, int64_t row) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const auto at = [&](const Values& of, int64_t d) {
        return of[static_cast<size_t>((row * kHeads + h) * kState + d)];
      };
      const double beta = in.beta[static_cast<size_t>(row * kHeads + h)];
      double* s = &state[static_cast<size_t>(h * kState * kState)];
      for (int64_t e = 0; e < kState; ++e) {
        double error = at(in.kda_v, e), out = 0;
        for (int64_t d = 0; d < kState; ++d) {
          s[d * kState + e] *= std::exp(at(in.g, d));
          error -= s[d * kState + e] * at(in.kda_k, d);
        }
        for (int64_t d = 0; d < kState; ++d) {
          s[d * kState + e] += beta * at(in.kda_k, d) * error;
          out += s[d * kState + e] * at(in.kda_q, d) / std::sqrt(double(kState));
        }
        kda.push_back(out);
      }
    }
    return state;
  }
};

class Server {
 public:
  explicit Server(lathe_context* context) : device_(context) {
    for (const int64_t batch : kBatches) {
      steps_.push_back(std::make_unique<Step>(device_, batch));
    }
  }

  void step(int number) {
    arrive(), preempt(), accept_and_plan();
    Step& step = **std::find_if(steps_.begin(), steps_.end(), [this](const auto& each) {
      return each->batch() >= std::ssize(running_);
    });
    const Inputs in(step.rows(), static_cast<uint32_t>(100 * number));
    Expected expected;
    int64_t row = 0;
    upload(step, in);
    for (Sequence& s : running_) move_on(s, in, &row, &expected);
    step.replay();
    compare(step, row, expected);
  }
  int most() const { return most_; }
  int preempted() const { return preempted_; }
  int ended() const { return ended_; }

 private:
  int64_t random(int64_t below) { return static_cast<int64_t>(random_() % uint64_t(below)); }

  void arrive() {
    const bool wanted = running_.empty() || random(3) == 0;
    if (!wanted || std::ssize(running_) == kBatches.back()) return;
    if (!pages_.has(1) || !conv_slots_.has(1) || !kda_slots_.has(kSpec)) return;
    Sequence s;
    s.conv_slot = conv_slots_.take(random_);
    for (int i = 0; i < kSpec; ++i) s.kda_slots.push_back(kda_slots_.take(random_));
    running_.push_back(s);
    std::shuffle(running_.begin(), running_.end(), random_);
    most_ = std::max(most_, static_cast<int>(running_.size()));
  }
  void give_back(const Sequence& s) {
    for (const int64_t page : s.pages) {
      pages_.give(page), device_.spoil(device_.keys, page), device_.spoil(device_.values, page);
    }
    conv_slots_.give(s.conv_slot), device_.spoil(device_.conv, s.conv_slot);
    for (const int64_t slot : s.kda_slots) kda_slots_.give(slot), device_.spoil(device_.kda, slot);
  }
  void drop(size_t index, int* count) {
    give_back(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    ++*count;
  }
  void preempt() {
    if (running_.size() > 1 && random(12) == 0) {
      drop(static_cast<size_t>(random(std::ssize(running_))), &preempted_);
    }
    for (size_t i = running_.size(); i-- > 0 && running_.size() > 1;) {
      if (std::ssize(running_[i].keys) > kMostKeys - 2 * kSpec) drop(i, &ended_);
    }
    if (running_.size() == 1 && std::ssize(running_[0].keys) > kMostKeys - 2 * kSpec) {
      drop(0, &ended_), arrive_now();
    }
  }
  void arrive_now() {
    while (running_.empty()) arrive();
  }
  // Says how many tokens of the last step count, and how many the next one has.
  void accept_and_plan() {
    for (Sequence& s : running_) {
      if (!s.fresh()) {
        s.accepted = 1 + random(s.drafted);
        const auto kept = static_cast<size_t>(std::ssize(s.keys) - s.drafted + s.accepted);
        s.keys.resize(kept), s.values.resize(kept), s.inputs.resize(kept);
        s.states = {s.states[static_cast<size_t>(s.accepted - 1)]};
      }
      s.drafted = 1 + random(kSpec);
      while (std::ssize(s.pages) * kPage < std::ssize(s.keys) + s.drafted) {
        s.pages.push_back(pages_.take(random_));
      }
    }
  }
  // Rows of the batch that have no sequence are padding.
  void upload(Step& step, const Inputs& in) {
    Values table, lengths, offsets = {0}, conv, sources, accepted, kda, initial;
    for (int64_t n = 0; n < step.batch(); ++n) {
      const bool there = n < std::ssize(running_);
      const Sequence none, &s = there ? running_[static_cast<size_t>(n)] : none;
      for (size_t i = 0; i < kTable; ++i) {
        table.push_back(i < s.pages.size() ? double(s.pages[i]) : double(kPages + 7));
      }
      lengths.push_back(double(s.keys.size()));
      offsets.push_back(offsets.back() + double(there ? s.drafted : 0));
      conv.push_back(there ? double(s.conv_slot) : -1);
      sources.push_back(there && !s.fresh() ? double(s.conv_slot) : -1);
      accepted.push_back(there && !s.fresh() ? double(s.accepted) : 1);
      initial.push_back(there && !s.fresh());
      for (size_t i = 0; i < kSpec; ++i) kda.push_back(there ? double(s.kda_slots[i]) : -1);
    }
    PlannedCall &a = step.attention(), &c = step.conv(), &k = step.kda();
    a.upload("block_table", table), a.upload("cache_seqlens", lengths);
    a.upload("cu_seqlens_q", offsets), a.upload("q", in.q);
    a.upload("k_new", in.k_new), a.upload("v_new", in.v_new);
    c.upload("x", in.x), c.upload("cu_seqlens", offsets), c.upload("state_indices", conv);
    c.upload("source_indices", sources), c.upload("num_accepted_tokens", accepted);
    k.upload("q", in.kda_q), k.upload("k", in.kda_k), k.upload("v", in.kda_v);
    k.upload("g", in.g), k.upload("beta", in.beta), k.upload("cu_seqlens", offsets);
    k.upload("state_indices", kda), k.upload("has_initial_state", initial);
    k.upload("num_accepted_tokens", accepted);
  }
  void move_on(Sequence& s, const Inputs& in, int64_t* row, Expected* expected) {
    Row state = s.fresh() ? Row(static_cast<size_t>(kHeads * kState * kState), 0.0) : s.states[0];
    s.states.clear();
    static const Values weight = random_values(LATHE_BF16, kChannels * kTaps, 2);
    for (int64_t t = 0; t < s.drafted; ++t, ++*row) {
      s.keys.push_back(row_of(in.k_new, *row, kWidth));
      s.values.push_back(row_of(in.v_new, *row, kWidth));
      s.inputs.push_back(row_of(in.x, *row, kChannels));
      expected->attend(s, row_of(in.q, *row, kHeads * kWidth));
      expected->convolve(s, weight);
      state = expected->recur(state, in, *row);
      s.states.push_back(state);
    }
  }
  static void compare(Step& step, int64_t rows, const Expected& expected) {
    const auto first = [rows](const Values& all, int64_t width) {
      return Values(all.begin(), all.begin() + rows * width);
    };
    const Values out = step.attention().outputs().at("out"), y = step.conv().outputs().at("y"),
                 o = step.kda().outputs().at("o");
    check_rms("out", first(out, kHeads * kWidth), expected.attention, 0.01);
    check_rms("y", first(y, kChannels), expected.conv, numbers::half_ulp(LATHE_BF16) + 1e-5);
    check_rms("o", first(o, kHeads * kState), expected.kda, 0.005, 1e-3);
    const auto zero = [](double value) { return value == 0; };
    CHECK(std::all_of(out.begin() + rows * kHeads * kWidth, out.end(), zero));
    CHECK(std::all_of(y.begin() + rows * kChannels, y.end(), zero));
    CHECK(std::all_of(o.begin() + rows * kHeads * kState, o.end(), zero));
  }

  Device device_;
  std::vector<std::unique_ptr<Step>> steps_;
  std::vector<Sequence> running_;
  Pool pages_{kPages}, conv_slots_{kSlots}, kda_slots_{kSlots * kSpec};
  std::mt19937_64 random_{7};
  int most_ = 0, preempted_ = 0, ended_ = 0;
};

TEST_CASE("serving: a capture for each batch size replays for 200 steps of continuous batching") {
  Server server(shared_context());
  for (int step = 0; step < kSteps; ++step) {
    CAPTURE(step);
    server.step(step);
  }
  check_no_findings();
  // The steps were not of one kind.
  CHECK(server.most() == kBatches.back());
  CHECK(server.preempted() > 3);
  CHECK(server.ended() > 3);
}

}  // namespace
