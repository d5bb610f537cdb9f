// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_forward on the simulator, under every checker, against plain loops in double: random
// shapes for each of a set of configurations that covers every width, tile, type and flag.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>

#include "codegen/base/text.h"
#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/attention.h"
#include "tests/numbers.h"

using lathe::AttentionForwardParams;
using lathe::Constant;
using lathe::Dtype;
using lathe::KernelSpec;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Setup {
  lathe_dtype element;
  int width, value_width, m, n, stages, warps;
  bool wide_offsets = false;
  std::string flags;  // of packed, local, softcap, alibi, sinks, pack_gqa, listed
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

KernelSpec spec_of(const Setup& s) {
  KernelSpec spec;
  spec.kernel = "attention_forward";
  spec.source = "attention/attention_forward.cuh";
  spec.params = "AttentionForwardParams";
  spec.params_bytes = sizeof(AttentionForwardParams);
  spec.last_field = "softcap";
  spec.last_field_offset = offsetof(AttentionForwardParams, softcap);
  spec.smem = "AttentionForwardSmem";
  spec.smem_bytes = 2 * (s.m * s.width + s.stages * s.n * (s.width + s.value_width));
  spec.threads = 32 * s.warps;
  spec.constants = {
      Constant::type("element", "Element", s.element == LATHE_BF16 ? Dtype::bf16 : Dtype::f16),
      Constant::type("cu", "CuSeqlens", s.wide_offsets ? Dtype::i64 : Dtype::i32),
      Constant::integer("width", "kWidth", s.width),
      Constant::integer("value_width", "kValueWidth", s.value_width),
      Constant::integer("m", "kTileM", s.m),
      Constant::integer("n", "kTileN", s.n),
      Constant::integer("stages", "kStages", s.stages),
      Constant::flag("packed", "kPacked", s.has("packed")),
      Constant::flag("local", "kLocal", s.has("local")),
      Constant::flag("softcap", "kSoftcap", s.has("softcap")),
      Constant::flag("alibi", "kAlibi", s.has("alibi")),
      Constant::flag("sinks", "kSinks", s.has("sinks")),
      Constant::flag("pack_gqa", "kPackGqa", s.has("pack_gqa")),
      Constant::flag("listed", "kListed", s.has("listed"))};
  return spec;
}

// One call. Without `packed` every sequence has the same lengths.
struct Call {
  std::vector<int> rows, keys;  // by sequence
  int padding_q = 0, padding_k = 0;
  int kv_heads = 1, group = 1;
  int head_dim = 64, value_dim = 64;
  int left = -1, right = -1;
  double scale = 0.125, softcap = 0;
  bool slope_per_sequence = false, ones = false;
  uint32_t seed = 1;

  int heads() const { return kv_heads * group; }
};

struct Data {
  std::vector<double> q, k, v;  // rounded; [token][head][width], sequences one after another
  std::vector<float> slopes, sinks;
  std::vector<int> start_q = {0}, start_k = {0};
};

struct Result {
  std::vector<double> out, lse;  // [token][head][DV], [token][head]
};

Data make_data(const Setup& s, const Call& c) {
  Data d;
  std::mt19937 random(c.seed);
  std::normal_distribution<double> normal;
  for (const int n : c.rows) d.start_q.push_back(d.start_q.back() + n);
  for (const int n : c.keys) d.start_k.push_back(d.start_k.back() + n);
  const auto fill = [&](std::vector<double>& x, int tokens, int padding, int heads, int width) {
    const size_t row = static_cast<size_t>(heads) * width;
    x.resize(tokens * row);
    for (double& value : x) value = numbers::rounded(s.element, normal(random));
    x.resize((tokens + padding) * row, std::nan(""));  // must reach nothing
  };
  fill(d.q, d.start_q.back(), c.padding_q, c.heads(), c.head_dim);
  fill(d.k, d.start_k.back(), c.padding_k, c.kv_heads, c.head_dim);
  fill(d.v, d.start_k.back(), c.padding_k, c.kv_heads, c.value_dim);
  if (c.ones) {
    for (double& value : d.v) value = std::isnan(value) ? value : 1.0;
  }
  const size_t slopes = c.heads() * (c.slope_per_sequence ? c.rows.size() : 1);
  for (size_t i = 0; i < slopes; ++i) d.slopes.push_back(std::exp2f(-1.0f - static_cast<float>(i)));
  for (int i = 0; i < c.heads(); ++i) d.sinks.push_back(static_cast<float>(normal(random)));
  d.sinks[0] = c.seed % 3 == 0 ? -std::numeric_limits<float>::infinity() : d.sinks[0];
  return d;
}

// The definition. `plain`: rounded where a textbook program in the element type would round.
Result define(const Setup& s, const Call& c, const Data& d, bool plain) {
  const auto round = [&](double x) { return plain ? numbers::rounded(s.element, x) : x; };
  const int total = d.start_q.back() + c.padding_q;
  Result r;
  r.out.assign(static_cast<size_t>(total) * c.heads() * c.value_dim, 0.0);
  r.lse.assign(static_cast<size_t>(total) * c.heads(), -kInfinity);
  for (size_t b = 0; b < c.rows.size(); ++b) {
    const int off = c.keys[b] - c.rows[b];
    for (int i = 0; i < c.rows[b]; ++i) {
      for (int h = 0; h < c.heads(); ++h) {
        const size_t row = static_cast<size_t>(d.start_q[b] + i) * c.heads() + h;
        const auto key_row = [&](int j) {
          return static_cast<size_t>(d.start_k[b] + j) * c.kv_heads + h / c.group;
        };
        std::vector<double> x(c.keys[b], -kInfinity);
        const double sink = s.has("sinks") ? d.sinks[h] : -kInfinity;
        double most = sink;
        for (int j = 0; j < c.keys[b]; ++j) {
          if (c.left >= 0 && j < int64_t{i} + off - c.left) continue;
          if (c.right >= 0 && j > int64_t{i} + off + c.right) continue;
          double sum = 0;
          for (int e = 0; e < c.head_dim; ++e) {
            sum += d.q[row * c.head_dim + e] * round(d.k[key_row(j) * c.head_dim + e] * c.scale);
          }
          sum = round(sum);
          if (s.has("softcap")) sum = round(c.softcap * std::tanh(sum / c.softcap));
          if (s.has("alibi")) {
            const size_t slope = (c.slope_per_sequence ? b * c.heads() : 0) + h;
            sum = round(sum - d.slopes[slope] * std::abs(i + off - j));
          }
          x[j] = sum;
          most = std::max(most, sum);
        }
        if (most == -kInfinity) continue;
        double sum = std::exp(sink - most);
        for (const double score : x) sum += std::exp(score - most);
        r.lse[row] = most + std::log(sum);
        for (int j = 0; j < c.keys[b]; ++j) {
          const double weight = round(std::exp(x[j] - most) / sum);
          if (weight == 0) continue;
          for (int e = 0; e < c.value_dim; ++e) {
            r.out[row * c.value_dim + e] += weight * d.v[key_row(j) * c.value_dim + e];
          }
        }
        for (int e = 0; e < c.value_dim; ++e) {
          r.out[row * c.value_dim + e] = round(r.out[row * c.value_dim + e]);
        }
      }
    }
  }
  return r;
}

std::vector<uint16_t> encode(lathe_dtype dtype, const std::vector<double>& values) {
  std::vector<uint16_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    unsigned char bytes[8] = {};
    numbers::encode(dtype, values[i], bytes);
    bits[i] = numbers::get<uint16_t>(bytes);
  }
  return bits;
}

