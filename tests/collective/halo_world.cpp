// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// This file holds kernels that move names of rows, and computes their expected results.
#include "tests/collective/halo_world.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/collective/cases.h"

using namespace lathe;

namespace {
// Returns the caller's stream, of every rank.
CUstream stream_of_caller() { return nullptr; }
}  // namespace

HaloWorld::HaloWorld(std::vector<int64_t> cu_seqlens, Partition partition, int w)
    : cu(std::move(cu_seqlens)), cut(std::move(partition)), width(w) {
  set_up();
}

HaloWorld::HaloWorld(std::mt19937& random) {
  const int64_t length = random() % 30;
  const int world = static_cast<int>(random() % 7) + 1;
  cu = cases::random_offsets(random, length, static_cast<int>(random() % 6) + 1);
  cut.bounds = cases::random_offsets(random, length, world);
  width = static_cast<int>(random() % 7) + 2;
  set_up();
}

HaloWorld::~HaloWorld() {
  for (int r = 0; r < size(); ++r) {
    fakes::current = &ranks[r];
    groups[r].reset();
  }
  fakes::current = nullptr;
}

void HaloWorld::set_up() {
  ranks.resize(size());
  groups.resize(size());
  buffers_.resize(size());
  seen_halo.resize(size());
  for (int r = 0; r < size(); ++r) {
    ranks[r].rank = r;
    ranks[r].world = size();
    fakes::current = &ranks[r];
    const auto comm = reinterpret_cast<ncclComm_t>(&ranks[r]);
    auto group = Group::adopt(fakes::device(), fakes::nccl(), comm);
    REQUIRE(group.ok());
    groups[r] = *group;
    plans.push_back(halo_plan(cut, r, width));
    spoil(r);
  }
}

std::string HaloWorld::words() const {
  return "width " + std::to_string(width) + ", cu " + cases::words(cu) + ", cut " +
         cases::words(cut.bounds);
}

int64_t HaloWorld::sequence_at(int64_t position) const {
  int64_t n = 0;
  while (cu[n + 1] <= position) ++n;
  return n;
}

bool HaloWorld::goes_on(int rank) const {
  const Interval part = cut.part(rank);
  return part.size() > 0 && cu[sequence_at(part.begin)] < part.begin;
}

Step HaloWorld::step(int rank, const char* name, void (HaloWorld::*effect)(int)) {
  plays_.push_back({this, rank, name, effect});
  const auto run = [](void* user, CUstream stream) {
    const Play play = *static_cast<Play*>(user);
    fakes::enqueue(stream, play.name, [play] { (play.world->*play.effect)(play.rank); });
    return Status();
  };
  return {run, &plays_.back()};
}

HaloBuffers HaloWorld::rows_of(int rank) {
  Buffers& b = buffers_[rank];
  return {b.tail.data(), b.rows.data(), sizeof(Row) * (width - 1)};
}

HaloBuffers HaloWorld::gradients_of(int rank) {
  Buffers& b = buffers_[rank];
  return {b.dhalo.data(), b.gradients.data(), sizeof(Row) * (width - 1)};
}

// The caller may use the buffers for something else on his stream once a run is enqueued, as here.
void HaloWorld::finish(int rank) {
  fakes::enqueue(stream_of_caller(), "spoil", [this, rank] { spoil(rank); });
}

void HaloWorld::forward() {
  for (int r = 0; r < size(); ++r) {
    fakes::current = &ranks[r];
    const Status status = conv_halo_forward(
        *groups[r], plans[r], rows_of(r), step(r, "pack", &HaloWorld::pack),
        step(r, "interior", &HaloWorld::nothing), step(r, "join", &HaloWorld::join),
        step(r, "boundary", &HaloWorld::forward_boundary), stream_of_caller());
    REQUIRE_MESSAGE(status.ok(), status.text());
    finish(r);
  }
}

void HaloWorld::backward() {
  for (int r = 0; r < size(); ++r) {
    fakes::current = &ranks[r];
    const Status status = conv_halo_backward(
        *groups[r], plans[r], rows_of(r), gradients_of(r), step(r, "pack", &HaloWorld::pack),
        step(r, "first half", &HaloWorld::nothing), step(r, "join", &HaloWorld::join),
        step(r, "boundary", &HaloWorld::backward_boundary),
        step(r, "second half", &HaloWorld::nothing), step(r, "add", &HaloWorld::add),
        stream_of_caller());
    REQUIRE_MESSAGE(status.ok(), status.text());
    finish(r);
  }
}

void HaloWorld::forward_then_backward() {
  for (int r = 0; r < size(); ++r) {
    fakes::current = &ranks[r];
    const Step nothing = step(r, "interior", &HaloWorld::nothing);
    Status status =
        conv_halo_forward(*groups[r], plans[r], rows_of(r), step(r, "pack", &HaloWorld::pack),
                          nothing, step(r, "join", &HaloWorld::join), nothing, stream_of_caller());
    REQUIRE_MESSAGE(status.ok(), status.text());
    status = conv_halo_backward(*groups[r], plans[r], {}, gradients_of(r), {}, nothing, {},
                                step(r, "boundary", &HaloWorld::backward_boundary), nothing,
                                step(r, "add", &HaloWorld::add), stream_of_caller());
    REQUIRE_MESSAGE(status.ok(), status.text());
    finish(r);
  }
}

