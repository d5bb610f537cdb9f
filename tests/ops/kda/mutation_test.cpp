// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// These are the lists of mutations of KDA's kernels by warpgroups: those of the backward, and the
// forward by clusters.
#include <doctest/doctest.h>

#include <memory>

#include "tests/harness/mutants.h"
#include "tests/ops/kda/case.h"

using namespace apitest;

namespace {

KdaCase backward_case(int64_t tokens) {
  KdaCase kda;
  kda.key_dim = kda.value_dim = 128;
  kda.tokens = tokens;
  kda.gate_dtype = LATHE_BF16;
  kda.weakest = -7.4;  // some blocks of tokens have a column that is cut, some have none
  kda.states = KdaCase::none;
  kda.segments = 1;
  kda.backward = kda.apart = true;
  kda.forward = false;
  return kda;
}

Subject subject_of(const char* kernel, const KdaCase& kda) {
  const auto in = std::make_shared<const KdaInputs>(make_kda_inputs(kda));
  Subject subject = {kernel,
                     [=] { return execute(make_context().get(), kda_backward_call(kda, *in, {})); },
                     [=](const Answer& answer) { check_kda(kda, *in, answer.outputs); }};
  return subject;
}

// A walk back may lose these unseen. A walker waits for a record's rows, and then for the warp that
// prepares it, which has waited for the rows; the first records are empty, and a warp that asks for
// later rows has looked whether their record is, so that nobody has to wait for that. Lanes come
// together ahead of what tells that their warp has prepared or left a record, where the simulator
// takes what one lane releases for the whole warp's, and behind rows that one lane has asked for,
// so that none falls two phases behind it, which the simulator's lanes do not.
const std::map<std::string, int> kOfWalkBack = {
    {"no wait", 3}, {"no second try", 3}, {"always phase 1", 1}, {"no warp barrier", 4}};
// The same of both directions; forward walkers wait for the first record ahead of their loop too,
// and its phase is 0.
const std::map<std::string, int> kOfSummaries = {{"no wait", 5},
                                                 {"no second try", 5},
                                                 {"always phase 0", 2},
                                                 {"always phase 1", 2},
                                                 {"no warp barrier", 4}};

}  // namespace

// Sequences whose chunks end together and apart: one has a chunk, one has two, which a block goes
// through.
TEST_CASE("gradients of chunks by warpgroups: nothing that orders them can go") {
  KdaCase kda = backward_case(0);
  kda.segments = 0;  // a number that the caller gives would have a block go through one
  kda.cu_seqlens = {0, 70, 70, 134};
  kda.gate = 1, kda.dt_bias = kda.l2norm = true;
  Subject subject = subject_of("kda_backward_warpgroups", kda);
  // As many as there are runs of two chunks, and fewer than chunks.
  subject.multiprocessors = 4;
  // Behind a chunk all meet twice, since what it adds to dA_log and ddt_bias is summed.
  subject.covered = {{"no barrier", 1}};
  subject.least = 40;
  check_mutations(subject);
}

// Rows of q and k that nobody reads once the pairs are done give way to the next chunk's earlier.
// Blocks of two chunks each: phases turn, and the second one's state is made of the first one's.
TEST_CASE("runs of chunks by warpgroups: nothing that orders them can go") {
  KdaCase kda = backward_case(250);
  kda.segments = 0;
  Subject subject = subject_of("kda_backward_warpgroups", kda);
  // All warps meet behind their waits for rows of q, k and g: it takes one that has waited.
  subject.covered = {{"no second try", 1}};
  subject.least = 40;
  check_mutations(subject);
}

// More blocks of tokens than the ring has records: places are used again, and phases turn.
TEST_CASE("walk back by warpgroups: nothing that orders it can go") {
  Subject subject = subject_of("kda_backward_scan_warpgroups", backward_case(460));
  subject.covered = kOfWalkBack;
  subject.least = 40;
  check_mutations(subject);
}

// Both directions of three segments, each with more blocks than records.
TEST_CASE("summaries by warpgroups: nothing that orders them can go") {
  KdaCase kda = backward_case(3 * 320);
  kda.key_dim = kda.value_dim = 64;
  kda.segments = 3;
  Subject subject = subject_of("kda_summary_warpgroups", kda);
  subject.covered = kOfSummaries;
  subject.least = 80;
  check_mutations(subject);
}

namespace {

KdaCase cluster_case(int segments) {
  KdaCase kda;
  kda.key_dim = kda.value_dim = 128;
  kda.gate_dtype = LATHE_BF16;
  kda.weakest = -7.4;
  kda.segments = segments;
  return kda;
}

Subject cluster_of(const KdaCase& kda) {
  const auto in = std::make_shared<const KdaInputs>(make_kda_inputs(kda));
  Subject subject = {"kda_forward_cluster",
                     [=] { return execute(make_context().get(), kda_call(kda, *in)); },
                     [=](const Answer& answer) { check_kda(kda, *in, answer.outputs); }};
  subject.registers = true;
  subject.least = 100;
  return subject;
}

// A walker's waits for records in either walk may go as those of a walk back may, and so may warp
// barriers, also ahead of what tells other blocks. What other blocks tell is told once, in phase 0.
// A walk of two states waits for half of a product for the sake of registers alone, of which PTX
// has as many as it names, and the last ones that are taken are for code that the simulator does
// not have. A block that leaves E and M tells those who work, as a first segment's does or else the
// second one's: that else is there twice.
const std::map<std::string, int> kOfCluster = {
    {"no wait", 10},       {"a weaker wait", 3},    {"no second try", 7}, {"always phase 0", 6},
    {"always phase 1", 2}, {"no warp barrier", 12}, {"no registers", 1},  {"no arrival", 1}};

}  // namespace

// Three segments, of which the first ones have more blocks of tokens than the ring has records, by
// so many that all warps wait which prepare: one of the three blocks takes rows through the chain
// twice. A sequence of two segments has no chain.
TEST_CASE("a cluster of three segments: nothing that orders them can go") {
  KdaCase kda = cluster_case(3);
  kda.cu_seqlens = {0, 3 * 256, 3 * 256 + 20};
  Subject subject = cluster_of(kda);
  subject.covered = kOfCluster;
  subject.covered["no barrier"] = 1;  // behind the second link, of which there is none
  check_mutations(subject);
}

// A chain of two links, by all four blocks. Other sequences have fewer segments with tokens.
TEST_CASE("clusters of packed sequences: nothing that orders their segments can go") {
  KdaCase kda = cluster_case(4);
  kda.cu_seqlens = {0, 0, 4 * 192, 4 * 192 + 20};
  Subject subject = cluster_of(kda);
  subject.covered = kOfCluster;
  subject.covered["no barrier"] = 1;  // behind the rows, where a block takes some more of them
  subject.covered["no registers"] =
      2;  // of four warps that prepare three have room for all records
  check_mutations(subject);
}