template <class T>
uint64_t upload_some(sim::test::Device& device, std::vector<T> values) {
  if (values.empty()) values.resize(8);
  return device.upload(values);
}

bool kept(const Call& c, size_t b, int row, int key) {
  const int64_t position = int64_t{row} + c.keys[b] - c.rows[b];
  return (c.left < 0 || key >= position - c.left) && (c.right < 0 || key <= position + c.right);
}

// The blocks that each tile of rows has to visit, pair by pair.
struct Lists {
  std::vector<int> entries, counts;
  int stride = 1;
};
constexpr int kNobody = 0x7fffffff;
Lists make_lists(const Setup& s, const Call& c, int tiles) {
  Lists lists;
  const int ratio = s.has("pack_gqa") ? c.group : 1;
  for (const int keys : c.keys) lists.stride = std::max(lists.stride, (keys + s.n - 1) / s.n);
  const size_t total =
      c.heads() / ratio * (s.has("packed") ? tiles + c.rows.size() : tiles * c.rows.size());
  lists.counts.assign(total, kNobody);  // what is not written below must not be looked at
  lists.entries.assign(total * lists.stride, kNobody);
  size_t start = 0;
  for (size_t b = 0; b < c.rows.size(); start += c.rows[b], ++b) {
    for (int list = 0; list < c.heads() / ratio * tiles; ++list) {
      const int from = list % tiles * s.m;
      std::vector<int> own;
      for (int block = 0; block * s.n < c.keys[b]; ++block) {
        bool any = false, all = (block + 1) * s.n <= c.keys[b];
        for (int row = from / ratio; row < c.rows[b] && row * ratio < from + s.m; ++row) {
          for (int key = block * s.n; key < std::min((block + 1) * s.n, c.keys[b]); ++key) {
            (kept(c, b, row, key) ? any : all) = kept(c, b, row, key);
          }
        }
        if (any) own.push_back(2 * block + (all ? 0 : 1));
      }
      // Packed, those of a head lie as close as the rows of its sequences.
      const size_t head = list / tiles, tile = list % tiles;
      const size_t at = s.has("packed") ? head * (tiles + c.rows.size()) +
                                              start * static_cast<size_t>(ratio) / s.m + b + tile
                                        : b * (c.heads() / ratio * tiles) + list;
      if (from / ratio >= c.rows[b]) continue;
      REQUIRE(lists.counts.at(at) == kNobody);
      lists.counts[at] = static_cast<int>(own.size());
      std::copy(own.begin(), own.end(), lists.entries.begin() + at * lists.stride);
    }
  }
  return lists;
}

