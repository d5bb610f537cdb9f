// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Plans states over canonical pieces by the nodes of a binary tree over each chain.
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "collective/plans/piece_states.h"

namespace lathe {
namespace {

enum Direction { kForth, kBack };

// A node of a chain's tree. Nodes are ordered so that children come before their parents.
struct Node {
  int64_t sequence = 0;
  int level = 0;
  int index = 0;
  auto operator<=>(const Node&) const = default;

  int begin() const { return index << level; }
};

using Chain = std::vector<SequencePiece>;

// Describes the tree over a chain, whose last nodes may be cut short.
class Tree {
 public:
  explicit Tree(const Chain& chain)
      : chain_(chain),
        leaves_(static_cast<int>(chain.size())),
        sequence_(chain[0].sequence),
        run_ends_(chain.size(), leaves_) {
    for (int i = leaves_ - 2; i >= 0; --i) {
      run_ends_[i] = chain[i].rank == chain[i + 1].rank ? run_ends_[i + 1] : i + 1;
    }
  }

  int leaves() const { return leaves_; }
  int end(const Node& node) const { return std::min((node.index + 1) << node.level, leaves_); }
  // Returns the node from leaf `begin` on, which 2^level divides. A node whose right half is behind
  // the last leaf is its left half.
  Node node(int level, int begin) const {
    while (level > 0 && begin + (1 << (level - 1)) >= leaves_) --level;
    return {sequence_, level, begin >> level};
  }
  Node left(const Node& of) const { return node(of.level - 1, of.begin()); }
  Node right(const Node& of) const {
    return node(of.level - 1, of.begin() + (1 << (of.level - 1)));
  }
  // Returns the rank that holds all leaves of a node; -1: several do.
  int owner(const Node& of) const {
    return run_ends_[of.begin()] >= end(of) ? chain_[of.begin()].rank : -1;
  }
  // Whether a walk meets a node first, and so takes its end and not its map.
  bool is_first(const Node& of, Direction direction) const {
    return direction == kForth ? of.begin() == 0 : end(of) == leaves_;
  }
  // Returns the nodes between a leaf and the start of the chain, or its end, in the order of a walk
  // towards the leaf.
  std::vector<Node> path(int leaf, Direction direction) const {
    std::vector<Node> out;
    if (direction == kForth) {
      for (int begin = 0; begin < leaf;) {
        const int level = std::bit_width(static_cast<unsigned>(leaf - begin)) - 1;
        out.push_back(node(level, begin));
        begin += 1 << level;
      }
      return out;
    }
    for (int begin = leaf + 1; begin < leaves_;) {
      const int level = std::countr_zero(static_cast<unsigned>(begin));
      out.push_back(node(level, begin));
      begin += 1 << level;
    }
    std::ranges::reverse(out);
    return out;
  }
  // Returns the leaf whose state, or gradient, is what a walk has behind a node of a path.
  int leaf_behind(const Node& of, Direction direction) const {
    return direction == kForth ? end(of) : of.begin() - 1;
  }
  const SequencePiece& leaf(int i) const { return chain_[i]; }

 private:
  const Chain& chain_;
  const int leaves_;
  const int64_t sequence_;
  std::vector<int> run_ends_;  // by leaf: where the run of the same rank's leaves ends
};

// A node of one direction: nodes that are made differ in the order of the products.
struct Element {
  Direction direction = kForth;
  Node node;
  auto operator<=>(const Element&) const = default;
};
// Leaves are of both directions, so that their maps travel once.
Element element_of(Direction direction, const Node& node) {
  return {node.level == 0 ? kForth : direction, node};
}

// Says which nodes a rank's pieces of one chain need: those that it has from one rank each, and
// those that it makes of these.
struct Needs {
  // By the rank that has all their leaves; `directions` that need them: bits.
  std::map<int, std::map<Element, unsigned>> whole;
  std::set<Element> mixed;
};

class Planner {
 public:
  Planner(const PieceLayout& layout, int rank, bool states, bool grads)
      : layout_(layout), rank_(rank) {
    if (states) directions_.push_back(kForth);
    if (grads) directions_.push_back(kBack);
  }

  PieceStatesPlan operator()(PieceStatesPlan base);

