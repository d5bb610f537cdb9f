// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// flash_attention_decode through the C API against attention over the same keys in one piece, in
// float64: every page size and number of splits, groups, widths and options. Pages are shuffled,
// and whatever no sequence owns holds NaN.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "tests/api/session.h"
#include "tests/numbers.h"
#include "tests/ref/attention_plain.h"

using namespace apitest;

namespace {

using Values = std::vector<double>;
using Options = std::map<const char*, std::string>;

struct DecodeCase {
  lathe_dtype dtype = LATHE_BF16;
  int64_t queries = 1, kv_heads = 1, ratio = 1, head_dim = 64, value_dim = 64;
  int64_t page = 16, table_width = 12;
  std::vector<int64_t> cached = {100, 37};  // keys of each sequence before the append
  bool append = false;
  bool causal = false, alibi_rows = false, sinks = false;
  int64_t window_left = -1;
  double softcap = 0;
  Placement gaps;

  int64_t batch() const { return static_cast<int64_t>(cached.size()); }
  int64_t heads() const { return kv_heads * ratio; }
  int64_t keys(int64_t b) const { return cached[b] + (append ? queries : 0); }
};

// A problem that leaves open all that may vary from call to call.
class DecodePlan {
 public:
  DecodePlan(lathe_context* context, const DecodeCase& c, const std::string& splits) {
    lathe_problem* problem = nullptr;
    API(lathe_problem_create(&problem, "flash_attention_decode"));
    const Problem owner(problem);
    const auto tensor = [&](const char* name, lathe_dtype dtype, std::vector<int64_t> shape) {
      API(lathe_problem_tensor(problem, name, dtype, static_cast<int>(shape.size()), shape.data()));
    };
    tensor("q", c.dtype, {-1, -1, c.heads(), c.head_dim});
    tensor("k_cache", c.dtype, {-1, -1, c.kv_heads, c.head_dim});
    tensor("v_cache", c.dtype, {-1, -1, c.kv_heads, c.value_dim});
    tensor("block_table", LATHE_I32, {-1, -1});
    tensor("cache_seqlens", LATHE_I32, {-1});
    if (c.append) tensor("k_new", c.dtype, {-1, -1, c.kv_heads, c.head_dim});
    if (c.append) tensor("v_new", c.dtype, {-1, -1, c.kv_heads, c.value_dim});
    if (c.alibi_rows) tensor("alibi_slopes", LATHE_F32, {-1, c.heads()});
    if (c.sinks) tensor("sinks", LATHE_F32, {c.heads()});
    tensor("out", c.dtype, {-1, -1, c.heads(), c.value_dim});
    tensor("lse", LATHE_F32, {-1, c.heads(), -1});
    const auto option = [&](const char* name, const std::string& value) {
      API(lathe_problem_set_string(problem, name, value.c_str()));
    };
    option("num_splits", splits);
    option("causal", c.causal ? "1" : "0");
    option("window_left", std::to_string(c.window_left));
    option("softcap", std::to_string(c.softcap));
    lathe_plan* plan = nullptr;
    API(lathe_plan_create(&plan, context, problem));
    plan_.reset(plan);
  }
  const lathe_plan* get() const { return plan_.get(); }

 private:
  Plan plan_;
};

struct Result {
  Values out, lse;
};

// The tensors of one case, and what its result must be.
class Decode {
 public:
  Decode(lathe_context* context, const DecodeCase& c, uint32_t seed)
      : context_(context), c_(c), random_(seed) {
    make_whole();
    make_pages();
    const int64_t b = c.batch(), s = c.queries, h = c.heads(), k = c.kv_heads;
    add("q", c.dtype, {b, s, h, c.head_dim}, c.gaps).upload(whole_.q);
    add("k_cache", c.dtype, {pages_, c.page, k, c.head_dim}, c.gaps);
    add("v_cache", c.dtype, {pages_, c.page, k, c.value_dim}, c.gaps);
    add("block_table", LATHE_I32, {b, c.table_width}).upload(table_);
    add("cache_seqlens", LATHE_I32, {b}).upload(Values(c.cached.begin(), c.cached.end()));
    if (c.append) add("k_new", c.dtype, {b, s, k, c.head_dim}, c.gaps).upload(k_new_);
    if (c.append) add("v_new", c.dtype, {b, s, k, c.value_dim}, c.gaps).upload(v_new_);
    if (c.alibi_rows) add("alibi_slopes", LATHE_F32, {b, h}).upload(whole_.alibi_slopes);
    if (c.sinks) add("sinks", LATHE_F32, {h}).upload(whole_.sinks);
    add("out", c.dtype, {b, s, h, c.value_dim}, c.gaps);
    add("lse", LATHE_F32, {b, h, s});
  }

