// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// attention_append, attention_decode and attention_combine on the simulator, under every checker,
// against attention over the same keys in one piece, in double. Pages are shuffled, and whatever no
// sequence owns holds NaN.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "codegen/nvrtc.h"
#include "codegen/source.h"
#include "ops/attention/decode_kernels.h"
#include "sim/tests/kernel_run.h"
#include "templates/params/attention.h"
#include "tests/numbers.h"
#include "tests/ref/attention_plain.h"

using namespace lathe;

namespace {

struct Setup {
  lathe_dtype element;
  int head_dim, value_dim;
  AttentionTile tile;
  std::string flags;  // of local, softcap, alibi, sinks
  bool has(const char* flag) const { return flags.find(flag) != std::string::npos; }
};

AttentionProblem problem_of(const Setup& s) {
  AttentionProblem problem;
  problem.element = s.element == LATHE_BF16 ? Dtype::bf16 : Dtype::f16;
  problem.head_dim = s.head_dim, problem.value_dim = s.value_dim;
  problem.local = s.has("local"), problem.softcap = s.has("softcap");
  problem.alibi = s.has("alibi"), problem.sinks = s.has("sinks");
  problem.decode = problem.append = true;
  return problem;
}

struct Call {
  int queries = 1, kv_heads = 1, ratio = 1;
  int page = 16, table_width = 8;
  std::vector<int> cached;  // keys of each sequence before the append
  bool append = false;
  int splits = 1;
  int left = -1, right = -1;
  double scale = 0.125, softcap = 0;
  bool slope_per_sequence = false;
  bool wild_entries = false;  // behind the pages in use
  long long far_pages = 0;    // elements from page to page, as if there were gaps between them
  uint32_t seed = 1;