 private:
  // A start of a walk at a leaf of the rank, or at the end of the chain, and the nodes behind it.
  struct Walk {
    int from = -1;  // a leaf whose state is there; -1: begins with the first node's end
    std::vector<Node> nodes;
  };
  Walk walk_to(const Tree& tree, int rank, int leaf, Direction direction) const;
  void add_needs(const Tree& tree, int rank, const Node& node, Direction direction,
                 Needs* needs) const;
  Needs needs_of(const Tree& tree, int rank) const;

  void exchange(const Tree& tree);
  void add_messages(const Tree& tree, int peer, const std::map<Element, unsigned>& elements,
                    bool sends);
  void make_own(const Tree& tree, const Element& element);
  int number(Direction direction, const Node& node);

  void add_walk(std::vector<PieceStep> steps, const PieceWalk& walk, Direction direction, int level,
                bool before_exchange);
  void make(const Tree& tree, const Element& element, bool before_exchange);
  void walk(const Tree& tree, Direction direction);
  PieceWalks levels(Direction direction, bool before_exchange);

  // Walks of one level do not wait for each other. Elements are made level by level of the tree;
  // the states of pieces come behind them.
  struct LevelWalk {
    PieceWalk walk;
    std::vector<PieceStep> steps;
  };
  using Levels = std::map<int, std::vector<LevelWalk>>;
  static constexpr int kStates = 1 << 16;  // the first level of states