  Result run(const DecodePlan& plan) {
    at("k_cache").upload(k_cache_);
    at("v_cache").upload(v_cache_);
    at("out").poison();
    at("lse").poison();
    std::vector<const DLTensor*> slots(lathe_plan_slot_count(plan.get()));
    for (const auto& [name, tensor] : tensors_) {
      size_t slot = 0;
      API(lathe_plan_slot(plan.get(), name.c_str(), &slot));
      slots.at(slot) = tensor->dl();
    }
    size_t bytes = 0;
    API(lathe_plan_workspace(plan.get(), slots.data(), nullptr, &bytes));
    const Memory workspace(context_, bytes);
    API(lathe_plan_run(plan.get(), slots.data(), bytes ? workspace.data() : nullptr, bytes,
                       nullptr));
    API(lathe_stream_synchronize(context_, nullptr));
    check_cache("k_cache", whole_.k, k_cache_, c_.head_dim);
    check_cache("v_cache", whole_.v, v_cache_, c_.value_dim);
    const Result result = {at("out").download(), at("lse").download()};
    check_result(result);
    return result;
  }
  void check_result(const Result& found) const {
    REQUIRE(found.out.size() == expected_.out.size());
    size_t wrong = 0;
    for (size_t i = 0; i < found.out.size(); ++i) {
      wrong += !(std::abs(found.out[i] - expected_.out[i]) <= bound_);
    }
    CHECK(wrong == 0);
    CHECK(ref::cosine_difference(found.out, expected_.out) < 1e-5);
    wrong = 0;
    for (size_t i = 0; i < found.lse.size(); ++i) {
      const double a = found.lse[i], r = expected_.lse[i];
      wrong += std::isinf(r) ? a != r : !(std::abs(a - r) <= 1e-5 + 1e-5 * std::abs(r));
    }
    CHECK(wrong == 0);
  }

 private:
  Values noise(int64_t count) {
    std::normal_distribution<double> normal;
    Values values(static_cast<size_t>(count));
    for (double& value : values) value = numbers::rounded(c_.dtype, normal(random_));
    return values;
  }

  void make_whole() {
    ref::Attention& a = whole_;
    a.heads = c_.heads(), a.kv_heads = c_.kv_heads;
    a.head_dim = c_.head_dim, a.value_dim = c_.value_dim, a.packed = false;
    a.scale = 1 / std::sqrt(static_cast<double>(c_.head_dim));
    a.softcap = c_.softcap, a.causal = c_.causal, a.window_left = c_.window_left;
    a.begin_q = a.begin_k = {0};
    for (int64_t b = 0; b < c_.batch(); ++b) {
      a.begin_q.push_back(a.begin_q.back() + c_.queries);
      a.begin_k.push_back(a.begin_k.back() + c_.keys(b));
    }
    a.q = noise(a.begin_q.back() * a.heads * a.head_dim);
    a.k = noise(a.begin_k.back() * a.kv_heads * a.head_dim);
    a.v = noise(a.begin_k.back() * a.kv_heads * a.value_dim);
    for (int64_t i = 0; c_.alibi_rows && i < c_.batch() * a.heads; ++i) {
      a.alibi_slopes.push_back(std::exp2(-1.0 - static_cast<double>(i % 7)));
    }
    for (int64_t i = 0; c_.sinks && i < a.heads; ++i) {
      a.sinks.push_back(static_cast<double>(i) / 4 - 1);
    }
    expected_ = ref::attention_forward(a);
    const ref::Round round = c_.dtype == LATHE_BF16
                                 ? +[](double x) { return numbers::rounded(LATHE_BF16, x); }
                                 : +[](double x) { return numbers::rounded(LATHE_F16, x); };
    bound_ = ref::max2x_bound(expected_.out, ref::plain_forward(a, round).out,
                              c_.softcap > 0 ? 3 : 2, round);
  }