// ---- the kernels --------------------------------------------------------------------------------

void HaloWorld::spoil(int rank) {
  Buffers& b = buffers_[rank];
  const size_t rows = width - 1;
  b.tail.assign(rows, kGarbage);
  b.halo.assign(rows, kGarbage);
  b.dhalo.assign(rows, kGarbage);
  b.rows.resize(rows * kConvMaxMessages);
  b.gradients.resize(rows * kConvMaxMessages);
  std::fill(b.rows.begin(), b.rows.end(), kGarbage);
  std::fill(b.gradients.begin(), b.gradients.end(), kGarbage);
}

void HaloWorld::pack(int rank) {
  const Interval part = cut.part(rank);
  REQUIRE(part.end < cut.length());  // somebody later asked for the rows
  const int64_t sequence = sequence_at(part.end), start = cu[sequence];
  for (int h = 0; h < width - 1; ++h) {
    const int64_t position = part.end - (width - 1) + h;
    Row& row = buffers_[rank].tail[h];
    if (position >= start) {
      row = position >= part.begin ? token_row(position) : kZero;
    } else {
      row = start >= part.begin ? slot_row(sequence, width + position - start) : kZero;
    }
  }
}

void HaloWorld::join(int rank) {
  if (!goes_on(rank)) return;
  const Interval part = cut.part(rank);
  const int64_t start = cu[sequence_at(part.begin)];
  const HaloPeers& sources = plans[rank].sources;
  Buffers& b = buffers_[rank];
  for (int j = 0; j < width - 1; ++j) {
    const int64_t position = part.begin - (width - 1) + j;
    const int64_t at = std::max(position, start);
    b.halo[j] = kZero;
    for (size_t m = 0; m < sources.size(); ++m) {
      const Interval from = sources[m].part;
      if (at < from.begin || at >= from.end) continue;
      b.halo[j] = b.rows[m * (width - 1) + position - (from.end - (width - 1))];
    }
  }
  if (plans[rank].aligned) {
    for (int j = 0; j < width - 1; ++j) CHECK(b.halo[j] == b.rows[j]);
  }
}

void HaloWorld::forward_boundary(int rank) {
  seen_halo[rank].clear();
  if (goes_on(rank)) seen_halo[rank] = buffers_[rank].halo;
}

void HaloWorld::backward_boundary(int rank) {
  forward_boundary(rank);
  for (int h = 0; h < width - 1; ++h) {
    buffers_[rank].dhalo[h] = goes_on(rank) ? gradient_row(rank, h) : kZero;
  }
}

void HaloWorld::add(int rank) {
  const Interval part = cut.part(rank);
  const HaloPeers& from = plans[rank].destinations;
  for (size_t m = 0; m < from.size(); ++m) {
    const int64_t begin = from[m].part.begin, sequence = sequence_at(begin), start = cu[sequence];
    for (int h = 0; h < width - 1; ++h) {
      const Row row = buffers_[rank].gradients[m * (width - 1) + h];
      const int64_t position = begin - (width - 1) + h;
      if (row == kZero) continue;
      if (position >= start && position >= part.begin && position < part.end) {
        added[{rank, token_row(position)}].push_back(row);
      }
      if (position < start && start >= part.begin && start < part.end) {
        added[{rank, slot_row(sequence, width + position - start)}].push_back(row);
      }
    }
  }
}

// ---- what must come out -------------------------------------------------------------------------

std::vector<Row> HaloWorld::expected_halo(int rank) const {
  std::vector<Row> out;
  if (!goes_on(rank)) return out;
  const int64_t begin = cut.part(rank).begin, sequence = sequence_at(begin), start = cu[sequence];
  for (int64_t at = begin - (width - 1); at < begin; ++at) {
    out.push_back(at < start ? slot_row(sequence, width + at - start) : token_row(at));
  }
  return out;
}

HaloWorld::Sums HaloWorld::expected_sums() const {
  Sums out;
  const auto owner = [&](int64_t position) {
    int rank = 0;
    while (position >= cut.part(rank).end) ++rank;
    return rank;
  };
  for (int rank = 0; rank < size(); ++rank) {
    if (!goes_on(rank)) continue;
    const int64_t begin = cut.part(rank).begin, start = cu[sequence_at(begin)];
    const std::vector<Row> rows = expected_halo(rank);
    for (int h = 0; h < width - 1; ++h) {
      // A slot of the initial state lies with the first token of its sequence.
      const int64_t from = std::max(start, begin - (width - 1) + h);
      out[{owner(from), rows[h]}].push_back(gradient_row(rank, h));
    }
  }
  return out;
}
