// SPDX-FileCopyrightText: 2026 The lathe authors
// SPDX-License-Identifier: Apache-2.0
// Tokens go to the right, ranks downwards. A piece is a bar in the colour of its sequence; lines
// take the state from the end of a piece to the start of the next one of its sequence.
#include <algorithm>

#include "api/cli/reports/pieces_picture.h"
#include "api/cli/reports/svg.h"

namespace lathe::cli {
namespace {

constexpr int kWidth = 760, kLeft = 70, kRow = 44, kBar = 22, kTop = 46;

// Where things lie of one case.
struct Axes {
  double top = 0, scale = 1;

  double x(int64_t token) const { return kLeft + static_cast<double>(token) * scale; }
  double y(int rank) const { return top + rank * kRow; }
};

std::string arrow(const Axes& axes, const DrawnPiece& from, const DrawnPiece& to) {
  const double x = axes.x(from.end), to_x = axes.x(to.begin);
  const double y = axes.y(from.rank) + kBar / 2.0, to_y = axes.y(to.rank) + kBar / 2.0;
  const double bend = from.rank == to.rank ? kBar : 0;  // around what lies between
  return formatted(
      "<path d=\"M%g %g C%g %g %g %g %g %g\" class=\"arrow\" stroke=\"%s\" "
      "marker-end=\"url(#tip)\"/>\n",
      x, y, x + 10, y + bend, to_x - 10, to_y + bend, to_x, to_y,
      svg_colour(from.sequence).c_str());
}

std::string bar(const Axes& axes, const DrawnPiece& piece) {
  const double x = axes.x(piece.begin), width = axes.x(piece.end) - x, y = axes.y(piece.rank);
  std::string out = formatted(
      "<g>\n<title>sequence %lld, piece %d: tokens %lld to %lld on rank %d</title>\n",
      static_cast<long long>(piece.sequence), piece.position, static_cast<long long>(piece.begin),
      static_cast<long long>(piece.end) - 1, piece.rank);
  out += svg_rectangle(x, y, width, kBar, " fill=\"" + svg_colour(piece.sequence) + "\"");
  return out + "</g>\n";
}

std::string one(const DrawnPieces& drawn, double top) {
  const Axes axes = {top, static_cast<double>(kWidth - kLeft - 20) /
                              static_cast<double>(std::max<int64_t>(drawn.tokens, 1))};
  std::string out = svg_text(
      12, top - 20,
      formatted("%lld tokens on %d ranks", static_cast<long long>(drawn.tokens), drawn.world),
      "title");
  for (int rank = 0; rank < drawn.world; ++rank) {
    out += svg_text(12, axes.y(rank) + kBar / 2.0 + 5, formatted("rank %d", rank), "word");
    out += svg_rectangle(kLeft, axes.y(rank), kWidth - kLeft - 20, kBar, " class=\"cell\"");
  }
  for (const DrawnPiece& piece : drawn.pieces) out += bar(axes, piece);
  for (size_t i = 1; i < drawn.pieces.size(); ++i) {
    const DrawnPiece &from = drawn.pieces[i - 1], &to = drawn.pieces[i];
    if (from.sequence == to.sequence) out += arrow(axes, from, to);
  }
  return out;
}

}  // namespace

DrawnPieces read_pieces(const Json& asked, const Json& answer) {
  DrawnPieces out;
  out.world = asked.at("world_size").get<int>();
  out.tokens = asked.at("cu_seqlens").back().get<int64_t>();
  for (const Json& each : answer.at("pieces")) {
    DrawnPiece piece;
    each.at("rank").get_to(piece.rank), each.at("position").get_to(piece.position);
    each.at("sequence").get_to(piece.sequence);
    each.at("interval").at(0).get_to(piece.begin), each.at("interval").at(1).get_to(piece.end);
    if (piece.begin < piece.end) out.pieces.push_back(piece);
  }
  std::ranges::sort(out.pieces, {}, [](const DrawnPiece& piece) {
    return std::pair(piece.sequence, piece.position);
  });
  return out;
}

std::string pieces_svg(const std::vector<DrawnPieces>& cases) {
  std::string body;
  double top = 0;
  for (const DrawnPieces& drawn : cases) {
    body += one(drawn, top + kTop);
    top += kTop + drawn.world * kRow + 12;
  }
  body += svg_text(12, top + 8,
                   "tokens to the right; lines: the state on its way through a sequence", "small");
  return svg_picture("Pieces of sequences on ranks", kWidth, static_cast<int>(top) + 24, body);
}

}  // namespace lathe::cli