  int batch() const { return static_cast<int>(cached.size()); }
  int heads() const { return kv_heads * ratio; }
  int keys(int b) const { return cached[b] + (append ? queries : 0); }
  int pages_of(int keys) const { return (keys + page - 1) / page; }
};

double round_bf16(double x) { return numbers::rounded(LATHE_BF16, x); }
double round_f16(double x) { return numbers::rounded(LATHE_F16, x); }

// The whole call in one piece, and the caches that hold it.
struct Data {
  ref::Attention whole;
  std::vector<double> k_cache, v_cache, k_new, v_new;
  std::vector<int> block_table;
  int pages = 0;
};

Data make_data(const Setup& s, const Call& c) {
  Data d;
  std::mt19937 random(c.seed);
  std::normal_distribution<double> normal;
  ref::Attention& a = d.whole;
  a.heads = c.heads(), a.kv_heads = c.kv_heads;
  a.head_dim = s.head_dim, a.value_dim = s.value_dim, a.packed = false;
  a.scale = c.scale, a.softcap = s.has("softcap") ? c.softcap : 0;
  a.window_left = c.left, a.window_right = c.right;
  a.begin_q = a.begin_k = {0};
  int pages = 3;  // that nobody uses
  for (int b = 0; b < c.batch(); ++b) {
    a.begin_q.push_back(a.begin_q.back() + c.queries);
    a.begin_k.push_back(a.begin_k.back() + c.keys(b));
    pages += c.pages_of(c.keys(b));
  }
  const auto fill = [&](size_t count) {
    ref::Array values(count);
    for (double& value : values) value = numbers::rounded(s.element, normal(random));
    return values;
  };
  a.q = fill(a.begin_q.back() * a.heads * a.head_dim);
  a.k = fill(a.begin_k.back() * a.kv_heads * a.head_dim);
  a.v = fill(a.begin_k.back() * a.kv_heads * a.value_dim);
  if (s.has("sinks")) {
    for (int h = 0; h < c.heads(); ++h) a.sinks.push_back(static_cast<float>(normal(random)));
    if (c.seed % 3 == 0) a.sinks[0] = -ref::kInfinity;
  }
  if (s.has("alibi")) {
    const int count = c.heads() * (c.slope_per_sequence ? c.batch() : 1);
    for (int i = 0; i < count; ++i) a.alibi_slopes.push_back(std::exp2f(-1.0f - i % 7));
  }

  d.pages = pages;
  std::vector<int> order(pages);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  d.block_table.assign(static_cast<size_t>(c.batch()) * c.table_width, 0);
  for (int& entry : d.block_table) {
    entry = c.wild_entries ? (random() % 2 ? -7 : 0x7fffffff) : order.back();
  }
  const size_t k_row = a.kv_heads * a.head_dim, v_row = a.kv_heads * a.value_dim;
  d.k_cache.assign(static_cast<size_t>(pages) * c.page * k_row, std::nan(""));
  d.v_cache.assign(static_cast<size_t>(pages) * c.page * v_row, std::nan(""));
  size_t next = 0;
  for (int b = 0; b < c.batch(); ++b) {
    for (int j = 0; j < c.keys(b); ++j) {
      int& entry = d.block_table[static_cast<size_t>(b) * c.table_width + j / c.page];
      if (j % c.page == 0) entry = order[next++];
      const size_t row = static_cast<size_t>(entry) * c.page + j % c.page;
      const size_t from = a.begin_k[b] + j;
      const bool added = j >= c.cached[b];
      const auto place = [&](const ref::Array& all, size_t width, std::vector<double>* cache,
                             std::vector<double>* fresh) {
        const auto begin = all.begin() + from * width;
        if (added) fresh->insert(fresh->end(), begin, begin + width);
        if (!added) std::copy(begin, begin + width, cache->begin() + row * width);
      };
      place(a.k, k_row, &d.k_cache, &d.k_new);
      place(a.v, v_row, &d.v_cache, &d.v_new);
    }
  }
  return d;
}

std::vector<uint16_t> encode(lathe_dtype dtype, const std::vector<double>& values) {
  std::vector<uint16_t> bits(std::max<size_t>(values.size(), 8));
  for (size_t i = 0; i < values.size(); ++i) numbers::encode(dtype, values[i], &bits[i]);
  return bits;
}

struct Kernels {
  KernelSpec decode, append, combine;
  std::map<std::string, std::string> ptx;  // by name
};

// Append and combine are the same for most setups.
const std::string& ptx_of(const Compiler& compiler, const KernelSpec& spec) {
  static std::map<std::string, std::string> known;
  std::string& ptx = known[spec.text()];
  if (!ptx.empty()) return ptx;
  const auto compiled = compiler.compile(emit_unit(spec, "sm_80"), "sm_80");
  REQUIRE_MESSAGE(compiled.ok(), compiled.status().text());
  MESSAGE(spec.text(), ": ", compiled->report.registers, " registers");
  CHECK(compiled->report.stack_bytes == 0);
  CHECK(compiled->report.spill_stores == 0);
  return ptx = compiled->ptx;
}

Kernels compile(const Compiler& compiler, const Setup& s) {
  Kernels out;
  const AttentionProblem problem = problem_of(s);
  const auto all = attention_decode_kernels(problem, *facts_of_arch("sm_80"), {});
  REQUIRE(all.ok());
  out.decode = attention_decode_spec(problem, s.tile);
  out.append = *all->append, out.combine = *all->combine;
  for (const KernelSpec* spec : {&out.decode, &out.append, &out.combine}) {
    out.ptx[spec->kernel] = ptx_of(compiler, *spec);
  }
  return out;
}

struct Outputs {
  ref::Array out, lse;
};

class Runner {
 public:
  Runner(const Kernels& kernels, const Setup& s, const Call& c, const Data& d)
      : kernels_(kernels), s_(s), c_(c), d_(d) {
    device_.settings.seed = c.seed;
    device_.settings.async_policy = static_cast<sim::AsyncPolicy>(c.seed % 3);
    const auto at = [](uint64_t address) { return reinterpret_cast<void*>(address); };
    k_cache_ = at(device_.upload(encode(s.element, d.k_cache)));
    v_cache_ = at(device_.upload(encode(s.element, d.v_cache)));
    pages_.block_table = at(device_.upload(d.block_table));
    pages_.cache_seqlens = at(device_.upload(c.cached));
    const FastDivision division = fast_division(c.page);
    pages_.magic = division.magic, pages_.shift = division.shift;
    pages_.page = c.page, pages_.pages = d.pages;
    pages_.table_width = c.table_width, pages_.most_keys = c.page * c.table_width;
  }

  Outputs run() {
    if (c_.append) append();
    decode();
    if (c_.splits > 1) combine();
    Outputs r;
    for (const uint16_t bits : device_.download<uint16_t>(address(out_), out_count())) {
      const uint64_t padded = bits;
      r.out.push_back(numbers::decode(s_.element, &padded));
    }
    for (const float value : device_.download<float>(address(lse_), lse_count())) {
      r.lse.push_back(value);
    }
    return r;
  }
  // The caches are what the whole's keys and values are, and otherwise what they were.
  void check_caches() {
    for (const bool keys : {true, false}) {
      const size_t width = c_.kv_heads * (keys ? s_.head_dim : s_.value_dim);
      std::vector<double> expected = keys ? d_.k_cache : d_.v_cache;
      for (int b = 0; b < c_.batch(); ++b) {
        for (int j = c_.cached[b]; j < c_.keys(b); ++j) {
          const int entry = d_.block_table[b * c_.table_width + j / c_.page];
          const size_t to = (static_cast<size_t>(entry) * c_.page + j % c_.page) * width;
          const auto& all = keys ? d_.whole.k : d_.whole.v;
          const auto from = all.begin() + (d_.whole.begin_k[b] + j) * width;
          std::copy(from, from + width, expected.begin() + to);
        }
      }
      const auto bits = encode(s_.element, expected);
      CHECK(device_.download<uint16_t>(address(keys ? k_cache_ : v_cache_), bits.size()) == bits);
    }
  }
  const sim::Counters& counters() const { return counters_; }