  // Every key's row of the caches; entries of the table behind them are wild.
  void make_pages() {
    pages_ = 2;
    for (int64_t b = 0; b < c_.batch(); ++b) pages_ += (c_.keys(b) + c_.page - 1) / c_.page;
    std::vector<int64_t> order(static_cast<size_t>(pages_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    table_.assign(static_cast<size_t>(c_.batch() * c_.table_width), -5);
    const int64_t k_row = c_.kv_heads * c_.head_dim, v_row = c_.kv_heads * c_.value_dim;
    k_cache_.assign(static_cast<size_t>(pages_ * c_.page * k_row), NAN);
    v_cache_.assign(static_cast<size_t>(pages_ * c_.page * v_row), NAN);
    size_t next = 0;
    for (int64_t b = 0; b < c_.batch(); ++b) {
      for (int64_t j = 0; j < c_.keys(b); ++j) {
        double& entry = table_[static_cast<size_t>(b * c_.table_width + j / c_.page)];
        if (j % c_.page == 0) entry = static_cast<double>(order[next++]);
        rows_.push_back(static_cast<int64_t>(entry) * c_.page + j % c_.page);
        fresh_.push_back(j >= c_.cached[b]);
        place(whole_.k, k_row, &k_cache_, &k_new_);
        place(whole_.v, v_row, &v_cache_, &v_new_);
      }
    }
  }
  // The last key of rows_: into the cache, or among those to append.
  void place(const Values& all, int64_t width, Values* cache, Values* fresh) const {
    const auto from = all.begin() + static_cast<int64_t>(rows_.size() - 1) * width;
    if (fresh_.back()) fresh->insert(fresh->end(), from, from + width);
    if (!fresh_.back()) std::copy(from, from + width, cache->begin() + rows_.back() * width);
  }

  // The rows of all keys, appended ones too; and what it was everywhere else.
  void check_cache(const char* name, const Values& all, const Values& before, int64_t width) {
    const int64_t row = c_.kv_heads * width;
    Values expected = before;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const auto from = all.begin() + static_cast<int64_t>(i) * row;
      std::copy(from, from + row, expected.begin() + rows_[i] * row);
    }
    const Values found = at(name).download();
    size_t wrong = 0;
    for (size_t i = 0; i < found.size(); ++i) {
      wrong += std::isnan(expected[i]) ? !std::isnan(found[i]) : found[i] != expected[i];
    }
    CHECK(wrong == 0);
  }

  Tensor& add(const char* name, lathe_dtype dtype, std::vector<int64_t> shape,
              const Placement& placement = {}) {
    return *(tensors_[name] =
                 std::make_unique<Tensor>(context_, dtype, std::move(shape), placement));
  }
  Tensor& at(const std::string& name) { return *tensors_.at(name); }

  lathe_context* context_;
  DecodeCase c_;
  std::mt19937 random_;
  ref::Attention whole_;
  ref::AttentionForward expected_;
  double bound_ = 0;
  int64_t pages_ = 0;
  Values table_, k_cache_, v_cache_, k_new_, v_new_;
  std::vector<int64_t> rows_;  // of every key, in the caches
  std::vector<bool> fresh_;
  std::map<std::string, std::unique_ptr<Tensor>> tensors_;
};

void expect_no_findings() {
  for (const std::string& finding : take_report().findings) FAIL_CHECK(finding);
}

TEST_CASE("every page size and number of splits gives the same, with append and without") {
  const Context context = make_context();
  uint32_t seed = 1;
  for (const int64_t page : {1, 16, 48, 64, 256, 257}) {
    DecodeCase c;
    c.dtype = page % 16 == 0 ? LATHE_F16 : LATHE_BF16;
    c.page = page;
    c.table_width = (450 + page - 1) / page;  // 8 blocks of 64 keys
    c.queries = 2, c.ratio = 3;
    c.cached = {0, 130, 448};
    c.append = seed % 2 == 1;
    c.sinks = seed % 3 == 0;
    CAPTURE(page);
    Decode decode(context.get(), c, seed++);
    Values lse;
    for (const char* splits : {"1", "2", "3", "4", "5", "6", "7", "8", "1000", "0"}) {
      CAPTURE(splits);
      const Result result = decode.run(DecodePlan(context.get(), c, splits));
      if (lse.empty()) lse = result.lse;
      size_t wrong = 0;
      for (size_t i = 0; i < lse.size(); ++i) {
        wrong += lse[i] != result.lse[i] && !(std::abs(lse[i] - result.lse[i]) <= 2e-6);
      }
      CHECK(wrong == 0);
    }
  }
  expect_no_findings();
}

TEST_CASE("groups, widths and options") {
  const Context context = make_context();
  struct Row {
    int64_t ratio, queries, head_dim, value_dim;
    bool causal, alibi_rows, sinks;
    int64_t window_left;
    double softcap;
  };
  const Row rows[] = {
      {1, 1, 64, 64, false, false, false, -1, 0},   {1, 16, 128, 128, true, false, true, -1, 0},
      {3, 4, 96, 96, true, true, false, 60, 0},     {8, 1, 128, 128, true, false, false, -1, 2},
      {8, 16, 64, 64, true, true, true, -1, 0},     {16, 1, 192, 128, true, false, true, 20, 0},
      {16, 3, 256, 256, true, false, false, -1, 0}, {3, 1, 256, 256, false, true, true, -1, 5},
      {8, 2, 72, 40, true, false, false, 0, 0},
  };
  uint32_t seed = 100;
  for (const Row& row : rows) {
    DecodeCase c;
    c.dtype = seed % 2 ? LATHE_BF16 : LATHE_F16;
    c.queries = row.queries, c.ratio = row.ratio, c.kv_heads = row.ratio > 3 ? 1 : 2;
    c.head_dim = row.head_dim, c.value_dim = row.value_dim;
    c.causal = row.causal, c.alibi_rows = row.alibi_rows, c.sinks = row.sinks;
    c.window_left = row.window_left, c.softcap = row.softcap;
    c.page = 48, c.table_width = 5;
    c.cached = {200, 7};  // fewer keys than queries, too
    c.append = seed % 3 == 0;
    CAPTURE(seed);
    Decode decode(context.get(), c, seed++);
    for (const char* splits : {"1", "3", "0"}) {
      CAPTURE(splits);
      decode.run(DecodePlan(context.get(), c, splits));
    }
  }
  expect_no_findings();
}

TEST_CASE("one plan serves other batches, lengths, pages and strides") {
  const Context context = make_context();
  DecodeCase c;
  c.ratio = 8, c.head_dim = c.value_dim = 128;
  c.append = c.causal = true;
  const DecodePlan plan(context.get(), c, "0");
  uint32_t seed = 200;
  const auto serve = [&](int64_t queries, int64_t page, int64_t width, std::vector<int64_t> cached,
                         int64_t gap) {
    c.queries = queries, c.page = page, c.table_width = width, c.cached = std::move(cached);
    c.gaps = Placement{.token_gap = gap, .batch_gap = 2 * gap, .offset = gap, .guard = gap};
    Decode(context.get(), c, seed++).run(plan);
  };
  serve(1, 16, 30, {300}, 0);
  serve(2, 64, 4, {3, 200, 0, 63}, 8);
  serve(9, 5, 40, {150, 100}, 24);
  serve(1, 16, 30, {}, 0);
  expect_no_findings();
}

}  // namespace
