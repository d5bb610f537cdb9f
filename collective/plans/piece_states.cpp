// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Lists the messages of maps, and the walks over a rank's elements.
#include "collective/plans/piece_states.h"

#include <algorithm>
#include <map>

namespace lathe {
namespace {

using Chain = std::vector<SequencePiece>;

// Says where a rank stands in a chain: the positions of its first and last piece, if it has one.
struct Span {
  int first = -1, last = -1;
};

class StatesPlanner {
 public:
  // `most`: pieces of a rank, if elements are numbered for a capacity; else 0.
  StatesPlanner(const PieceLayout& layout, int rank, bool states, bool grads, int most = 0)
      : layout_(layout), rank_(rank), states_(states), grads_(grads), most_(most) {}

  PieceStatesPlan operator()();

 private:
  void exchange(const Chain& chain);
  // Adds what the owner of a piece sends to another rank of its chain.
  void add_messages(const Chain& chain, const SequencePiece& piece, int peer, const Span& span);
  void walk(bool back);
  int element_of(const SequencePiece& piece) const {
    return piece.rank == rank_ ? piece.number : received_.at({piece.sequence, piece.position});
  }

  const PieceLayout& layout_;
  const int rank_;
  const bool states_, grads_;
  const int most_;
  std::map<std::pair<int64_t, int>, int> received_;  // elements, by sequence and position
  PieceStatesPlan out_;
};

// Makes the walks of one direction: a tree over the elements between the rank's pieces, level by
// level, and at last a walk over every chain.
class Walker {
 public:
  // `elements` counts those that there are; the tree adds others.
  explicit Walker(int* elements) : elements_(elements) {}

  // Adds a chain's elements in the order of the walk, with the piece whose state lies behind each.
  // The state behind the last one is wanted.
  void add(std::vector<PieceStep> chain) { chains_.push_back(std::move(chain)); }
  PieceWalks operator()();

 private:
  bool reduce(std::vector<PieceStep>* chain);
  void append(const std::vector<PieceStep>& steps, int element, bool map);