struct Run {
  Result result;
  sim::Counters counters;
};

Run run(sim::test::Device& device, const Setup& s, const Call& c, const Data& d) {
  const int heads = c.heads(), sequences = static_cast<int>(c.rows.size());
  const int total_q = d.start_q.back() + c.padding_q, total_k = d.start_k.back() + c.padding_k;
  AttentionForwardParams p = {};
  const auto at = [](uint64_t address) { return reinterpret_cast<void*>(address); };
  p.q = at(upload_some(device, encode(s.element, d.q)));
  p.k = at(upload_some(device, encode(s.element, d.k)));
  p.v = at(upload_some(device, encode(s.element, d.v)));
  const auto offsets = [&](const std::vector<int>& starts) {
    if (!s.wide_offsets) return device.upload(starts);
    return device.upload(std::vector<int64_t>(starts.begin(), starts.end()));
  };
  p.cu_seqlens_q = at(offsets(d.start_q));
  p.cu_seqlens_k = at(offsets(d.start_k));
  p.alibi_slopes = at(device.upload(d.slopes));
  p.sinks = at(device.upload(d.sinks));
  const size_t out_count = static_cast<size_t>(total_q) * heads * c.value_dim;
  const size_t lse_count = static_cast<size_t>(total_q) * heads;
  p.out = at(device.buffer(out_count * 2 + 16));
  p.lse = at(device.buffer(lse_count * 4 + 16));
  const bool packed = s.has("packed");
  const int rows = packed ? total_q : c.rows[0], keys = packed ? total_k : c.keys[0];
  p.q_head_stride = p.k_head_stride = c.head_dim;
  p.v_head_stride = p.out_head_stride = c.value_dim;
  p.q_token_stride = static_cast<long long>(heads) * c.head_dim;
  p.k_token_stride = static_cast<long long>(c.kv_heads) * c.head_dim;
  p.v_token_stride = static_cast<long long>(c.kv_heads) * c.value_dim;
  p.out_token_stride = static_cast<long long>(heads) * c.value_dim;
  p.q_batch_stride = rows * p.q_token_stride, p.out_batch_stride = rows * p.out_token_stride;
  p.k_batch_stride = keys * p.k_token_stride, p.v_batch_stride = keys * p.v_token_stride;
  p.alibi_batch_stride = c.slope_per_sequence ? heads : 0;
  p.sequences = sequences, p.heads = heads, p.kv_heads = c.kv_heads;
  p.seq_q = rows, p.seq_k = keys, p.head_dim = c.head_dim, p.value_dim = c.value_dim;
  p.window_left = c.left, p.window_right = c.right;
  const bool pack = s.has("pack_gqa");
  p.tiles = (rows * (pack ? c.group : 1) + s.m - 1) / s.m;
  p.softmax_scale = static_cast<float>(c.scale), p.softcap = static_cast<float>(c.softcap);

  const Lists lists = s.has("listed") ? make_lists(s, c, p.tiles) : Lists{};
  p.visits = at(upload_some(device, lists.entries));
  p.visit_counts = at(upload_some(device, lists.counts));
  p.visits_stride = lists.stride;

  const KernelSpec spec = spec_of(s);
  device.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
  const auto outcome =
      device.run("entry", static_cast<uint32_t>(p.tiles * (pack ? c.kv_heads : heads) * sequences),
                 static_cast<uint32_t>(spec.threads), p);
  INFO(sim::test::texts(outcome));
  REQUIRE(outcome.error == 0);
  CHECK(outcome.findings.empty());

  Run r;
  r.counters = outcome.counters;
  const auto out = device.download<uint16_t>(reinterpret_cast<uint64_t>(p.out), out_count);
  const auto lse = device.download<float>(reinterpret_cast<uint64_t>(p.lse), lse_count);
  for (const uint16_t bits : out) {
    const uint64_t padded = bits;
    r.result.out.push_back(numbers::decode(s.element, &padded));
  }
  r.result.lse.resize(lse_count);  // [B, H, Sq] or [H, Tq] -> [token][head]
  for (int h = 0; h < heads; ++h) {
    for (int row = 0; row < total_q; ++row) {
      const int b = packed ? 0 : row / rows;
      r.result.lse[static_cast<size_t>(row) * heads + h] =
          lse[(static_cast<size_t>(b) * heads + h) * rows + row - b * rows];
    }
  }
  return r;
}

