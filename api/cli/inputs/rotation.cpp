// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Reads --ranks, --rotate and --balance.
#include "api/cli/inputs/rotation.h"

#include <algorithm>

namespace lathe::cli {
namespace {

constexpr int kMostRanks = 256;

template <typename Value>
using Words = std::vector<std::pair<std::string, Value>>;

const Words<unsigned> kMethods = {{"ring", 0u},
                                  {"allgather", LATHE_ALLGATHER},
                                  {"dispatch", LATHE_DISPATCH},
                                  {"heads", LATHE_EXCHANGE_HEADS}};
const Words<lathe_balance> kBalances = {{"none", LATHE_BALANCE_NONE},
                                        {"head_tail", LATHE_BALANCE_HEAD_TAIL},
                                        {"per_document", LATHE_BALANCE_PER_DOCUMENT},
                                        {"ptrr", LATHE_BALANCE_PTRR}};

// Methods of the operators that pass keys around.
const Words<std::vector<std::string>> kChoices = {
    {"flash_attention", {"ring", "allgather", "dispatch", "heads"}},
    {"sparse_flash_attention", {"allgather"}}};

template <typename Value>
const Value* find(const Words<Value>& words, const std::string& word) {
  for (const auto& [each, value] : words) {
    if (each == word) return &value;
  }
  return nullptr;
}

[[noreturn]] void refuse_choice(const std::string& flag, const std::string& value,
                                const lathe_operator_info* op,
                                const std::vector<std::string>& allowed) {
  refuse(flag + " is " + in_quotes(value) + "; " + op->name + " allows " + comma_list(allowed));
}

// Only operators that pass keys and values around have an order to choose.
void refuse_choices(const RankFlags& flags, const lathe_operator_info* op) {
  for (const auto& [flag, value] : {std::pair(std::string("--rotate"), flags.rotate),
                                    std::pair(std::string("--balance"), flags.balance)}) {
    if (value.empty()) continue;
    refuse(flag + " is " + in_quotes(value) + ", but " + op->name +
           (op->ranks ? " exchanges summaries over contiguous parts" : " runs on one rank") +
           " and takes neither --rotate nor --balance");
  }
}

void take_choices(const RankFlags& flags, const lathe_operator_info* op,
                  const std::vector<std::string>& methods, Ranks* out) {
  if (!flags.rotate.empty()) {
    const unsigned* method = find(kMethods, flags.rotate);
    if (!method || std::find(methods.begin(), methods.end(), flags.rotate) == methods.end()) {
      refuse_choice("--rotate", flags.rotate, op, methods);
    }
    out->method = *method;
  }
  if (!flags.balance.empty()) {
    const lathe_balance* balance = find(kBalances, flags.balance);
    if (!balance) {
      std::vector<std::string> allowed;
      for (const auto& [word, value] : kBalances) allowed.push_back(word);
      refuse_choice("--balance", flags.balance, op, allowed);
    }
    out->balance = *balance;
  }
  if (!flags.ranks.empty() || (flags.rotate.empty() && flags.balance.empty())) return;
  refuse((flags.rotate.empty() ? "--balance" : "--rotate") + std::string(" is ") +
         in_quotes(flags.rotate.empty() ? flags.balance : flags.rotate) +
         ", but --ranks is not given");
}

}  // namespace

void add_rank_flags(CLI::App* verb, RankFlags* flags) {
  verb->add_option("--ranks", flags->ranks, "split the sequence axis over this many ranks");
  verb->add_option("--rotate", flags->rotate,
                   "attention only: ring, allgather, dispatch or heads; how keys and rows meet");
  verb->add_option("--balance", flags->balance,
                   "attention only: none, head_tail, per_document or ptrr; who holds which tokens");
}

Ranks parse_ranks(const RankFlags& flags, const lathe_operator_info* op) {
  Ranks out;
  const std::vector<std::string>* methods = op->ranks ? find(kChoices, op->name) : nullptr;
  if (methods) {
    take_choices(flags, op, *methods, &out);
  } else {
    refuse_choices(flags, op);
  }
  if (flags.ranks.empty()) return out;
  const auto count =
      static_cast<int>(parse_int("--ranks", flags.ranks, 1, op->ranks ? kMostRanks : 1));
  if (op->ranks) out.count = count;
  return out;
}

}  // namespace lathe::cli