  int* const elements_;
  std::vector<std::vector<PieceStep>> chains_;
  PieceWalks out_;
};

void Walker::append(const std::vector<PieceStep>& steps, int element, bool map) {
  out_.walks.push_back(
      {static_cast<int>(out_.steps.size()), static_cast<int>(steps.size()), element, map ? 1 : 0});
  out_.steps.insert(out_.steps.end(), steps.begin(), steps.end());
}

// Reduces the gaps that have more than kPieceRadix elements by one level. A gap ends with an
// element behind which a state is wanted. Returns whether there was one.
bool Walker::reduce(std::vector<PieceStep>* chain) {
  std::vector<PieceStep> out;
  bool reduced = false;
  for (auto begin = chain->begin(); begin != chain->end();) {
    const auto wanted =
        std::find_if(begin, chain->end(), [](const PieceStep& step) { return step.piece >= 0; });
    const auto end = wanted + 1;
    const bool is_long = end - begin > kPieceRadix;
    reduced = reduced || is_long;
    while (begin != end) {
      const auto next = begin + std::min<int64_t>(is_long ? kPieceRadix : 1, end - begin);
      PieceStep step = *(next - 1);
      if (next - begin > 1) {
        std::vector<PieceStep> group(begin, next);
        for (PieceStep& each : group) each.piece = -1;
        step.element = (*elements_)++;
        append(group, step.element, begin != chain->begin());
      }
      out.push_back(step);
      begin = next;
    }
  }
  *chain = std::move(out);
  return reduced;
}

PieceWalks Walker::operator()() {
  out_.levels = {0};
  const auto end_level = [this] {
    const int count = static_cast<int>(out_.walks.size());
    if (count > out_.levels.back()) out_.levels.push_back(count);
  };
  for (bool again = true; again;) {
    again = false;
    for (std::vector<PieceStep>& chain : chains_) again = reduce(&chain) || again;
    end_level();
  }
  for (const std::vector<PieceStep>& chain : chains_) append(chain, -1, false);
  end_level();
  return std::move(out_);
}

void StatesPlanner::add_messages(const Chain& chain, const SequencePiece& piece, int peer,
                                 const Span& span) {
  const bool forth = states_ && span.last > piece.position;
  const bool back = grads_ && span.first < piece.position;
  const bool through = (forth && piece.position > 0) ||
                       (back && piece.position + 1 < static_cast<int>(chain.size()));
  const bool sends = piece.rank == rank_;
  if (!forth && !back) return;
  int element = piece.number;
  if (!sends) {
    const int other = piece.rank < rank_ ? piece.rank : piece.rank - 1;
    element = most_ > 0 ? most_ * (1 + other) + piece.number
                        : static_cast<int>(out_.pieces.size() + received_.size());
    received_[{piece.sequence, piece.position}] = element;
  }
  if (most_ > 0) return;  // all are sent
  std::vector<PieceMessage>& messages = sends ? out_.sends : out_.receives;
  if (forth) messages.push_back({peer, PieceMessage::end, element});
  if (through) messages.push_back({peer, PieceMessage::map, element});
  if (back) messages.push_back({peer, PieceMessage::grad, element});
}

void StatesPlanner::exchange(const Chain& chain) {
  std::map<int, Span> ranks;
  for (const SequencePiece& piece : chain) {
    Span& span = ranks.try_emplace(piece.rank, Span{piece.position, -1}).first->second;
    span.last = piece.position;
  }
  const auto own = ranks.find(rank_);
  if (own == ranks.end()) return;
  for (const SequencePiece& piece : chain) {
    if (piece.rank != rank_) {
      add_messages(chain, piece, piece.rank, own->second);
      continue;
    }
    for (const auto& [peer, span] : ranks) {
      if (peer != rank_) add_messages(chain, piece, peer, span);
    }
  }
}

void StatesPlanner::walk(bool back) {
  Walker walker(&out_.elements);
  for (const Chain& chain : layout_.chains) {
    if (chain.size() < 2) continue;
    std::vector<PieceStep> steps;
    size_t wanted = 0;  // steps up to the last one whose state is wanted
    const auto add = [&](const SequencePiece& piece, const SequencePiece& next) {
      // Elements behind the rank's last piece are not there, and no state behind them is wanted.
      const bool here = piece.rank == rank_ || received_.contains({piece.sequence, piece.position});
      steps.push_back({here ? element_of(piece) : -1, next.rank == rank_ ? next.number : -1});
      if (next.rank == rank_) wanted = steps.size();
    };
    for (size_t i = 0; i + 1 < chain.size(); ++i) {
      const size_t last = chain.size() - 1;
      back ? add(chain[last - i], chain[last - i - 1]) : add(chain[i], chain[i + 1]);
    }
    steps.resize(wanted);
    if (!steps.empty()) walker.add(std::move(steps));
  }
  (back ? out_.back : out_.forward) = walker();
}

PieceStatesPlan StatesPlanner::operator()() {
  out_ = own_pieces_plan(layout_, rank_, states_, grads_);
  for (const Chain& chain : layout_.chains) {
    if (chain.size() > 1) exchange(chain);
  }
  out_.elements = most_ > 0 ? most_ * static_cast<int>(layout_.ranks.size())
                            : static_cast<int>(out_.pieces.size() + received_.size());
  if (states_) walk(false);
  if (grads_) walk(true);
  return std::move(out_);
}

}  // namespace

PieceStatesPlan own_pieces_plan(const PieceLayout& layout, int rank, bool states, bool grads) {
  PieceStatesPlan out;
  out.pieces = layout.ranks[rank];
  const auto take_in = [](const SequencePiece& piece, PieceWalks* walks) {
    walks->walks.push_back({static_cast<int>(walks->steps.size()), 2, piece.number, 0});
    walks->steps.push_back({-1 - piece.number, -1});
    walks->steps.push_back({piece.number, -1});
  };
  for (const SequencePiece& piece : out.pieces) {
    const auto sequence = static_cast<int32_t>(piece.sequence);
    const bool cut = !layout.is_whole(piece);
    out.cut.push_back(cut);
    if (layout.is_first(piece)) {
      out.first_pieces.push_back(piece.number), out.first_sequences.push_back(sequence);
      if (cut && states) take_in(piece, &out.given_states);
    }
    if (layout.is_last(piece)) {
      out.last_pieces.push_back(piece.number), out.last_sequences.push_back(sequence);
      if (cut && grads) take_in(piece, &out.given_grads);
    }
  }
  for (PieceWalks* walks : {&out.given_states, &out.given_grads}) {
    walks->levels = {0, static_cast<int>(walks->walks.size())};
  }
  return out;
}

bool PieceStatesPlan::cuts() const { return std::ranges::find(cut, true) != cut.end(); }

PieceStatesPlan piece_states_plan(const PieceLayout& layout, int rank, bool states, bool grads) {
  return StatesPlanner(layout, rank, states, grads)();
}

// A level leaves at most two of five elements of each gap that it reduces, and makes at most a
// third as many walks as they were.
int fill_walks(int elements, int gap, int chains, PieceWalks* walks) {
  std::vector<int> most;  // walks, by level
  int made = 0, left = elements;
  for (int longest = gap; longest > kPieceRadix;) {
    most.push_back(left / 3), made += left / 3;
    left = 2 * left / 5, longest = (longest + kPieceRadix - 1) / kPieceRadix;
  }
  most.push_back(chains);
  PieceWalks out;
  out.levels = {0};
  const size_t given = walks->levels.empty() ? 0 : walks->levels.size() - 1;
  for (size_t level = 0; level < most.size(); ++level) {
    // The last level that is given is that of the chains.
    const bool last = level + 1 == most.size();
    const size_t from = last ? given - 1 : level;
    if (given > 0 && (last || level + 1 < given)) {
      out.walks.insert(out.walks.end(), walks->walks.begin() + walks->levels[from],
                       walks->walks.begin() + walks->levels[from + 1]);
    }
    out.walks.resize(out.levels.back() + most[level]);
    out.levels.push_back(static_cast<int>(out.walks.size()));
  }
  out.steps = std::move(walks->steps);
  out.steps.resize(static_cast<size_t>(elements) * most.size());
  *walks = std::move(out);
  return made;
}

PieceStatesPlan fixed_states_plan(const PieceLayout& layout, int rank, bool states, bool grads,
                                  int most) {
  PieceStatesPlan out = StatesPlanner(layout, rank, states, grads, most)();
  const int world = static_cast<int>(layout.ranks.size());
  SequencePiece none;
  none.rank = rank;
  if (!out.pieces.empty()) none.row = out.pieces.back().row + out.pieces.back().tokens;
  while (std::ssize(out.pieces) < most) {
    none.number = static_cast<int>(out.pieces.size());
    out.pieces.push_back(none);
  }
  out.cut.assign(most, true);
  for (std::vector<int32_t>* list :
       {&out.first_pieces, &out.first_sequences, &out.last_pieces, &out.last_sequences}) {
    list->resize(most, -1);
  }
  for (int peer = 0; peer < world; ++peer) {
    if (peer == rank) continue;
    const int received = most * (1 + (peer < rank ? peer : peer - 1));
    const auto exchange = [&](PieceMessage::Kind kind) {
      out.sends.push_back({peer, kind, 0, most});
      out.receives.push_back({peer, kind, received, most});
    };
    if (states) exchange(PieceMessage::end);
    exchange(PieceMessage::map);
    if (grads) exchange(PieceMessage::grad);
  }
  out.elements = most * world;
  for (PieceWalks* walks : {&out.given_states, &out.given_grads}) {
    walks->walks.resize(most), walks->steps.resize(2 * most), walks->levels = {0, most};
  }
  const int gap = most * (world - 1) + 1;
  out.elements = most * world;
  if (states) out.elements += fill_walks(most * world, gap, most, &out.forward);
  if (grads) out.elements += fill_walks(most * world, gap, most, &out.back);
  return out;
}

}  // namespace lathe