  const PieceLayout& layout_;
  const int rank_;
  std::vector<Direction> directions_;
  std::map<Element, int> numbers_;
  std::set<Element> made_;
  Levels walks_[2][2];  // by direction, and whether before the exchange
  PieceStatesPlan out_;
};

Planner::Walk Planner::walk_to(const Tree& tree, int rank, int leaf, Direction direction) const {
  Walk out;
  for (const Node& node : tree.path(leaf, direction)) {
    out.nodes.push_back(node);
    const int behind = tree.leaf_behind(node, direction);
    if (behind == leaf || tree.leaf(behind).rank != rank) continue;
    out.from = behind, out.nodes.clear();
  }
  return out;
}

void Planner::add_needs(const Tree& tree, int rank, const Node& node, Direction direction,
                        Needs* needs) const {
  const int owner = tree.owner(node);
  const Element element = element_of(direction, node);
  if (owner >= 0) {
    needs->whole[owner][element] |= 1u << direction;
    return;
  }
  if (!needs->mixed.insert(element).second) return;
  add_needs(tree, rank, tree.left(node), direction, needs);
  add_needs(tree, rank, tree.right(node), direction, needs);
}

Needs Planner::needs_of(const Tree& tree, int rank) const {
  Needs out;
  for (int leaf = 0; leaf < tree.leaves(); ++leaf) {
    if (tree.leaf(leaf).rank != rank) continue;
    for (const Direction direction : directions_) {
      for (const Node& node : walk_to(tree, rank, leaf, direction).nodes) {
        add_needs(tree, rank, node, direction, &out);
      }
    }
  }
  return out;
}

// Returns the number of a node among the rank's elements; a new one if it has none.
int Planner::number(Direction direction, const Node& node) {
  const auto [at, is_new] = numbers_.try_emplace(element_of(direction, node), out_.elements);
  if (is_new) ++out_.elements;
  return at->second;
}

void Planner::add_walk(std::vector<PieceStep> steps, const PieceWalk& walk, Direction direction,
                       int level, bool before_exchange) {
  walks_[direction][before_exchange][level].push_back({walk, std::move(steps)});
}

// Makes a node of its children, which have been made at lower levels.
void Planner::make(const Tree& tree, const Element& element, bool before_exchange) {
  const auto& [direction, node] = element;
  if (node.level == 0 || !made_.insert(element).second) return;
  const int left = number(direction, tree.left(node)), right = number(direction, tree.right(node));
  const bool forth = direction == kForth;
  add_walk({{forth ? left : right, -1}, {forth ? right : left, -1}},
           {0, 2, number(direction, node), !tree.is_first(node, direction)}, direction, node.level,
           before_exchange);
}

void Planner::make_own(const Tree& tree, const Element& element) {
  if (element.node.level == 0 || made_.contains(element)) return;
  make_own(tree, element_of(element.direction, tree.left(element.node)));
  make_own(tree, element_of(element.direction, tree.right(element.node)));
  make(tree, element, true);
}

void Planner::add_messages(const Tree& tree, int peer, const std::map<Element, unsigned>& elements,
                           bool sends) {
  std::vector<PieceMessage>& messages = sends ? out_.sends : out_.receives;
  for (const auto& [element, directions] : elements) {
    if (sends) make_own(tree, element);
    const int at = number(element.direction, element.node);
    const bool forth = directions & 1u << kForth, back = directions & 1u << kBack;
    const bool through = (forth && !tree.is_first(element.node, kForth)) ||
                         (back && !tree.is_first(element.node, kBack));
    if (forth) messages.push_back({peer, PieceMessage::end, at});
    if (through) messages.push_back({peer, PieceMessage::map, at});
    if (back) messages.push_back({peer, PieceMessage::grad, at});
  }
}

void Planner::exchange(const Tree& tree) {
  std::set<int> ranks;
  for (int i = 0; i < tree.leaves(); ++i) ranks.insert(tree.leaf(i).rank);
  if (!ranks.contains(rank_)) return;
  for (const int peer : ranks) {
    Needs needs = needs_of(tree, peer);
    if (peer != rank_) {
      add_messages(tree, peer, needs.whole[rank_], true);
      continue;
    }
    for (const auto& [owner, elements] : needs.whole) {
      if (owner != rank_) add_messages(tree, owner, elements, false);
    }
    for (const auto& [element, directions] : needs.whole[rank_]) make_own(tree, element);
    for (const Element& element : needs.mixed) make(tree, element, false);
  }
}

// Takes states to the rank's pieces of a chain. Those that begin at another piece of the rank come
// a level behind it.
void Planner::walk(const Tree& tree, Direction direction) {
  std::map<int, int> levels;
  for (int i = 0; i < tree.leaves(); ++i) {
    const int leaf = direction == kForth ? i : tree.leaves() - 1 - i;
    if (tree.leaf(leaf).rank != rank_) continue;
    const Walk to = walk_to(tree, rank_, leaf, direction);
    if (to.nodes.empty()) continue;  // it begins with what is given
    std::vector<PieceStep> steps;
    if (to.from >= 0) steps.push_back({-1 - tree.leaf(to.from).number, -1});
    for (const Node& node : to.nodes) steps.push_back({number(direction, node), -1});
    steps.back().piece = tree.leaf(leaf).number;
    const int level = to.from >= 0 ? levels.at(to.from) + 1 : 0;
    levels[leaf] = level;
    const int count = static_cast<int>(steps.size());
    add_walk(std::move(steps), {0, count, -1, 0}, direction, kStates + level, false);
  }
}

PieceWalks Planner::levels(Direction direction, bool before_exchange) {
  PieceWalks out;
  out.levels = {0};
  for (const auto& [level, walks] : walks_[direction][before_exchange]) {
    for (LevelWalk each : walks) {
      each.walk.first_step = static_cast<int>(out.steps.size());
      out.walks.push_back(each.walk);
      out.steps.insert(out.steps.end(), each.steps.begin(), each.steps.end());
    }
    out.levels.push_back(static_cast<int>(out.walks.size()));
  }
  return out;
}

PieceStatesPlan Planner::operator()(PieceStatesPlan base) {
  out_ = std::move(base);
  out_.elements = static_cast<int>(out_.pieces.size());
  for (const SequencePiece& piece : out_.pieces) {
    numbers_[{kForth, {piece.sequence, 0, piece.position}}] = piece.number;
  }
  for (const Chain& chain : layout_.chains) {
    if (chain.size() < 2) continue;
    const Tree tree(chain);
    exchange(tree);
    for (const Direction direction : directions_) walk(tree, direction);
  }
  for (const Direction direction : directions_) {
    (direction == kForth ? out_.joined_forward : out_.joined_back) = levels(direction, true);
    (direction == kForth ? out_.forward : out_.back) = levels(direction, false);
  }
  return std::move(out_);
}

}  // namespace

PieceStatesPlan canonical_states_plan(const PieceLayout& layout, int rank, bool states,
                                      bool grads) {
  return Planner(layout, rank, states, grads)(own_pieces_plan(layout, rank, states, grads));
}

}  // namespace lathe
