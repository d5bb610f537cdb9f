// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the dims of the operators' shapes, and parses shapes.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// Two tensors that use the same dim must have the same extent. `fixed` stands for a number, as in
// "NP,7": its extent is 0, and the 7 is added to it.
enum class Dim : uint8_t {
  B,
  T,
  N,
  D,
  W,
  H,
  HK,
  DV,
  Sq,
  Sk,
  Tq,
  Tk,
  P,
  page,
  M,
  K,
  V,
  HV,
  HVK,
  S,
  spec,
  NT,
  slots,
  C0,
  C1,
  C2,
  C3,
  NP,
  R,
  topk,
  G,
  fixed
};

// Says how a dim is cut over the ranks of a group: by the tokens of queries or of keys, or by
// chunks or slots of saved states, which are counted along tokens.
enum class TokenAxis : uint8_t { none, queries, keys, chunks, slots };

struct DimInfo {
  const char* name;
  bool varies;  // its extent may differ from call to call without a new kernel
  TokenAxis axis = TokenAxis::none;
};
inline constexpr DimInfo kDims[] = {{"B", true},
                                    {"T", true, TokenAxis::queries},
                                    {"N", true},
                                    {"D", false},
                                    {"W", false},
                                    {"H", false},
                                    {"HK", false},
                                    {"DV", false},
                                    {"Sq", true, TokenAxis::queries},
                                    {"Sk", true, TokenAxis::keys},
                                    {"Tq", true, TokenAxis::queries},
                                    {"Tk", true, TokenAxis::keys},
                                    {"P", true},
                                    {"page", true},
                                    {"M", true},
                                    {"K", false},
                                    {"V", false},
                                    {"HV", false},
                                    {"HV*K", false},
                                    {"S", true},
                                    {"spec", true},
                                    {"NT", true, TokenAxis::chunks},
                                    {"slots", true, TokenAxis::slots},
                                    {"C0", true},
                                    {"C1", true},
                                    {"C2", true},
                                    {"C3", true},
                                    {"NP", true},
                                    {"R", false},
                                    {"topk", true},
                                    {"G", false},
                                    {"", false}};
inline constexpr int kDimCount = 32;
static_assert(std::size(kDims) == kDimCount);
inline const DimInfo& info_of(Dim dim) { return kDims[static_cast<int>(dim)]; }
inline const char* name_of(Dim dim) { return info_of(dim).name; }
// Returns the dim of this name; `fixed` if there is none.
Dim find_dim(std::string_view name);

inline constexpr int kMaxRank = 5;
inline constexpr int64_t kUnknown = -1;            // an extent that varies from run to run
inline constexpr int64_t kMaxExtent = 2147483647;  // kernels count in 32 bits

// Holds an extent for each dim, kUnknown if it is not known.
struct Extents {
  std::array<int64_t, kDimCount> value;
  Extents() {
    value.fill(kUnknown);
    value[static_cast<int>(Dim::fixed)] = 0;
  }
  int64_t& operator[](Dim dim) { return value[static_cast<int>(dim)]; }
  int64_t operator[](Dim dim) const { return value[static_cast<int>(dim)]; }
};

// Holds a parsed shape of the table: "B,T,D", "N+1". A tensor with several shapes,
// "B,Sq,H,D|Tq,H,D", has one of each rank. A shape with Tq or Tk is that of packed sequences. If
// two shapes have one rank, as in "N,HV,K,V|N,HV,V,K", an option chooses by number:
// Operator::shape_option.
struct Axis {
  Dim dim;
  int plus;
};
struct Shape {
  int rank = 0;
  std::array<Axis, kMaxRank> dims{};
};
Shape parse_shape(std::string_view shape);  // a single one
std::vector<Shape> parse_shapes(std::string_view shapes);
// Returns the shape of this rank. If there are several, returns the one of that number, or the
// last. If there is none, the result has rank 0.
Shape shape_of_rank(std::string_view shapes, int rank, int number = 0);
std::string shape_text(const Shape& shape);  // "[B,T,D]"
std::string dim_text(const Axis& axis);      // "N+1"
bool has_dim(const Shape& shape, Dim dim);
// Return whether a shape is that of packed sequences, or of whole rows of a batch; offsets are
// neither.
bool is_packed_shape(const Shape& shape);
bool is_batched_shape(const Shape& shape);

std::vector<std::string_view> split(std::string_view list, char at);
bool listed(std::string_view list, char at, std::string_view word);

}  // namespace lathe
