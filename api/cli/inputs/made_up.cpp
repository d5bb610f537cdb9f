// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/cli/inputs/made_up.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

namespace lathe::cli {
namespace {

using Value = std::function<int64_t(int64_t)>;  // of an element, by its number

// Cuts `all` into as many parts as there are offsets less one.
Value even_offsets(int64_t all, int64_t offsets) {
  const int64_t parts = std::max<int64_t>(offsets - 1, 1);
  return [=](int64_t i) { return all / parts * i + std::min(i, all % parts); };
}

// Spreads `count` entries of a row as far apart as can be over the `seen` keys, or blocks of them,
// that the row sees; each row begins elsewhere.
int64_t spread(int64_t row, int64_t entry, int64_t count, int64_t seen) {
  if (seen <= count) return entry < seen ? entry : -1;
  return (entry * seen / count + row * 61) % seen;
}

// Rows and keys of a sequence, which are all of one length.
struct Lengths {
  int64_t rows, keys;
  int64_t position(int64_t row) const {  // the last row is at the last key
    return std::max<int64_t>(keys - rows, 0) + row % rows;
  }
};
Lengths lengths_of(const Problem& problem) {
  const bool packed = problem.inputs.contains("cu_seqlens_q");
  const int64_t sequences = std::max<int64_t>(packed ? extent_of(problem, {"N"}, 0) : 1, 1);
  return {std::max<int64_t>(extent_of(problem, {"Tq", "Sq"}, 0) / sequences, 1),
          extent_of(problem, {"Tk", "Sk"}, 0) / sequences};
}

// Lists over the keys of a row's own sequence.
Value list_entries(const Problem& problem, const TensorSpec& spec) {
  const bool causal = setting(problem, "sparse_mode") == "3";
  const bool absolute = setting(problem, "index_space") == "absolute";
  const Lengths lengths = lengths_of(problem);
  const int64_t block = std::max<int64_t>(std::stoll(setting(problem, "block_size")), 1);
  const int64_t topk = spec.shape.back(), heads = spec.shape[spec.shape.size() - 2];
  return [=](int64_t i) -> int64_t {
    const int64_t row = i / (topk * heads), keys = lengths.keys;
    const int64_t seen = causal ? std::min(lengths.position(row) + 1, keys) : keys;
    const int64_t entry = spread(row, i % topk, topk, (seen + block - 1) / block);
    return entry < 0 || !absolute ? entry : row / lengths.rows * keys + entry;
  };
}

Value stored_keys(const Problem& problem) {
  int64_t room = extent_of(problem, {"M"}, 0) * extent_of(problem, {"page"}, 0);
  for (const auto& [name, spec] : problem.inputs) {
    const char* by =
        is_changed(problem, name) ? find_tensor(problem.op, name)->changed_by : nullptr;
    if (by == nullptr) continue;
    const bool packed = problem.inputs.contains("cu_seqlens_q");  // rows of a sequence
    const int64_t sequences = std::max<int64_t>(extent_of(problem, {"B"}, 1), 1);
    room -= packed ? problem.inputs.at(by).shape.at(0) / sequences + 1
                   : problem.inputs.at(by).shape.at(1);
    break;
  }
  return [room = std::max<int64_t>(room, 0)](int64_t) { return room; };
}

// All rows and all keys, the last row at the last key; more ranges are empty.
Value ranges(const Problem& problem) {
  const int64_t rows = extent_of(problem, {"Tq", "Sq"}, 0),
                keys = extent_of(problem, {"Tk", "Sk"}, 0);
  return [=](int64_t i) -> int64_t {
    const int64_t first[] = {0, rows, 0, keys, keys - rows, 0, 0};
    if (i < 7) return first[i];
    return i % 7 < 2 ? rows : 0;
  };
}

Value value_of(const Problem& problem, const std::string& name, const TensorSpec& spec) {
  if (name == "cu_checkpoints") {
    return even_offsets(extent_of(problem, {"C"}, 0), spec.shape[0]);
  }
  if (name == "checkpoint_slots") return [](int64_t) { return -1; };  // which are free is not known
  if (name.starts_with("cu_seqlens")) {
    const std::string dim = name == "cu_seqlens" ? "T" : "T" + name.substr(name.size() - 1);
    // A decoding step has rows of tokens and no axis T.
    return even_offsets(extent_of(problem, {dim.c_str(), "B"}, 0), spec.shape[0]);
  }
  if (name == "indices" && problem.extents.contains("topk")) return list_entries(problem, spec);
  // Pages are handed out in order, so no two sequences share one as long as there are enough.
  if (name == "block_table") {
    return
        [all = std::max<int64_t>(extent_of(problem, {"P"}, 0), 1)](int64_t i) { return i % all; };
  }
  if (name == "cache_seqlens") return stored_keys(problem);
  if (name == "total_seqlens") {
    return [stored = stored_keys(problem), stride = std::stoll(setting(problem, "key_stride"))](
               int64_t i) { return stored(i) * stride; };
  }
  if (name == "state_indices") {
    return [all = extent_of(problem, {"S"}, 0)](int64_t i) { return i < all ? i : -1; };
  }
  if (name == "source_indices") {
    // The same slots: no other is sure to be written by nobody.
    return [all = extent_of(problem, {"S"}, 0)](int64_t i) { return i < all ? i : -1; };
  }
  if (name == "num_accepted_tokens" || name == "has_initial_state") {
    return [](int64_t) { return 1; };
  }
  if (name == "ranges") return ranges(problem);
  if (name == "q_pos") {
    return [lengths = lengths_of(problem)](int64_t i) { return lengths.position(i); };
  }
  if (name == "k_pos" || name == "indices") return [](int64_t i) { return i; };
  return [](int64_t) { return 0; };
}

// Normal enough, and the same on every machine, which <random>'s distributions do not promise.
double normal(std::mt19937_64* engine) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += static_cast<double>((*engine)() >> 11) * 0x1p-53;
  return sum;
}

double half(double noise) { return 0.5 * noise; }
double small(double noise) { return 0.1 * noise; }
double decay(double noise) { return -0.2 * std::abs(noise); }  // log of a factor below 1
double share(double noise) { return 1 / (1 + std::exp(-noise)); }
double slope(double noise) { return 0.01 * std::abs(noise); }
// Stays above what scores of such queries and keys add up to, so that no weight passes 1.
double sum_of_scores(double noise) { return 10 + 0.1 * noise; }

using Transform = double (*)(double);
Transform transform_of(const std::string& name, const Specs& specs) {
  // A step of size beta corrects a state, so rows are about as long as 1 or shorter.
  if ((name == "q" || name == "k") && specs.count("beta") > 0) return small;
  if (name == "g") return decay;
  if (name == "beta") return share;
  if (name == "A_log" || name == "dt_bias") return small;
  if (name.find("slopes") != std::string::npos) return slope;
  if (name.find("lse") != std::string::npos && name[0] != 'd') return sum_of_scores;
  if (name.find("state") != std::string::npos) return small;
  return half;
}

// Noise costs more than a copy: a table of it repeats, with a length that no extent divides.
HostTensor noise_tensor(const TensorSpec& spec, uint64_t seed, Transform transform) {
  constexpr int64_t kTable = 65521;
  HostTensor tensor = empty_tensor(spec);
  const int64_t count = element_count(spec.shape), made = std::min(count, kTable);
  std::mt19937_64 engine(seed);
  for (int64_t i = 0; i < made; ++i) set_element(&tensor, i, transform(normal(&engine)));
  const size_t bytes = info(spec.dtype).bytes;
  for (int64_t i = made; i < count; i += made) {
    const auto length = static_cast<size_t>(std::min(made, count - i)) * bytes;
    std::memcpy(tensor.data.data() + static_cast<size_t>(i) * bytes, tensor.data.data(), length);
  }
  return tensor;
}

}  // namespace

TensorMap made_up_integers(const Problem& problem) {
  TensorMap out;
  for (const auto& [name, spec] : problem.inputs) {
    if (spec.dtype != LATHE_I32 && spec.dtype != LATHE_I64) continue;
    HostTensor tensor = empty_tensor(spec);
    const Value value = value_of(problem, name, spec);
    for (int64_t i = 0; i < element_count(spec.shape); ++i) {
      set_element(&tensor, i, static_cast<double>(value(i)));
    }
    out.emplace(name, std::move(tensor));
  }
  return out;
}

TensorMap noise(const Specs& specs, uint64_t seed) {
  TensorMap out;
  for (const auto& [name, spec] : specs) {
    out.emplace(name, noise_tensor(spec, ++seed, transform_of(name, specs)));
  }
  return out;
}

TensorMap noise_inputs(const Problem& problem, uint64_t seed) {
  TensorMap out = made_up_integers(problem);
  Specs floats = problem.inputs;
  for (const auto& [name, tensor] : out) floats.erase(name);
  out.merge(noise(floats, seed));
  return out;
}

}  // namespace lathe::cli
