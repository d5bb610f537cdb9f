// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Every rank sends a message of one size, whatever it is about to do: the number of digests, then
// for each the digest of its name and the digest itself.
#include "collective/agreement.h"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "codegen/base/digest.h"
#include "codegen/base/invalid.h"
#include "collective/small_gather.h"

namespace lathe {
namespace {

using Message = std::array<uint64_t, 1 + 2 * kMostDigests>;

struct Difference {
  size_t at = 0;
  std::string ranks;  // "2", "1 and 3", "1, 2 and 3"
};

bool same_entry(const Message& a, const Message& b, size_t at) {
  return a[1 + 2 * at] == b[1 + 2 * at] && a[2 + 2 * at] == b[2 + 2 * at];
}

// Finds the first entry in which some rank differs from rank 0.
bool find_difference(const std::vector<Message>& all, Difference* out) {
  for (size_t at = 0; at < kMostDigests; ++at) {
    std::vector<size_t> ranks;
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (!same_entry(all[0], all[rank], at)) ranks.push_back(rank);
    }
    if (ranks.empty()) continue;
    out->at = at;
    for (size_t i = 0; i < ranks.size(); ++i) {
      out->ranks += text(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
    }
    return true;
  }
  return false;
}

}  // namespace

uint64_t digest_of(std::string_view text) {
  uint64_t out = 0;
  std::memcpy(&out, digest(text).bytes.data(), sizeof(out));
  return out;
}

uint64_t digest_of(std::span<const int64_t> values) {
  return digest_of(std::string_view(reinterpret_cast<const char*>(values.data()),
                                    values.size() * sizeof(int64_t)));
}

Status agree(Group& group, std::span<const NamedDigest> digests) {
  if (digests.size() > kMostDigests) {
    return {Code::internal,
            text(digests.size(), " digests to agree on, of at most ", kMostDigests)};
  }
  if (group.world() == 1) return {};
  Message mine{};
  mine[0] = digests.size();
  for (size_t at = 0; at < digests.size(); ++at) {
    mine[1 + 2 * at] = digest_of(std::string_view(digests[at].name));
    mine[2 + 2 * at] = digests[at].value;
  }
  LATHE_ASSIGN(const std::string bytes,
               small_gather(group, mine.data(), sizeof(mine), "the agreement on a plan"));
  std::vector<Message> all(static_cast<size_t>(group.world()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  Difference found;
  if (!find_difference(all, &found)) return {};
  // A rank that is about to do something else may not know the name; then it reports a general one.
  const bool named = found.at < digests.size();
  return invalid(text(named ? digests[found.at].name : "what the ranks are about to run",
                      " must be equal", " on all ranks: that of rank ", found.ranks,
                      " is not that of rank 0"));
}

}  // namespace lathe