 private:
  static uint64_t address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }
  // The cache's address as if its pages were far apart: that of the one page in use is the same.
  void* far(void* cache, int width) const {
    if (c_.far_pages == 0) return cache;
    const long long own = static_cast<long long>(c_.page) * c_.kv_heads * width;
    return static_cast<char*>(cache) + 2 * d_.block_table[0] * (own - c_.far_pages);
  }
  size_t lse_count() const { return static_cast<size_t>(c_.batch()) * c_.heads() * c_.queries; }
  size_t out_count() const { return lse_count() * s_.value_dim; }

  template <class Params>
  void launch(const KernelSpec& spec, size_t blocks, const Params& p) {
    device_.load(kernels_.ptx.at(spec.kernel));
    device_.dynamic_shared = static_cast<uint32_t>(spec.smem_bytes);
    const auto outcome =
        device_.run("entry", static_cast<uint32_t>(blocks), static_cast<uint32_t>(spec.threads), p);
    INFO(spec.kernel << ": " << sim::test::texts(outcome));
    REQUIRE(outcome.error == 0);
    CHECK(outcome.findings.empty());
    counters_ = outcome.counters;
    CHECK(counters_.shared_load.conflicts == 0);
    CHECK(counters_.shared_store.conflicts == 0);
  }

  void append() {
    AttentionAppendParams p = {};
    p.k_new = reinterpret_cast<void*>(device_.upload(encode(s_.element, d_.k_new)));
    p.v_new = reinterpret_cast<void*>(device_.upload(encode(s_.element, d_.v_new)));
    p.k_cache = far(k_cache_, s_.head_dim), p.v_cache = far(v_cache_, s_.value_dim);
    p.pages = pages_;
    p.seq_q = c_.queries, p.kv_heads = c_.kv_heads;
    p.k_words = s_.head_dim / 8, p.v_words = s_.value_dim / 8;
    p.k_head_stride = p.k_cache_head_stride = p.k_words;
    p.v_head_stride = p.v_cache_head_stride = p.v_words;
    p.k_token_stride = p.k_row_stride = p.k_words * c_.kv_heads;
    p.v_token_stride = p.v_row_stride = p.v_words * c_.kv_heads;
    p.k_batch_stride = p.k_token_stride * c_.queries, p.k_page_stride = p.k_row_stride * c_.page;
    p.v_batch_stride = p.v_token_stride * c_.queries, p.v_page_stride = p.v_row_stride * c_.page;
    if (c_.far_pages) p.k_page_stride = p.v_page_stride = c_.far_pages / 8;
    launch(kernels_.append, c_.batch() * c_.queries, p);
  }

