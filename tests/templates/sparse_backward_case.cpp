// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/sparse_backward_case.h"

#include <algorithm>
#include <cmath>

namespace sparse_case {
namespace {

double as_bf16(double value) { return numbers::rounded(LATHE_BF16, value); }
double as_f16(double value) { return numbers::rounded(LATHE_F16, value); }
ref::Round rounding(const BackwardSetup& s) {
  return s.element == lathe::Dtype::bf16 ? as_bf16 : as_f16;
}

// With values in keys the two gradients are one.
ref::SparseBackward joined(const Shape& shape, ref::SparseBackward g) {
  if (!shape.values_in_keys) return g;
  const auto d = static_cast<size_t>(shape.head_dim), dv = static_cast<size_t>(shape.value_dim);
  for (size_t i = 0; i < g.dv.size(); ++i) g.dk[i / dv * d + i % dv] += g.dv[i];
  g.dv.clear();
  return g;
}

double mean_square(const ref::Array& a, const ref::Array& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

void expect_near(const BackwardSetup& s, const char* name, const ref::Array& found,
                 const ref::Array& exact, const ref::Array& plain, double bound) {
  CAPTURE(name);
  REQUIRE(found.size() == exact.size());
  const auto finite = [](double x) { return std::isfinite(x); };
  CHECK(std::all_of(found.begin(), found.end(), finite));
  CHECK(ref::largest_error(found, exact) <= bound);
  // Of gradients that are nothing but what rounding leaves, the direction says nothing.
  const double most = ref::largest_error(exact, ref::Array(exact.size(), 0.0));
  if (most <= 4 * bound) return;
  // Twice that with sinks: a row of one key and a sink has a delta near dp, of out as it is
  // rounded.
  const double rms = (s.element == lathe::Dtype::bf16 ? 1e-2 : 2e-3) * (s.has("sinks") ? 2 : 1);
  const double size = mean_square(exact, ref::Array(exact.size(), 0.0));
  CHECK(mean_square(found, exact) <= std::max(rms * rms * size, 4 * mean_square(plain, exact)));
}

// Off by what the rounding of out changes in delta, and by sums in float32.
void expect_sinks(const BackwardSetup& s, const ref::SparseAttention& a,
                  const ref::SparseForward& forward, const ref::Array& found,
                  const ref::Array& exact) {
  ref::Array bound(exact.size(), 1e-5);
  ref::each_row(a, [&](int64_t h, const ref::SparseRow& row) {
    if (forward.lse[row.lse()] == -ref::kInfinity) return;
    double products = 0;
    for (int64_t c = 0; c < a.value_dim; ++c) {
      const size_t i = row.query(a.value_dim) + static_cast<size_t>(c);
      products += std::abs(a.dout[i] * forward.out[i]);
    }
    bound[static_cast<size_t>(h)] += std::exp(row.sink() - forward.lse[row.lse()]) * products *
                                     (numbers::half_ulp(s.dtype()) + 1e-5);
  });
  REQUIRE(found.size() == exact.size());
  for (size_t h = 0; h < exact.size(); ++h) CHECK(std::abs(found[h] - exact[h]) <= bound[h]);
}

// A dense tensor of gradients, undefined at first.
struct Gradient {
  void* at = nullptr;
  long long batch = 0, token = 0, head = 0;
  size_t count = 0;
};

class Backward {
 public:
  Backward(const lathe::Compiler& nvrtc, const BackwardSetup& setup, const Shape& shape,
           const ref::SparseAttention& a, const BackwardRun& how)
      : nvrtc_(nvrtc), s_(setup), shape_(shape), a_(a), how_(how) {
    device_.settings.seed = how.seed, device_.settings.async_policy = how.async;
    device_.settings.tensor_sum = how.tensor_sum;
  }

  BackwardFound run(const ref::SparseForward& forward) {
    in_ = upload(device_, shape_, a_, s_.dtype(), s_.has("wide"));
    kernels_ = lathe::sparse_backward_specs(s_.problem(), s_.tile);
    const lathe::SparseShape extent = {shape_.packed ? 1 : in_.sequences,
                                       a_.heads,
                                       a_.kv_heads,
                                       in_.seq_q,
                                       in_.seq_k,
                                       a_.topk,
                                       a_.block};
    const lathe::SparseGradients wanted = {how_.dq, how_.dk, how_.dv, s_.has("sinks")};
    auto planned = lathe::sparse_backward_launch(s_.problem(), kernels_, extent, wanted);
    REQUIRE(planned.ok());
    launch_ = *planned;
    in_.head_tiles = static_cast<int>(launch_.head_tiles);
    workspace_ = device_.buffer(static_cast<uint64_t>(launch_.workspace.total) + 16);
    place_gradients();
    prepare(forward);
    if (how_.chunk > 0) launch_.chunk = std::min(how_.chunk, launch_.chunk);
    for (int64_t row = 0; row < launch_.rows; row += launch_.chunk) main(row);
    finish();
    return found();
  }

 private:
  void* part(int64_t offset) const { return at(workspace_ + static_cast<uint64_t>(offset)); }
  Gradient tensor(bool keys, int heads, int width) {
    Gradient g;
    dense_strides(shape_, keys, heads, width, &g.batch, &g.token, &g.head);
    g.count = static_cast<size_t>((keys ? a_.keys() : a_.rows()) * heads * width);
    if (width > 0) g.at = at(device_.buffer(g.count * 2 + 16));
    return g;
  }
  void place_gradients() {
    dq_ = tensor(false, in_.heads, how_.dq ? shape_.head_dim : 0);
    dq_rope_ = tensor(false, in_.heads, how_.dq ? shape_.rope_dim : 0);
    dk_ = tensor(true, in_.kv_heads, how_.dk ? shape_.head_dim : 0);
    dk_rope_ = tensor(true, in_.kv_heads, how_.dk ? shape_.rope_dim : 0);
    dv_ = tensor(true, in_.kv_heads, has_dv() ? shape_.value_dim : 0);
    if (s_.has("sinks")) dsinks_ = at(device_.buffer(static_cast<uint64_t>(in_.heads) * 4));
  }
  bool has_dv() const { return how_.dv && !shape_.values_in_keys; }
  bool ordered() const { return s_.has("ordered") && (how_.dk || has_dv()); }
  template <class Params>
  sim::Counters launch(const lathe::KernelSpec& spec, int64_t blocks, const Params& p) {
    return sparse_case::launch(device_, spec, compile(nvrtc_, spec, how_.arch), blocks, p);
  }

  void prepare(const ref::SparseForward& forward) {
    const lathe::SparseBackwardWorkspace& w = launch_.workspace;
    lathe::SparseBackwardPrepareParams p = {};
    std::vector<float> lse(forward.lse.begin(), forward.lse.end());
    lse.resize(lse.size() + 4);
    p.out = at(device_.upload(encode(s_.dtype(), forward.out)));
    p.dout = at(device_.upload(encode(s_.dtype(), a_.dout)));
    p.lse = at(device_.upload(lse)), p.sinks = in_.sinks;
    p.delta = part(w.delta), p.dsinks_parts = part(w.dsinks_parts), p.zeroed = part(w.zeroed);
    dense_strides(shape_, false, in_.heads, shape_.value_dim, &p.out_batch_stride,
                  &p.out_token_stride, &p.out_head_stride);
    p.dout_batch_stride = p.out_batch_stride, p.dout_token_stride = p.out_token_stride;
    p.dout_head_stride = p.out_head_stride;
    p.zero_chunks = launch_.zero_chunks();
    p.rows = static_cast<int>(launch_.rows), p.seq_q = in_.seq_q;
    p.heads = in_.heads, p.value_dim = in_.value_dim;
    p.tiles = static_cast<int>(launch_.prepare_tiles);
    launch(*kernels_.prepare, launch_.prepare_blocks, p);
    dout_ = p.dout, lse_ = p.lse, delta_ = p.delta;
  }
  void main(int64_t first) {
    const lathe::SparseBackwardWorkspace& w = launch_.workspace;
    lathe::SparseBackwardParams p = {};
    p.in = in_, p.dout = dout_, p.lse = lse_, p.delta = delta_;
    p.dq = dq_.at, p.dq_rope = dq_rope_.at;
    if (how_.dk) p.dk = part(w.dk_sums);
    if (has_dv()) p.dv = part(w.dv_sums);
    dense_strides(shape_, false, in_.heads, shape_.value_dim, &p.dout_batch_stride,
                  &p.dout_token_stride, &p.dout_head_stride);
    p.dq_batch_stride = dq_.batch, p.dq_token_stride = dq_.token, p.dq_head_stride = dq_.head;
    p.dq_rope_batch_stride = dq_rope_.batch, p.dq_rope_token_stride = dq_rope_.token;
    p.dq_rope_head_stride = dq_rope_.head;
    p.first_row = static_cast<int>(first), p.chunk = static_cast<int>(launch_.chunk);
    p.entries = static_cast<int>(a_.topk * a_.block);
    const int64_t rows = std::min(launch_.chunk, launch_.rows - first);
    if (ordered()) {
      p.slots = part(w.slots), p.listed = part(w.listed), p.lengths = part(w.lengths);
      p.counts = part(w.counts);
    }
    counters_.add(launch(*kernels_.main, rows * launch_.row_blocks, p));
    if (ordered()) gather(p, rows);
  }
  void gather(const lathe::SparseBackwardParams& from, int64_t rows) {
    const lathe::SparseBackwardWorkspace& w = launch_.workspace;
    lathe::SparseBackwardGatherParams p = {};
    p.slots = from.slots, p.listed = from.listed, p.lengths = from.lengths, p.counts = from.counts;
    p.ranges = part(w.ranges), p.index = part(w.index), p.cursor = part(w.cursor);
    p.dk = from.dk, p.dv = from.dv;
    p.keys = launch_.keys * in_.kv_heads;
    p.chunk = from.chunk, p.rows = static_cast<int>(rows);
    p.kv_heads = in_.kv_heads, p.head_tiles = in_.head_tiles, p.entries = from.entries;
    p.key_width = shape_.head_dim + shape_.rope_dim;
    p.value_width = shape_.values_in_keys ? 0 : shape_.value_dim;
    launch(*kernels_.ranges, launch_.ranges_blocks, p);
    launch(*kernels_.fill, rows * in_.kv_heads, p);
    launch(*kernels_.gather, launch_.gather_blocks, p);
  }
  void finish() {
    const lathe::SparseBackwardWorkspace& w = launch_.workspace;
    lathe::SparseBackwardFinishParams p = {};
    p.dk_sums = part(w.dk_sums), p.dv_sums = part(w.dv_sums);
    p.dsinks_parts = part(w.dsinks_parts);
    p.dk = dk_.at, p.dk_rope = dk_rope_.at, p.dv = dv_.at, p.dsinks = dsinks_;
    p.dk_batch_stride = dk_.batch, p.dk_token_stride = dk_.token, p.dk_head_stride = dk_.head;
    p.dk_rope_batch_stride = dk_rope_.batch, p.dk_rope_token_stride = dk_rope_.token;
    p.dk_rope_head_stride = dk_rope_.head;
    p.dv_batch_stride = dv_.batch, p.dv_token_stride = dv_.token, p.dv_head_stride = dv_.head;
    p.keys = launch_.keys, p.seq_k = in_.seq_k, p.heads = in_.heads, p.kv_heads = in_.kv_heads;
    p.head_dim = in_.head_dim, p.rope_dim = in_.rope_dim, p.value_dim = in_.value_dim;
    p.tiles = static_cast<int>(launch_.prepare_tiles);
    p.dk_blocks = static_cast<int>(launch_.dk_blocks);
    p.dv_blocks = static_cast<int>(launch_.dv_blocks);
    p.dsinks_blocks = static_cast<int>(launch_.dsinks_blocks);
    launch(*kernels_.finish, launch_.finish_blocks(), p);
  }
  BackwardFound found() {
    BackwardFound out;
    out.main = counters_;
    const auto take = [&](const Gradient& from, ref::Array* to) {
      if (from.at == nullptr) return;
      *to = decode(device_, s_.dtype(), from.at, from.count);
      out.bits.push_back(
          device_.download<char>(reinterpret_cast<uint64_t>(from.at), from.count * 2));
    };
    take(dq_, &out.numbers.dq), take(dq_rope_, &out.numbers.dq_rope);
    take(dk_, &out.numbers.dk), take(dk_rope_, &out.numbers.dk_rope);
    take(dv_, &out.numbers.dv);
    if (dsinks_ != nullptr) {
      const auto count = static_cast<size_t>(in_.heads);
      out.numbers.dsinks = decode(device_, LATHE_F32, dsinks_, count);
      out.bits.push_back(device_.download<char>(reinterpret_cast<uint64_t>(dsinks_), count * 4));
    }
    return out;
  }

  const lathe::Compiler& nvrtc_;
  const BackwardSetup& s_;
  const Shape& shape_;
  const ref::SparseAttention& a_;
  const BackwardRun& how_;
  sim::test::Device device_{how_.arch};
  lathe::SparseInputs in_ = {};
  lathe::SparseBackwardKernels kernels_;
  lathe::SparseBackwardLaunch launch_;
  uint64_t workspace_ = 0;
  Gradient dq_, dq_rope_, dk_, dk_rope_, dv_;
  void* dsinks_ = nullptr;
  const void *dout_ = nullptr, *lse_ = nullptr, *delta_ = nullptr;
  sim::Counters counters_;
};

}  // namespace

lathe::SparseProblem BackwardSetup::problem() const {
  lathe::SparseProblem p;
  p.element = element;
  p.cu_seqlens = has("wide") ? lathe::Dtype::i64 : lathe::Dtype::i32;
  p.head_dim = head_dim, p.rope_dim = rope_dim, p.value_dim = value_dim;
  p.packed = has("packed"), p.sinks = p.dsinks = has("sinks");
  p.values_in_keys = has("values_in_keys");
  p.backward = true, p.deterministic = has("ordered");
  return p;
}

Shape BackwardSetup::shape() const {
  Shape shape;
  shape.head_dim = head_dim, shape.rope_dim = rope_dim, shape.value_dim = value_dim;
  shape.packed = has("packed"), shape.sinks = has("sinks");
  shape.values_in_keys = has("values_in_keys");
  return shape;
}

BackwardFound run_backward(const lathe::Compiler& nvrtc, const BackwardSetup& setup,
                           const Shape& shape, const ref::SparseAttention& a,
                           const ref::SparseForward& forward, const BackwardRun& how) {
  return Backward(nvrtc, setup, shape, a, how).run(forward);
}

void expect_gradients(const BackwardSetup& s, const Shape& shape, const ref::SparseAttention& a,
                      const ref::SparseForward& forward, const BackwardFound& found) {
  const ref::Round round = rounding(s);
  const auto exact = joined(shape, ref::sparse_backward(a, forward));
  const auto plain = joined(shape, ref::sparse_plain_backward(a, round));
  const double ratio = s.has("sinks") ? 3 : 2;
  const auto each = [&](const char* name, auto member) {
    expect_near(s, name, found.numbers.*member, exact.*member, plain.*member,
                ref::max2x_bound(exact.*member, plain.*member, ratio, round));
  };
  each("dq", &ref::SparseBackward::dq), each("dk", &ref::SparseBackward::dk);
  each("dv", &ref::SparseBackward::dv), each("dq_rope", &ref::SparseBackward::dq_rope);
  each("dk_rope", &ref::SparseBackward::dk_rope);
  if (s.has("sinks")) expect_sinks(s, a, forward, found.numbers.dsinks, exact.dsinks);
}

}  // namespace sparse_case
