// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/templates/attention_backward_case.h"

#include <map>

#include "tests/ref/attention_plain.h"

namespace backward {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

ref::Round rounding(lathe_dtype element) {
  return element == LATHE_BF16 ? +[](double x) { return numbers::rounded(LATHE_BF16, x); }
                               : +[](double x) { return numbers::rounded(LATHE_F16, x); };
}

void expect_near(const Setup& s, const char* name, const Array& actual, const Array& exact,
                 const Array& plain) {
  CAPTURE(name);
  REQUIRE(actual.size() == exact.size());
  const ref::Round round = rounding(s.element);
  const bool capped = s.has("softcap"), packed_sinks = s.has("sinks") && s.has("packed");
  const double bound =
      ref::max2x_bound(exact, plain, capped || packed_sinks ? 3 : 2, round, capped ? 3e-4 : 0);
  size_t not_finite = 0;
  for (const double value : actual) not_finite += !std::isfinite(value);
  CHECK(not_finite == 0);
  CHECK(ref::largest_error(actual, exact) <= bound);
  // Of gradients that are nothing but what rounding leaves, the direction says nothing.
  const auto most = std::max_element(exact.begin(), exact.end(),
                                     [](double x, double y) { return std::abs(x) < std::abs(y); });
  if (most == exact.end() || std::abs(*most) < bound) return;
  const double own = ref::cosine_difference(plain, exact);
  CHECK(ref::cosine_difference(actual, exact) < std::max(1e-5, 5 * own));
}

// Off by what the rounding of out changes in delta, and by sums in float32.
void expect_sinks(const Setup& s, const ref::Attention& a, const ref::AttentionForward& forward,
                  const Array& actual, const Array& exact) {
  Array bound(exact.size(), 1e-5);
  ref::each_row(a, [&](int64_t h, const ref::AttentionRow& row) {
    if (forward.lse[row.lse()] == -kInfinity) return;
    double products = 0;
    for (int64_t c = 0; c < a.value_dim; ++c) {
      products += std::abs(a.dout[row.out() + c] * forward.out[row.out() + c]);
    }
    const double weight = std::exp(row.sink() - forward.lse[row.lse()]);
    bound[h] += weight * products * (numbers::half_ulp(s.element) + 1e-5);
  });
  REQUIRE(actual.size() == exact.size());
  for (size_t h = 0; h < exact.size(); ++h) CHECK(std::abs(actual[h] - exact[h]) <= bound[h]);
}

}  // namespace

Kernels kernels_of(const lathe::Compiler& compiler, const Setup& s, const std::string& arch) {
  static std::map<std::string, lathe::CompiledUnit> known;
  const auto built = [&](const KernelSpec& spec) {
    const std::string unit = lathe::emit_unit(spec, arch);
    const auto [at, fresh] = known.try_emplace(unit);
    if (fresh) {
      const auto compiled = compiler.compile(unit, arch);
      REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
      at->second = *compiled;
    }
    return at->second;
  };
  const Specs specs = specs_of(s);
  return {specs, built(specs.prepare), built(specs.main), built(specs.finish)};
}

void expect_gradients(const Setup& s, const ref::Attention& a, const ref::AttentionForward& forward,
                      const Outcome& outcome) {
  const ref::AttentionBackward exact = ref::attention_backward(a, forward);
  const ref::AttentionBackward plain = ref::plain_backward(a, rounding(s.element));
  const ref::AttentionBackward actual = outcome.numbers(s.element);
  expect_near(s, "dq", actual.dq, exact.dq, plain.dq);
  expect_near(s, "dk", actual.dk, exact.dk, plain.dk);
  expect_near(s, "dv", actual.dv, exact.dv, plain.dv);
  if (s.has("sinks")) expect_sinks(s, a, forward, actual.dsinks, exact.dsinks);
}

Launch::Placed Launch::place(const Array* values, int64_t tokens, int heads, int width, int seq) {
  Placed placed;
  placed.head = width, placed.token = static_cast<long long>(heads) * width + c_.gap;
  placed.batch = seq * placed.token;
  const size_t count = static_cast<size_t>(tokens * placed.token) + 8;
  const size_t bytes = numbers::bytes_of(s_.element);
  if (values == nullptr) {
    placed.at = pointer(device_.buffer(count * bytes));
    return placed;
  }
  std::vector<char> memory(count * bytes);
  const auto put = [&](size_t i, double value) {
    numbers::encode(s_.element, value, &memory[i * bytes]);
  };
  for (size_t i = 0; i < count; ++i) put(i, std::nan(""));
  for (size_t i = 0; i < values->size(); ++i) {
    const size_t row = static_cast<size_t>(heads) * width;
    put(i / row * placed.token + i % row, (*values)[i]);
  }
  placed.at = pointer(device_.upload(memory));
  return placed;
}