  void decode() {
    AttentionDecodeParams all = {};
    AttentionForwardParams& p = all.forward;
    const auto at = [](uint64_t address) { return reinterpret_cast<void*>(address); };
    const auto floats = [&](const ref::Array& values) {
      std::vector<float> narrow(values.begin(), values.end());
      narrow.resize(std::max<size_t>(narrow.size(), 1));
      return at(device_.upload(narrow));
    };
    all.pages = pages_;
    all.appended = c_.append ? c_.queries : 0, all.splits = c_.splits;
    partial_out_ = all.partial_out = at(device_.buffer(c_.splits * out_count() * 4));
    partial_lse_ = all.partial_lse = at(device_.buffer(c_.splits * lse_count() * 4));
    p.q = at(device_.upload(encode(s_.element, d_.whole.q)));
    p.k = far(k_cache_, s_.head_dim), p.v = far(v_cache_, s_.value_dim);
    p.alibi_slopes = floats(d_.whole.alibi_slopes);
    p.sinks = sinks_ = floats(d_.whole.sinks);
    p.out = out_ = at(device_.buffer(out_count() * 2));
    p.lse = lse_ = at(device_.buffer(lse_count() * 4));
    const int heads = c_.heads();
    p.q_head_stride = p.k_head_stride = s_.head_dim;
    p.v_head_stride = p.out_head_stride = s_.value_dim;
    p.q_token_stride = heads * s_.head_dim, p.k_token_stride = c_.kv_heads * s_.head_dim;
    p.out_token_stride = heads * s_.value_dim, p.v_token_stride = c_.kv_heads * s_.value_dim;
    p.q_batch_stride = p.q_token_stride * c_.queries;
    p.out_batch_stride = p.out_token_stride * c_.queries;
    p.k_batch_stride = p.k_token_stride * c_.page, p.v_batch_stride = p.v_token_stride * c_.page;
    if (c_.far_pages) p.k_batch_stride = p.v_batch_stride = c_.far_pages;
    p.alibi_batch_stride = c_.slope_per_sequence ? heads : 0;
    p.sequences = c_.batch(), p.heads = heads, p.kv_heads = c_.kv_heads;
    p.seq_q = c_.queries, p.head_dim = s_.head_dim, p.value_dim = s_.value_dim;
    p.window_left = c_.left, p.window_right = c_.right;
    p.tiles = (c_.queries * c_.ratio + s_.tile.rows - 1) / s_.tile.rows;
    p.softmax_scale = static_cast<float>(c_.scale), p.softcap = static_cast<float>(c_.softcap);
    launch(kernels_.decode, static_cast<size_t>(p.tiles) * c_.kv_heads * c_.batch() * c_.splits,
           all);
  }

  void combine() {
    AttentionCombineParams p = {};
    p.partial_out = partial_out_, p.partial_lse = partial_lse_, p.sinks = sinks_;
    p.out = out_, p.lse = lse_, p.rows = static_cast<long long>(lse_count());
    p.out_head_stride = s_.value_dim, p.out_token_stride = c_.heads() * s_.value_dim;
    p.out_batch_stride = p.out_token_stride * c_.queries;
    p.heads = c_.heads(), p.seq_q = c_.queries, p.value_dim = s_.value_dim;
    p.splits = c_.splits;
    launch(kernels_.combine, (lse_count() + 3) / 4, p);
  }

  const Kernels& kernels_;
  const Setup& s_;
  const Call& c_;
  const Data& d_;
  sim::test::Device device_{"sm_80"};
  AttentionPages pages_ = {};
  void *k_cache_, *v_cache_, *sinks_ = nullptr;
  void *out_ = nullptr, *lse_ = nullptr, *partial_out_ = nullptr, *partial_lse_ = nullptr;
  sim::Counters counters_;
};

void expect_near(const Setup& s, const Outputs& actual, const Data& d) {
  const ref::Round round = s.element == LATHE_BF16 ? round_bf16 : round_f16;
  const ref::AttentionForward exact = ref::attention_forward(d.whole);
  const ref::AttentionForward plain = ref::plain_forward(d.whole, round);
  const double bound = ref::max2x_bound(exact.out, plain.out, s.has("softcap") ? 3 : 2, round);
  size_t wrong = 0;
  for (size_t i = 0; i < exact.out.size(); ++i) {
    wrong += !(std::abs(actual.out[i] - exact.out[i]) <= bound);
  }
  CHECK(wrong == 0);
  CHECK(ref::cosine_difference(actual.out, exact.out) < 1e-5);
  wrong = 0;
  for (size_t i = 0; i < exact.lse.size(); ++i) {
    const double a = actual.lse[i], r = exact.lse[i];
    wrong += r == -ref::kInfinity ? a != r : !(std::abs(a - r) <= 1e-5 + 1e-5 * std::abs(r));
  }
  CHECK(wrong == 0);
}

Call random_call(const Setup& s, uint32_t seed) {
  std::mt19937 random(seed);
  const auto one_of = [&](std::initializer_list<int> list) {
    return *(list.begin() + random() % list.size());
  };
  Call c;
  c.seed = seed;
  c.page = one_of({1, 16, 48, 64, 256, 257});
  c.ratio = one_of({1, 3, 8, 16});
  c.kv_heads = c.ratio > 3 ? 1 : one_of({1, 2});
  c.queries = c.ratio > 3 ? one_of({1, 2, 5}) : one_of({1, 4, 16});
  c.append = random() % 2 == 0;
  const int longest = one_of({64, 150, 330});
  for (int b = one_of({1, 2, 3}); b > 0; --b) {
    c.cached.push_back(one_of({0, 1, 63, 64, longest - 1, longest}));
  }
  c.table_width = c.pages_of(longest + 16) + one_of({0, 2});
  c.wild_entries = random() % 2 == 0;
  const int blocks = (c.page * c.table_width + s.tile.keys - 1) / s.tile.keys;
  c.splits = std::min(one_of({1, 2, 3, 7, blocks}), blocks);
  c.scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
  c.softcap = one_of({1, 3, 30});
  c.slope_per_sequence = random() % 2 == 0;
  if (s.has("local")) {
    c.left = one_of({-1, 0, 1, 40, 64, 1000});
    c.right = one_of({-1, 0, 0, 3});
  }
  return c;
}

