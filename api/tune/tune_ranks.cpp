// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "api/tune/tune_ranks.h"

#include <cstring>

#include "api/boundary.h"
#include "api/tune/tune_choices.h"
#include "collective/agreement.h"
#include "collective/small_gather.h"

namespace lathe {

Result<Ballot::Votes> GroupBallot::exchange(const std::vector<double>& mine) {
  const size_t bytes = mine.size() * sizeof(double);
  LATHE_ASSIGN(const std::string all,
               small_gather(group_, mine.data(), bytes, "a vote on kernels"));
  Votes votes(static_cast<size_t>(group_.world()), std::vector<double>(mine.size()));
  for (size_t rank = 0; rank < votes.size(); ++rank) {
    std::memcpy(votes[rank].data(), all.data() + rank * bytes, bytes);
  }
  return votes;
}

// A gather, of which the others' bytes are not looked at: databases have some KB.
Status share_tuned(lathe_group& group) {
  constexpr uint64_t kMostBytes = uint64_t{4} << 20;
  constexpr const char* kWhat = "the agreement on tuned choices";
  const auto& tuned = group.context->tuned;
  std::string mine = tuned ? tuned_text(tuned->holding()) : std::string();
  uint64_t bytes = mine.size() > kMostBytes ? 0 : mine.size();
  LATHE_ASSIGN(const std::string sizes, small_gather(*group.group, &bytes, sizeof(bytes), kWhat));
  std::memcpy(&bytes, sizes.data(), sizeof(bytes));
  std::string text;
  if (bytes > 0) {
    mine.resize(bytes);
    LATHE_ASSIGN(text, small_gather(*group.group, mine.data(), bytes, kWhat));
    text.resize(bytes);
  }
  group.choices = nullptr, group.choices_digest = 0;
  if (text.empty()) return {};
  LATHE_ASSIGN(const TunedText read, parse_tuned(text));
  group.choices = std::make_shared<FixedChoices>(read.records);
  group.choices_digest = digest_of(std::string_view(text));
  return {};
}

}  // namespace lathe

using namespace lathe;

extern "C" lathe_status lathe_group_share_tuned(lathe_group* group) {
  return boundary({{group, "group"}}, [&]() -> Status {
    const Device::Scope scope(*group->context->device);
    LATHE_TRY(scope.status());
    return share_tuned(*group);
  });
}
