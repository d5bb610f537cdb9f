// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/ranks/travel.h"

namespace lathe {

std::vector<Traveller> travellers_of(const lathe_problem& problem, const AttentionProblem& asked) {
  namespace att = attention;
  std::vector<Traveller> out;
  const int64_t width = asked.head_dim, values = asked.value_dim;
  const auto add = [&](int tensor, bool keys, int64_t columns) {
    if (!problem.has(tensor)) return;
    const bool rows = tensor == att::lse || tensor == att::dlse;
    out.push_back(
        {tensor, keys, rows, !problem.writes(tensor), columns, rows ? 4 : bytes_of(asked.element)});
  };
  add(att::q, false, width), add(att::k, true, width), add(att::v, true, values);
  add(att::dout, false, values), add(att::dlse, false, 1);
  add(att::out, false, values), add(att::lse, false, 1);
  add(att::dq, false, width), add(att::dk, true, width), add(att::dv, true, values);
  return out;
}

RowCopier::Side Journey::compact(char* data, const DeviceTable* index) const {
  const int64_t row = heads * each->width;
  RowCopier::Side side;
  side.view = {data, batch * row, row, each->width, each->width, each->bytes};
  side.index = index ? index->data() : nullptr;
  return side;
}

RowCopier::Side Journey::dense_side() const {
  RowCopier::Side side;
  side.view = {dense, 1, heads * arrived, arrived, 1, each->bytes};
  return side;
}

Status Journey::leave(RowCopier* turned, RowCopier* packed) const {
  if (each->rows && !each->there) {
    LATHE_TRY(copy(turned, dense_side(), compact(far), arrived));
  }
  if (route->send_rows.data() == nullptr) return {};
  return copy(packed, compact(from(), &route->send_rows), compact(sent), route->copies.sent());
}

Status Journey::stay(RowCopier* copies) const {
  return copy(copies, compact(from(), &route->own_from), compact(to(), &route->own_to),
              static_cast<int64_t>(route->copies.own_from.size()));
}

Status Journey::enter(RowCopier* scattered, RowCopier* turned) const {
  if (route->receive_rows.data() != nullptr) {
    LATHE_TRY(copy(scattered, compact(received), compact(to(), &route->receive_rows),
                   route->copies.received()));
  }
  if (!each->rows || !each->there) return {};
  return copy(turned, compact(far), dense_side(), arrived);
}

RowTransfer Journey::transfer() const {
  return {&route->copies, route->send_rows.data() ? sent : from(),
          route->receive_rows.data() ? received : to(), batch * heads * each->width * each->bytes};
}

void TravelState::make_space(int rank, int world, size_t messages) {
  for (int peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    shares.sends.push_back({peer, rank, 1});
    shares.receives.push_back({peer, peer, 1});
  }
  const size_t most = messages + shares.sends.size();
  sends.resize(most), receives.resize(most);
}

Status TravelRun::lay_out_steps(size_t bytes) {
  steps_bytes_ = static_cast<int64_t>(bytes);
  steps_ = section({steps_bytes_});
  return layout_.status();
}

RowCopier::Side TravelRun::local(const Traveller& each) const {
  const Tensor& tensor = call_.tensors[each.tensor];
  const auto& s = tensor.stride;
  Side side;
  side.view = {tensor.data, 0, 0, 0, each.width, each.bytes};
  RowView& view = side.view;
  if (packed_) {
    view.token = s[each.rows ? 1 : 0], view.head = s[each.rows ? 0 : 1];
  } else {
    view.batch = s[0], view.token = s[each.rows ? 2 : 1], view.head = s[each.rows ? 1 : 2];
  }
  return side;
}

Status TravelRun::exchange(bool there, const char* name, const TravelState& state,
                           const RowTransfer& dsinks) const {
  std::array<RowTransfer, attention::count> tensors;
  size_t count = 0;
  for (const Traveller& each : travellers_) {
    if (each.there == there) tensors[count++] = ways_[each.tensor].transfer();
  }
  if (dsinks.copies != nullptr) tensors[count++] = dsinks;
  const Hop hop = hop_of(std::span(tensors).first(count), name, state.sends, state.receives);
  return Exchange(group_, call_.stream).run(hop);
}

}  // namespace lathe