const std::vector<Setup> kSetups = {
    {LATHE_BF16, 128, 128, {16, 64, 2, 4}, ""},
    {LATHE_F16, 64, 64, {16, 64, 3, 4}, "local sinks"},
    {LATHE_BF16, 96, 96, {32, 64, 2, 4}, "local alibi"},
    {LATHE_F16, 192, 128, {16, 32, 4, 2}, "softcap sinks"},
    {LATHE_BF16, 256, 256, {16, 32, 2, 2}, "local"},
    {LATHE_F16, 256, 256, {64, 32, 2, 4}, "local softcap alibi sinks"},
    {LATHE_BF16, 40, 72, {64, 64, 3, 4}, "alibi sinks"},
};

}  // namespace

TEST_CASE("attention_decode: random caches on every kind of tile, under every check") {
  const auto opened = Compiler::open();
  if (!opened.ok()) {
    MESSAGE("skipped, no compiler: ", opened.status().text());
    return;
  }
  uint32_t seed = 1;
  for (const Setup& s : kSetups) {
    const Kernels kernels = compile(**opened, s);
    for (int turn = 0; turn < 8; ++turn, ++seed) {
      const Call c = random_call(s, seed);
      const Data d = make_data(s, c);
      CAPTURE(kernels.decode.text());
      CAPTURE(c.seed);
      CAPTURE(c.page);
      CAPTURE(c.splits);
      CAPTURE(c.queries);
      CAPTURE(c.ratio);
      CAPTURE(c.cached[0]);
      CAPTURE(c.append);
      Runner runner(kernels, s, c, d);
      expect_near(s, runner.run(), d);
      runner.check_caches();
    }
  }
}

// Nobody can check what is on the device: lengths are cut to the table, pages that are not there
// read as zeros and are not written, and nothing out of bounds is touched.
TEST_CASE("attention_decode: lengths and pages out of range stay in bounds") {
  const auto opened = Compiler::open();
  if (!opened.ok()) return;
  const Setup s = {LATHE_BF16, 64, 64, {16, 64, 2, 4}, ""};
  const Kernels kernels = compile(**opened, s);
  Call c;
  c.page = 16, c.table_width = 6, c.append = true, c.splits = 2;
  c.cached = {20, 20, 40, 40};
  Data d = make_data(s, c);
  const auto entry = [&](int b, int i) -> int& { return d.block_table[b * c.table_width + i]; };
  const int lost = entry(2, 1);
  entry(2, 1) = d.pages;  // keys 16..31 become zeros
  const size_t row = s.head_dim, first = d.whole.begin_k[2] + 16;
  for (ref::Array* all : {&d.whole.k, &d.whole.v}) {
    std::fill_n(all->begin() + first * row, 16 * row, 0.0);
  }
  entry(3, 2) = -1;  // that of the appended key too, which is dropped
  for (ref::Array* all : {&d.whole.k, &d.whole.v}) {
    std::fill(all->begin() + (d.whole.begin_k[3] + 32) * row, all->end(), 0.0);
  }
  c.seed = 5;
  {
    Runner runner(kernels, s, c, d);
    expect_near(s, runner.run(), d);
  }
  entry(2, 1) = lost;
  for (const int cached : {-1, -0x7fffffff - 1, 96, 0x7fffffff}) {
    c.cached.assign(4, cached);
    c.seed = 6;
    Runner(kernels, s, c, d).run();  // what it gives is nothing; no finding is all
  }
}

TEST_CASE("attention_decode: places of pages pass 2^31 elements") {
  const auto opened = Compiler::open();
  if (!opened.ok()) return;
  const Setup s = {LATHE_F16, 64, 128, {16, 64, 2, 4}, ""};
  const Kernels kernels = compile(**opened, s);
  Call c;
  c.page = 160, c.table_width = 1, c.append = true, c.cached = {100}, c.queries = 2;
  c.far_pages = (1ll << 32) + 64;
  for (const uint32_t seed : {1, 2, 3}) {
    c.seed = seed;
    const Data d = make_data(s, c);
    if (d.block_table[0] == 0) continue;  // page 0 is near
    Runner runner(kernels, s, c, d);
    expect_near(s, runner.run(), d);
    runner.check_caches();
  }
}
