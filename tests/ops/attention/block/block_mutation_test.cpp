// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These are the lists of mutations of the steps of ring attention by warpgroups.
#include <doctest/doctest.h>

#include <memory>

#include "tests/ops/attention/block/block_case.h"
#include "tests/ops/attention/mutants.h"

using namespace apitest;

namespace {

BlockInputs inputs_of(const TileRow& row, int64_t heads, int64_t rows, int64_t keys,
                      const std::vector<BlockRange>& ranges) {
  ref::AttentionBlock shape;
  shape.rows = rows, shape.keys = keys, shape.heads = heads, shape.kv_heads = 1;
  shape.head_dim = row.width, shape.value_dim = row.value_width;
  BlockStep step = {.ranges = ranges};
  if (row.has("local")) step.window_left = 300, step.window_right = 40;
  return make_block(row, 3, shape, &step);
}

// Many visits of the first tile of rows, and of the others in turns none and one: a tile begins in
// phases of either parity, and so does one without visits, often while warps are at the one before.
BlockInputs forward_inputs(const TileRow& row) {
  return inputs_of(row, 1, 1160, 400,
                   {{0, 100, 0, 40, 0},
                    {0, 100, 40, 90, 0},
                    {0, 100, 90, 130, 0},
                    {0, 100, 140, 180, 0},
                    {0, 100, 190, 220, 0},
                    {0, 100, 220, 400, 100},
                    {260, 380, 7, 120, 20},
                    {520, 630, 290, 400, 20},
                    {770, 890, 7, 120, 20},
                    {1030, 1150, 290, 400, 20}});
}

// The first tile of keys is of many ranges, so that the copy of a visit's own keys is made anew
// again and again, the last time too. The last tile is of none.
BlockInputs backward_inputs(const TileRow& row) {
  return inputs_of(row, 1, 200, 400,
                   {{0, 60, 0, 20, 0},
                    {0, 60, 21, 45, 20},
                    {0, 60, 45, 70, 20},
                    {0, 180, 71, 100, 50},
                    {110, 160, 2, 20, 60},
                    {110, 160, 20, 60, 60},
                    {0, 60, 105, 115, 40},
                    {0, 60, 115, 250, 40}});
}

Subject forward_of(const TileRow& row) {
  const auto in = std::make_shared<const BlockInputs>(forward_inputs(row));
  Subject subject = {"attention_block_warpgroups",
                     [=] { return execute(make_context().get(), block_call(row, *in, false)); },
                     [=](const Answer& answer) { check_block(row, *in, false, answer); }};
  // The keys of a tile's first visit are there when its message is.
  subject.covered = {{"no wait", 1}, {"no second try", 1}};
  // Before a message is sent with or without keys: the simulator takes what one lane releases for
  // the whole warp's. Behind a visit and behind the last one: the lane that has read them for its
  // copies is the one that writes the next.
  subject.covered["no warp barrier"] = 4;
  return subject;
}

Subject backward_of(const TileRow& row) {
  const auto in = std::make_shared<const BlockInputs>(backward_inputs(row));
  Subject subject = {
      "attention_block_backward_warpgroups",
      [=] { return execute(make_context().get(), block_gradients_call(row, *in, "")); },
      [=](const Answer& answer) { check_block_gradients(row, *in, "", answer); }, "dq"};
  // The first q is there when its message is, and is of phase 0 as the message and the first dout
  // are. A stage's dout was read before its q, for which its copies have waited.
  subject.covered = {{"no wait", 1}, {"no second try", 2}, {"always phase 0", 3}};
  // Nobody waits until the last stage of dout is empty.
  subject.covered["no arrival"] = 1;
  // Before a message is sent with or without keys: as of the forward. Behind the copies of q and of
  // dout: they bring the lanes together, of which one alone has done something.
  subject.covered["no warp barrier"] = 4;
  if (row.width == 64) {
    // As in the backward: dv and dk of a block's first half.
    subject.covered["no wait"] += 4, subject.covered["a weaker wait"] = 4;
  }
  return subject;
}

}  // namespace

TEST_CASE("block step by warpgroups: nothing that orders it can go") {
  const TileRow row = {LATHE_BF16, 64, 64, "", "ranges"};
  check_mutations(forward_of(row));
}

TEST_CASE("block step by warpgroups, windows and wider: nothing that orders it can go") {
  const TileRow row = {LATHE_F16, 128, 128, "", "ranges local"};
  check_mutations(forward_of(row));
}

TEST_CASE("block step by warpgroups: nothing that orders its gradients can go") {
  const TileRow row = {LATHE_BF16, 64, 64, "", "ranges"};
  check_mutations(backward_of(row));
}

TEST_CASE("block step by warpgroups, windows and wider: nothing that orders its gradients can go") {
  const TileRow row = {LATHE_F16, 128, 128, "", "ranges local"};
  check_mutations(backward_of(row));
}
