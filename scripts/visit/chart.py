# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Draws README's chart from the rows of visit/h200.py, as an SVG that is the same for the same rows; no matplotlib."""
from visit import h200

COLOURS = {"lathe": "#0b5fa5", "FlashAttention-3": "#e08a00", "cuDNN": "#3c9a5f", "FLA": "#b04a7a", "cuLA": "#7a6fae"}
WIDTH, HEIGHT = 850, 330
TOP, BOTTOM = 64, 272    # the ends of a bar of full length
BAR, GAP = 26, 20        # the width of a bar, and what lies between two groups


def text(x, y, words, anchor="middle", size=11, weight="normal", fill="#222"):
    return (f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
            f'fill="{fill}">{words}</text>')


def bar(x, share, who, label, published=False):
    """Returns a bar whose height is this share of the panel's. A published figure has an outline alone."""
    height = (BOTTOM - TOP) * share
    fill, stroke = ("#fff", "4 2") if published else (COLOURS[who], "none")
    return [f'<rect x="{x:g}" y="{BOTTOM - height:.1f}" width="{BAR - 2}" height="{height:.1f}" fill="{fill}" '
            f'stroke="{COLOURS[who]}" stroke-dasharray="{stroke}"/>',
            text(x + BAR / 2 - 1, BOTTOM - height - 4, label, size=10)]


def attention(left):
    """Returns the lines of the left panel, and where it ends."""
    lines, x = [], left
    cases = [(width, causal, h200.forward(width, causal)) for width in h200.WIDTHS for causal in (False, True)]
    most = max(rate for _, _, rates in cases for rate in rates.values() if rate)
    for width, causal, rates in cases:
        shown = [who for who in ("lathe", "FlashAttention-3", "cuDNN") if rates[who]]
        for index, who in enumerate(shown):
            lines += bar(x + index * BAR, rates[who] / most, who, f"{rates[who]:.0f}")
        lines.append(text(x + len(shown) * BAR / 2, BOTTOM + 16, f"D {width}{' causal' if causal else ''}"))
        x += len(shown) * BAR + GAP
    return lines, x


def kda(left):
    calls = h200.kda_beside_peers()
    most = max(ms for _, _, ms in calls)
    lines = []
    for index, (who, published, ms) in enumerate(calls):
        x = left + index * (BAR + 48)
        lines += bar(x, ms / most, who, f"{ms:.2f}", published)
        lines.append(text(x + BAR / 2, BOTTOM + 16, who))
    return lines


def svg():
    lines, end = attention(24)
    right = end + 40
    lines += kda(right)
    lines += [text(24, 22, "Attention, forward: TFLOP/s, more is better", "start", 14, "bold"),
              text(24, 40, "4 sequences of 4096 tokens, heads of width D, 4096 columns in all", "start"),
              text(right - 12, 22, "KDA, forward: ms, less is better", "start", 14, "bold"),
              text(right - 12, 40, "8192 tokens, 64 heads of 128", "start")]
    lines.append(f'<path d="M16 {BOTTOM}H{end - 4}M{right - 12} {BOTTOM}H{WIDTH - 16}" stroke="#222" fill="none"/>')
    x = 24
    for who in ("lathe", "FlashAttention-3", "cuDNN"):
        lines += [f'<rect x="{x}" y="304" width="12" height="12" fill="{COLOURS[who]}"/>',
                  text(x + 18, 314, who, "start")]
        x += 40 + 6 * len(who)
    lines += [text(x + 4, 314, "bf16, one H200; cuDNN was not timed at D 256", "start"),
              text(right - 12, 304, "dashed: not measured beside lathe, but", "start"),
              text(right - 12, 318, "published by cuLA, for an H200 as well", "start")]
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="Helvetica, Arial, sans-serif" role="img">')
    title = "<title>Forwards of attention and KDA on an H200: lathe beside FlashAttention-3, cuDNN and FLA</title>"
    return "\n".join([head, title, '<rect width="100%" height="100%" fill="#fff"/>', *lines, "</svg>", ""])
