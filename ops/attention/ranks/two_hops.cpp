// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/ranks/two_hops.h"

namespace lathe {

std::vector<HopTensor> hop_tensors(const lathe_problem& problem, const AttentionProblem& asked) {
  namespace att = attention;
  std::vector<HopTensor> out;
  const int64_t width = asked.head_dim, values = asked.value_dim;
  const auto add = [&](int tensor, bool keys, int64_t columns) {
    if (!problem.has(tensor)) return;
    const bool per_row = tensor == att::lse || tensor == att::dlse;
    out.push_back({tensor, keys, per_row, !problem.writes(tensor), columns,
                   per_row ? 4 : bytes_of(asked.element)});
  };
  add(att::q, false, width), add(att::k, true, width), add(att::v, true, values);
  add(att::dout, false, values), add(att::dlse, false, 1);
  add(att::out, false, values), add(att::lse, false, 1);
  add(att::dq, false, width), add(att::dk, true, width), add(att::dv, true, values);
  return out;
}

RowCopier::Side TensorHop::compact(char* data, const DeviceTable* index) const {
  const int64_t row = heads * tensor->width;
  RowCopier::Side side;
  side.view = {data, batch * row, row, tensor->width, tensor->width, tensor->bytes};
  side.index = index ? index->data() : nullptr;
  return side;
}

RowCopier::Side TensorHop::dense_side(int64_t part) const {
  RowCopier::Side side;
  side.view = {dense_part(part), 1, heads * away_tokens, away_tokens, 1, tensor->bytes};
  return side;
}

Status TensorHop::pack(RowCopier* turned, RowCopier* packed) const {
  for (int64_t part = 0; tensor->per_row && !tensor->is_input && part < parts; ++part) {
    LATHE_TRY(copy(turned, dense_side(part), compact(away_part(part)), away_tokens));
  }
  if (route->send_rows.data() == nullptr) return {};
  return copy(packed, compact(from(), &route->send_rows), compact(sent), route->copies.sent());
}

Status TensorHop::copy_own(RowCopier* copies) const {
  return copy(copies, compact(from(), &route->own_from), compact(to(), &route->own_to),
              static_cast<int64_t>(route->copies.own_from.size()));
}

Status TensorHop::unpack(RowCopier* scattered, RowCopier* turned) const {
  if (route->receive_rows.data() != nullptr) {
    LATHE_TRY(copy(scattered, compact(received), compact(to(), &route->receive_rows),
                   route->copies.received()));
  }
  for (int64_t part = 0; tensor->per_row && tensor->is_input && part < parts; ++part) {
    LATHE_TRY(copy(turned, compact(away_part(part)), dense_side(part), away_tokens));
  }
  return {};
}

RowTransfer TensorHop::transfer() const {
  return {&route->copies, route->send_rows.data() ? sent : from(),
          route->receive_rows.data() ? received : to(), bytes(1)};
}

void TwoHopState::add_dsinks(int rank, int world, int64_t shares, size_t others) {
  const Interval own = shares_of(shares, rank, world);
  for (int peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    const Interval its = shares_of(shares, peer, world);
    dsinks.sends.push_back({peer, own.begin, own.size()});
    dsinks.receives.push_back({peer, its.begin, its.size()});
  }
  messages.reserve(others + dsinks.sends.size());
}

RowCopier::Side TwoHopRun::local(const HopTensor& each) const {
  const Tensor& tensor = call_.tensors[each.tensor];
  const auto& s = tensor.stride;
  Side side;
  side.view = {tensor.data, 0, 0, 0, each.width, each.bytes};
  RowView& view = side.view;
  if (packed_) {
    view.token = s[each.per_row ? 1 : 0], view.head = s[each.per_row ? 0 : 1];
  } else {
    view.batch = s[0], view.token = s[each.per_row ? 2 : 1], view.head = s[each.per_row ? 1 : 2];
  }
  return side;
}

Status TwoHopRun::exchange(bool inputs) {
  std::array<RowTransfer, attention::count> tensors;
  size_t count = 0;
  for (const HopTensor& each : tensors_) {
    if (each.is_input == inputs) tensors[count++] = hops_[each.tensor].transfer();
  }
  if (!inputs && dsinks_transfer_.copies != nullptr) tensors[count++] = dsinks_transfer_;
  return exchange_.run(hop_of(std::span(tensors).first(count), inputs ? names_.out : names_.home,
                              &two_hops_.messages));
}

Status TwoHopRun::operator()() {
  LATHE_TRY(pack_inputs());
  LATHE_TRY(exchange(true));
  LATHE_TRY(copy_all(true, [](const TensorHop& hop, RowCopier* scattered, RowCopier* turned) {
    return hop.unpack(scattered, turned);
  }));
  LATHE_TRY(compute());
  LATHE_TRY(pack_results());
  LATHE_TRY(exchange(false));
  return unpack_results();
}

}  // namespace lathe