void expect_near(const Setup& s, const Call& c, const Result& actual, const Result& exact,
                 const Result& plain) {
  double plain_error = 0, noise = 0, worst = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < exact.out.size(); ++i) {
    plain_error = std::max(plain_error, std::abs(plain.out[i] - exact.out[i]));
    const double rounded = numbers::rounded(s.element, exact.out[i]);
    const double there = numbers::rounded(s.element, rounded + 0.3);
    noise = std::max(noise, std::abs(numbers::rounded(s.element, there - 0.3) - rounded));
    const double error = std::abs(actual.out[i] - exact.out[i]);
    if (!(error <= worst) && !std::isnan(worst)) worst = error, worst_at = i;  // nan stays
  }
  const size_t row = worst_at / static_cast<size_t>(c.value_dim);
  INFO("worst at token " << row / c.heads() << ", head " << row % c.heads() << ", column "
                         << worst_at % c.value_dim);
  CHECK(worst <= (s.has("softcap") ? 3 : 2) * plain_error + 2 * noise);
  size_t wrong = 0, first = 0;
  for (size_t i = 0; i < exact.lse.size(); ++i) {
    const double a = actual.lse[i], r = exact.lse[i];
    const bool good = r == -kInfinity ? a == r : std::abs(a - r) <= 1e-5 + 1e-5 * std::abs(r);
    if (!good && wrong++ == 0) first = i;
  }
  INFO("lse of token " << first / c.heads() << ", head " << first % c.heads() << ": "
                       << actual.lse.at(first) << " for " << exact.lse.at(first));
  CHECK(wrong == 0);
}