std::vector<uint32_t> Launch::fetch(const Placed& from, int64_t tokens, int heads,
                                    int width) const {
  const size_t bytes = numbers::bytes_of(s_.element);
  const auto memory = device_.download<char>(address(from.at), (tokens * from.token + 8) * bytes);
  std::vector<uint32_t> values;
  for (int64_t token = 0; token < tokens; ++token) {
    for (int i = 0; i < heads * width; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &memory[(token * from.token + i) * bytes], bytes);
      values.push_back(bits);
    }
  }
  return values;
}

template <class Params>
sim::Counters Launch::launch(const KernelSpec& spec, const lathe::CompiledUnit& unit,
                             int64_t blocks, const Params& params) {
  if (blocks == 0) return {};
  device_.load(unit.ptx);
  device_.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome = device_.run("entry", static_cast<uint32_t>(blocks),
                                   static_cast<uint32_t>(spec.threads), params);
  INFO(spec.text());
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());
  return outcome.counters;
}

Outcome Launch::run(const ref::Attention& a, const ref::AttentionForward& forward) {
  const int heads = c_.heads(), sequences = static_cast<int>(c_.rows.size());
  const bool packed = s_.has("packed"), ordered = s_.has("ordered"), apart = s_.has("apart");
  const int rows = static_cast<int>(a.rows());
  const int keys = static_cast<int>(a.begin_k.back()) + c_.padding_k;
  const int seq_q = packed ? rows : c_.rows[0], seq_k = packed ? keys : c_.keys[0];
  const Placed q = place(&a.q, rows, heads, c_.head_dim, seq_q);
  const Placed k = place(&a.k, keys, c_.kv_heads, c_.head_dim, seq_k);
  const Placed v = place(&a.v, keys, c_.kv_heads, c_.value_dim, seq_k);
  Array padded_out = forward.out;
  std::fill(padded_out.begin() + a.begin_q.back() * heads * c_.value_dim, padded_out.end(),
            std::nan(""));
  const Placed out = place(&padded_out, rows, heads, c_.value_dim, seq_q);
  const Placed dout = place(&a.dout, rows, heads, c_.value_dim, seq_q);
  const Placed dq = place(nullptr, rows, heads, c_.head_dim, seq_q);
  const Placed dk = place(nullptr, keys, c_.kv_heads, c_.head_dim, seq_k);
  const Placed dv = place(nullptr, keys, c_.kv_heads, c_.value_dim, seq_k);

  const int64_t key_tiles = ceil_div(seq_k, s_.n), row_tiles = ceil_div(rows, kPrepareRows);
  lathe::AttentionBackwardPrepareParams first = {};
  first.out = out.at, first.dout = dout.at;
  first.out_batch_stride = out.batch, first.dout_batch_stride = dout.batch;
  first.out_token_stride = out.token, first.dout_token_stride = dout.token;
  first.out_head_stride = first.dout_head_stride = c_.value_dim;
  first.lse = floats(forward.lse), first.dlse = floats(a.dlse), first.sinks = floats(a.sinks);
  first.cu_seqlens_q = offsets(a.begin_q);
  first.lse2 = pointer(device_.buffer(static_cast<uint64_t>(rows) * heads * 4 + 4));
  first.error = pointer(device_.buffer(static_cast<uint64_t>(rows) * heads * 4 + 4));
  first.row_batch_stride = seq_q, first.row_head_stride = rows;
  first.dq_head_stride = c_.head_dim, first.dq_token_stride = heads * c_.head_dim;
  first.dq_batch_stride = seq_q * first.dq_token_stride;
  first.dq_slice_stride = rows * first.dq_token_stride;
  first.slices = ordered ? c_.slices : 1;
  first.dq = pointer(device_.buffer(first.slices * first.dq_slice_stride * 4 + 16));
  first.dsinks_parts = pointer(device_.buffer(static_cast<uint64_t>(row_tiles) * heads * 4 + 4));
  first.sequences = sequences, first.heads = heads, first.seq_q = seq_q, first.rows = rows;
  first.head_dim = c_.head_dim, first.value_dim = c_.value_dim;
  first.tiles = static_cast<int>(row_tiles);
  launch(kernels_.specs.prepare, kernels_.prepare, row_tiles * heads, first);

  lathe::AttentionBackwardParams p = {};
  p.q = q.at, p.k = k.at, p.v = v.at, p.dout = dout.at;
  p.lse2 = first.lse2, p.error = first.error;
  p.cu_seqlens_q = first.cu_seqlens_q, p.cu_seqlens_k = offsets(a.begin_k);
  p.alibi_slopes = floats(a.alibi_slopes);
  p.q_batch_stride = q.batch, p.q_token_stride = q.token, p.q_head_stride = q.head;
  p.k_batch_stride = k.batch, p.k_token_stride = k.token, p.k_head_stride = k.head;
  p.v_batch_stride = v.batch, p.v_token_stride = v.token, p.v_head_stride = v.head;
  p.dout_batch_stride = dout.batch, p.dout_token_stride = dout.token;
  p.dout_head_stride = dout.head;
  p.dq = first.dq;
  p.dq_slice_stride = first.dq_slice_stride, p.dq_batch_stride = first.dq_batch_stride;
  p.dq_token_stride = first.dq_token_stride, p.dq_head_stride = first.dq_head_stride;
  if (apart) {
    const auto part = [&](int width) {
      return pointer(device_.buffer(static_cast<uint64_t>(keys) * heads * width * 4 + 16));
    };
    p.dk = part(c_.head_dim), p.dv = part(c_.value_dim);
    p.dk_head_stride = c_.head_dim, p.dk_token_stride = heads * c_.head_dim;
    p.dv_head_stride = c_.value_dim, p.dv_token_stride = heads * c_.value_dim;
    p.dk_batch_stride = seq_k * p.dk_token_stride, p.dv_batch_stride = seq_k * p.dv_token_stride;
  } else {
    p.dk = dk.at, p.dv = dv.at;
    p.dk_batch_stride = dk.batch, p.dk_token_stride = dk.token, p.dk_head_stride = dk.head;
    p.dv_batch_stride = dv.batch, p.dv_token_stride = dv.token, p.dv_head_stride = dv.head;
  }
  p.alibi_batch_stride = c_.slope_per_sequence ? heads : 0;
  p.sequences = sequences, p.heads = heads, p.kv_heads = c_.kv_heads;
  p.seq_q = seq_q, p.seq_k = seq_k, p.rows = rows;
  p.head_dim = c_.head_dim, p.value_dim = c_.value_dim;
  p.window_left = c_.left, p.window_right = c_.right;
  p.slices = ordered ? c_.slices : static_cast<int>(key_tiles);
  p.softmax_scale = static_cast<float>(c_.scale), p.softcap = static_cast<float>(c_.softcap);
  Outcome result;
  result.counters =
      launch(kernels_.specs.main, kernels_.main,
             keys == 0 ? 0 : int64_t{p.slices} * (apart ? heads : c_.kv_heads) * sequences, p);

  lathe::AttentionBackwardFinishParams last = {};
  last.dq_sums = first.dq, last.dq = dq.at;
  last.dq_sums_slice_stride = p.dq_slice_stride, last.dq_sums_batch_stride = p.dq_batch_stride;
  last.dq_sums_token_stride = p.dq_token_stride, last.dq_sums_head_stride = p.dq_head_stride;
  last.dq_batch_stride = dq.batch, last.dq_token_stride = dq.token, last.dq_head_stride = dq.head;
  last.dk_parts = p.dk, last.dv_parts = p.dv, last.dk = dk.at, last.dv = dv.at;
  last.dk_parts_batch_stride = p.dk_batch_stride, last.dk_parts_token_stride = p.dk_token_stride;
  last.dk_parts_head_stride = p.dk_head_stride;
  last.dv_parts_batch_stride = p.dv_batch_stride, last.dv_parts_token_stride = p.dv_token_stride;
  last.dv_parts_head_stride = p.dv_head_stride;
  last.dk_batch_stride = dk.batch, last.dk_token_stride = dk.token, last.dk_head_stride = dk.head;
  last.dv_batch_stride = dv.batch, last.dv_token_stride = dv.token, last.dv_head_stride = dv.head;
  last.dsinks_parts = first.dsinks_parts;
  last.dsinks = pointer(device_.buffer(heads * 4));
  last.heads = heads, last.kv_heads = c_.kv_heads;
  last.seq_q = seq_q, last.seq_k = seq_k, last.rows = rows, last.keys = keys;
  last.head_dim = c_.head_dim, last.value_dim = c_.value_dim;
  last.slices = first.slices, last.tiles = first.tiles, last.softmax_scale = p.softmax_scale;
  const auto blocks = [&](int64_t tokens, int64_t columns, int width) {
    return static_cast<int>(ceil_div(tokens * columns * (width / 8), kLightThreads));
  };
  last.dq_blocks = blocks(rows, heads, c_.head_dim);
  last.dk_blocks = apart ? blocks(keys, c_.kv_heads, c_.head_dim) : 0;
  last.dv_blocks = apart ? blocks(keys, c_.kv_heads, c_.value_dim) : 0;
  last.dsinks_blocks = s_.has("sinks") ? static_cast<int>(ceil_div(heads, kLightThreads / 32)) : 0;
  launch(kernels_.specs.finish, kernels_.finish,
         last.dq_blocks + last.dk_blocks + last.dv_blocks + last.dsinks_blocks, last);

  result.dq = fetch(dq, rows, heads, c_.head_dim);
  result.dk = fetch(dk, keys, c_.kv_heads, c_.head_dim);
  result.dv = fetch(dv, keys, c_.kv_heads, c_.value_dim);
  if (s_.has("sinks")) result.dsinks = device_.download<float>(address(last.dsinks), heads);
  return result;
}

}  // namespace backward
