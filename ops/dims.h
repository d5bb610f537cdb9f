// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Declares the dims of the operators' shapes, and parses shapes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe {

// Says how a dim is cut over the ranks of a group: by the tokens of queries or of keys, or by
// chunks or slots of saved states, which are counted along tokens.
enum class TokenAxis : uint8_t { none, queries, keys, chunks, slots };

// Lists X(dim, name, varies, axis). If a dim varies, its extent may differ from call to call
// without a new kernel.
// clang-format off
#define LATHE_DIMS(X)           \
  X(B, "B", true, none)         \
  X(T, "T", true, queries)      \
  X(N, "N", true, none)         \
  X(D, "D", false, none)        \
  X(W, "W", false, none)        \
  X(H, "H", false, none)        \
  X(HK, "HK", false, none)      \
  X(DV, "DV", false, none)      \
  X(Sq, "Sq", true, queries)    \
  X(Sk, "Sk", true, keys)       \
  X(Tq, "Tq", true, queries)    \
  X(Tk, "Tk", true, keys)       \
  X(P, "P", true, none)         \
  X(page, "page", true, none)   \
  X(M, "M", true, none)         \
  X(K, "K", false, none)        \
  X(V, "V", false, none)        \
  X(HV, "HV", false, none)      \
  X(HVK, "HV*K", false, none)   \
  X(S, "S", true, none)         \
  X(spec, "spec", true, none)   \
  X(NT, "NT", true, chunks)     \
  X(slots, "slots", true, slots)\
  X(L, "L", true, none)         \
  X(C, "C", true, none)         \
  X(LS, "LS", false, none)      \
  X(D0, "D0", false, none)      \
  X(D1, "D1", false, none)      \
  X(D2, "D2", false, none)      \
  X(D3, "D3", false, none)      \
  X(D4, "D4", false, none)      \
  X(D5, "D5", false, none)      \
  X(D6, "D6", false, none)      \
  X(D7, "D7", false, none)      \
  X(C0, "C0", true, none)       \
  X(C1, "C1", true, none)       \
  X(C2, "C2", true, none)       \
  X(C3, "C3", true, none)       \
  X(NP, "NP", true, none)       \
  X(R, "R", false, none)        \
  X(topk, "topk", true, none)   \
  X(Tx, "Tx", true, none)       \
  X(topk2, "topk2", true, none) \
  X(positions, "positions", true, none) \
  X(R2, "R/2", true, none)      \
  X(rows, "rows", true, none)   \
  X(q_scales, "q_scales", true, none) \
  X(k_scales, "k_scales", true, none) \
  X(v_scales, "v_scales", true, none) \
  X(bytes, "bytes", true, none) \
  X(G, "G", false, none)        \
  X(own0, "", true, none)       \
  X(own1, "", true, none)       \
  X(own2, "", true, none)       \
  X(own3, "", true, none)       \
  X(own4, "", true, none)       \
  X(own5, "", true, none)       \
  X(own6, "", true, none)       \
  X(own7, "", true, none)       \
  X(own8, "", true, none)       \
  X(own9, "", true, none)       \
  X(own10, "", true, none)      \
  X(own11, "", true, none)
// clang-format on

// Two tensors that use the same dim must have the same extent. `fixed` stands for a number, as in
// "NP,7": its extent is 0, and the 7 is added to it.
#define LATHE_DIM(dim, name, varies, axis) dim,
enum class Dim : uint8_t { LATHE_DIMS(LATHE_DIM) fixed };
#undef LATHE_DIM
inline constexpr int kDimCount = static_cast<int>(Dim::fixed) + 1;

struct DimInfo {
  const char* name;
  bool varies;
  TokenAxis axis;
};
#define LATHE_DIM(dim, name, varies, axis) {name, varies, TokenAxis::axis},
inline constexpr DimInfo kDims[] = {LATHE_DIMS(LATHE_DIM){"", false, TokenAxis::none}};
#undef LATHE_DIM
inline const DimInfo& info_of(Dim dim) { return kDims[static_cast<int>(dim)]; }
inline const char* name_of(Dim dim) { return info_of(dim).name; }
// An operator that is made at run time names its dims itself: OwnDims says what own0, own1, ...
// are.
using OwnDims = std::span<const DimInfo>;
inline constexpr int kMostOwnDims = static_cast<int>(Dim::own11) - static_cast<int>(Dim::own0) + 1;
inline Dim own_dim(size_t index) {
  return static_cast<Dim>(static_cast<size_t>(Dim::own0) + index);
}
// Returns the dim of this name; `fixed` if there is none.
Dim find_dim(std::string_view name, OwnDims own = {});

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
  const DimInfo* own = nullptr;  // of an operator that is made at run time, which outlives it

  const DimInfo& info(Dim dim) const {
    if (own == nullptr || dim < Dim::own0 || dim == Dim::fixed) return info_of(dim);
    return own[static_cast<int>(dim) - static_cast<int>(Dim::own0)];
  }
  const char* name(Dim dim) const { return info(dim).name; }
};
Shape parse_shape(std::string_view shape, OwnDims own = {});  // a single one
std::vector<Shape> parse_shapes(std::string_view shapes, OwnDims own = {});
// Returns the shape of this rank. If there are several, returns the one of that number, or the
// last. If there is none, the result has rank 0.
Shape shape_of_rank(std::string_view shapes, int rank, int number = 0, OwnDims own = {});
std::string shape_text(const Shape& shape);                  // "[B,T,D]"
std::string extents_text(int rank, const int64_t* extents);  // "[3, 5]"
bool has_dim(const Shape& shape, Dim dim);
// Return whether a shape is that of packed sequences, or of whole rows of a batch; offsets are
// neither.
bool is_packed_shape(const Shape& shape);
bool is_batched_shape(const Shape& shape);

std::vector<std::string_view> split(std::string_view list, char at);
bool listed(std::string_view list, char at, std::string_view word);

}  // namespace lathe