Call random_call(const Setup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  Call c;
  c.seed = seed;
  const bool packed = s.has("packed");
  const int sequences = packed ? one_of({1, 3, 5}) : one_of({1, 2});
  const int rows = one_of({1, 5, 64, 97, 113, 150}), keys = one_of({0, 1, 63, 64, 97, 130, 203});
  for (int b = 0; b < sequences; ++b) {
    c.rows.push_back(packed ? one_of({0, 1, 17, 64, 130}) : rows);
    c.keys.push_back(packed ? one_of({0, 1, 40, 64, 129, 200}) : keys);
  }
  if (packed) c.padding_q = one_of({0, 3, 140}), c.padding_k = one_of({0, 3});
  c.kv_heads = one_of({1, 2}), c.group = one_of({1, 2, 3});
  c.head_dim = s.width - one_of({0, 8, 24}), c.value_dim = s.value_width - one_of({0, 8, 24});
  c.scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  if (s.has("softcap")) c.softcap = one_of({1, 3, 30});
  c.slope_per_sequence = random() % 2 == 0;
  if (s.has("local")) {
    c.left = one_of({-1, -1, 0, 1, 40, 64, 300, 0x7fffffff});
    c.right = one_of({-1, 0, 0, 0, 3, 70, 0x7fffffff});
  }
  return c;
}

const std::vector<Setup> kSetups = {
    {LATHE_BF16, 64, 64, 128, 64, 2, 4, false, ""},
    {LATHE_F16, 64, 64, 128, 64, 2, 4, false, "local alibi"},
    {LATHE_F16, 64, 64, 128, 64, 2, 4, false, "local listed"},
    {LATHE_BF16, 96, 96, 128, 64, 2, 4, true, "packed local sinks"},
    {LATHE_BF16, 128, 128, 128, 64, 2, 4, false, ""},
    {LATHE_F16, 128, 128, 128, 64, 2, 8, false, "local"},
    {LATHE_BF16, 128, 128, 128, 64, 2, 8, false, "packed local softcap sinks pack_gqa listed"},
    {LATHE_F16, 128, 128, 128, 64, 2, 8, false, "packed local softcap alibi sinks"},
    {LATHE_BF16, 128, 128, 128, 64, 2, 8, false, "packed local softcap alibi sinks pack_gqa"},
    {LATHE_F16, 128, 128, 64, 64, 2, 4, false, "packed softcap"},
    {LATHE_BF16, 128, 64, 128, 64, 1, 4, false, "local sinks pack_gqa"},
    {LATHE_F16, 192, 128, 128, 64, 1, 8, true, "packed local"},
    {LATHE_BF16, 256, 256, 128, 64, 1, 8, false, "local"},
    {LATHE_F16, 64, 256, 64, 64, 1, 4, false, "alibi pack_gqa"},
};

}  // namespace

TEST_CASE("attention_forward: random shapes on every configuration, under every check") {
  const auto opened = lathe::Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const KernelSpec spec = spec_of(s);
    CAPTURE(spec.text());
    const auto compiled = (*opened)->compile(lathe::emit_unit(spec, "sm_80"), "sm_80");
    REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
    const lathe::CompileReport& report = compiled->report;
    MESSAGE(spec.text(), ": ", report.registers, " registers, ", report.spill_stores, " spilt");
    if (std::max(s.width, s.value_width) <= 128) {
      CHECK(report.stack_bytes == 0);
      CHECK(report.spill_stores == 0);
    }
    for (int turn = 0; turn < 6; ++turn, ++seed) {
      Call c = random_call(s, seed);
      c.ones = turn == 5;
      CAPTURE(c.seed);
      CAPTURE(c.rows[0]);
      CAPTURE(c.keys[0]);
      CAPTURE(c.left);
      CAPTURE(c.right);
      sim::test::Device device("sm_80");
      device.settings.seed = seed;
      device.settings.async_policy = static_cast<sim::AsyncPolicy>(seed % 3);
      device.load(compiled->ptx);
      const Data d = make_data(s, c);
      if (d.start_q.back() + c.padding_q == 0) continue;  // nothing to launch
      const Run r = run(device, s, c, d);
      CHECK(r.counters.shared_load.conflicts == 0);
      CHECK(r.counters.shared_store.conflicts == 0);
      const Result exact = define(s, c, d, false);
      expect_near(s, c, r.result, exact, define(s, c, d, true));
      if (c.ones && !s.has("sinks")) {
        for (size_t i = 0; i < exact.lse.size(); ++i) {
          const double all = exact.lse[i] == -kInfinity ? 0.0 : 1.0;
          for (int e = 0; e < c.value_dim; ++e) {
            REQUIRE(r.result.out[i * c.value_dim + e] == all);
          }
        }
      }
    }
  }
}
