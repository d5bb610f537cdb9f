// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These tests cover causal_conv1d on ranks of which one does not do as the others: told before the
// first hop where they prepare, within the group's timeout where they do not, and the process goes
// on.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <exception>
#include <string>
#include <thread>

#include "tests/ops/conv/case.h"

using namespace apitest;

namespace {

// kShort is the timeout where ranks are waited for in vain, kLong where all goes well: a busy
// machine must not reach kLong.
constexpr int kShort = 2000, kLong = 60000;
using Id = std::array<char, LATHE_UNIQUE_ID_BYTES>;

Id make_id() {
  Id id{};
  API(lathe_unique_id(make_context().get(), id.data()));
  return id;
}

ConvCase fine() {
  ConvCase conv{.tokens = 60, .channels = 8, .width = 4};
  conv.backward = false;
  return conv;
}

// Makes a case's call for the tokens of a shard.
Call part_of(const ConvCase& conv, const lathe_shard* shard) {
  int64_t begin = 0, end = 0;
  API(lathe_shard_range(shard, &begin, &end));
  Call call = conv_call(conv, make_inputs(conv));
  Values x;
  for (int64_t b = 0; b < conv.batch; ++b) {
    const auto row = call.tensors.at("x").values.begin() + b * conv.tokens * conv.channels;
    x.insert(x.end(), row + begin * conv.channels, row + end * conv.channels);
  }
  call.tensors.at("x").values = std::move(x);
  for (const char* name : {"x", "y"}) call.tensors.at(name).shape[1] = end - begin;
  return call;
}

// A rank with a case of its own, cut in even parts, whose shard is not prepared.
struct Rank {
  Rank(const Id& id, int world, int rank, const ConvCase& conv, int timeout_ms)
      : context(make_context()) {
    lathe_group* made = nullptr;
    API(lathe_group_create(&made, context.get(), id.data(), world, rank, timeout_ms));
    group.reset(made);
    lathe_shard* cut = nullptr;
    API(lathe_shard_create(&cut, world, rank, conv.tokens, nullptr));
    shard.reset(cut);
    run = std::make_unique<PlannedCall>(context.get(), part_of(conv, cut),
                                        Seat{.group = made, .shard = cut, .prepared = false});
  }
  std::string error() const {
    const lathe_status status = lathe_group_error(group.get());
    return status == LATHE_OK ? ""
                              : std::string(lathe_status_name(status)) + ": " + lathe_last_error();
  }
  std::string await_error() const {  // the test would end by its own limit
    for (;;) {
      const std::string found = error();
      if (!found.empty()) return found;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  Context context;
  Group group;
  Shard shard;
  std::unique_ptr<PlannedCall> run;
};

// Returns what each rank's `body` says; throws what one of them threw.
std::vector<std::string> on_ranks(int timeout_ms, const std::vector<ConvCase>& cases,
                                  const std::function<std::string(Rank&, int)>& body) {
  const Id id = make_id();
  const int world = static_cast<int>(cases.size());
  std::vector<std::string> out(cases.size());
  std::vector<std::exception_ptr> errors(cases.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      try {
        Rank mine(id, world, rank, cases[r], timeout_ms);
        out[r] = body(mine, rank);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return out;
}

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

std::string try_run(Rank& rank) {
  try {
    rank.run->enqueue();
    API(lathe_stream_synchronize(rank.context.get(), rank.run->stream()));
    (void)rank.run->outputs();
    return "";
  } catch (const std::exception& error) {
    return error.what();
  }
}

void check_works() {
  const ConvCase conv = fine();
  const auto inputs = make_inputs(conv);
  check_equal(run_conv_ranks(conv, inputs, {20, 20, 20}, 0), run_conv(conv, inputs), {"y"});
  check_no_findings();
}

TEST_CASE("faults: ranks that prepare are told what differs, and whose") {
  struct Case {
    ConvCase other;
    std::string says;
  };
  Case cases[] = {{fine(), "length"}, {fine(), "the declared tensors"}, {fine(), "the options"}};
  cases[0].other.tokens = 66;
  cases[1].other.width = 3;
  cases[2].other.silu = true;
  for (const Case& each : cases) {
    CAPTURE(each.says);
    for (const std::string& text :
         on_ranks(kLong, {fine(), each.other, fine()}, [](Rank&rank, int) -> std::string {
           const lathe_status status = lathe_shard_prepare(rank.shard.get(), rank.run->plan());
           return std::string(lathe_status_name(status)) + ": " + lathe_last_error();
         })) {
      CAPTURE(text);
      CHECK(says(text, "INVALID_ARGUMENT: "));
      CHECK(says(text, each.says));
      CHECK(says(text, "that of rank 1 is not that of rank 0"));
    }
  }
  check_works();
}

TEST_CASE("faults: ranks that do not prepare get an error in time") {
  for (const bool shapes : {true, false}) {
    CAPTURE(shapes);
    ConvCase other = fine();
    if (shapes) other.batch = 2;  // twice the rows
    const auto texts = on_ranks(kShort, {fine(), other, fine()}, [&](Rank& rank, int index) {
      // The middle one calls with other shapes, or not at all.
      if (shapes || index != 1) (void)try_run(rank);
      const std::string first = rank.await_error();
      CHECK_FALSE(try_run(rank).empty());  // and so from now on
      return first;
    });
    for (const std::string& text : texts) {
      CAPTURE(text);
      CHECK((says(text, "NCCL: ") || says(text, "TIMEOUT: ")));
      CHECK(says(text, "rank "));
    }
  }
  (void)take_report();  // of rows that never came
  check_works();
}

TEST_CASE("faults: a rank that is late, within the time, is waited for") {
  const auto texts = on_ranks(kLong, {fine(), fine(), fine()}, [](Rank& rank, int index) {
    if (index == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return try_run(rank) + rank.error();
  });
  for (const std::string& text : texts) CHECK(text.empty());
}

TEST_CASE("groups: a split gives each color a group, and none where no part is taken") {
  const auto texts = on_ranks(kLong, {fine(), fine(), fine()}, [](Rank& rank, int index) {
    lathe_group* half = rank.group.get();
    API(lathe_group_split(&half, rank.group.get(), index == 1 ? -1 : 0, -index));
    const Group owner(half);
    CHECK((half == nullptr) == (index == 1));
    if (half == nullptr) return std::string();
    CHECK(lathe_group_world(half) == 2);
    CHECK(lathe_group_rank(half) == (index == 2 ? 0 : 1));  // by key
    lathe_shard* cut = nullptr;
    API(lathe_shard_create(&cut, 2, lathe_group_rank(half), fine().tokens, nullptr));
    const Shard shard(cut);
    PlannedCall call(rank.context.get(), part_of(fine(), cut), {half, cut});
    call.run();
    const Outputs part = call.outputs();
    PlannedCall alone(rank.context.get(), conv_call(fine(), make_inputs(fine())));
    alone.run();
    const Values y = alone.outputs().at("y");
    const auto middle = y.begin() + static_cast<ptrdiff_t>(y.size() / 2);
    CHECK(part.at("y") == (index == 2 ? std::vector<double>(y.begin(), middle)
                                      : std::vector<double>(middle, y.end())));
    return rank.error();
  });
  for (const std::string& text : texts) CHECK(text.empty());
  CHECK(lathe_group_split(nullptr, nullptr, 0, 0) == LATHE_INVALID_ARGUMENT);
}

}  // namespace
