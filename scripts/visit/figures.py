# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the points of visit/points.py with matplotlib."""
import sys

from matplotlib import pyplot

from visit import points as data

COLOURS = {"conv": "#0072b2", "attn": "#d55e00", "kda": "#009e73", "sparse": "#cc79a7"}
MARKERS = {"forward": "o", "backward": "s", "decode": "^", "update": "v", "both": "D"}
MOST_BARS = 40


def save(figure, out, name):
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / name, format="svg", metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)
    print(f"plots: {out / name}")


def bars(verb, cases, out):
    cases = cases[:MOST_BARS]
    names = sorted({who for _, found in cases for who in found}, key=lambda who: (who != "lathe", who))
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.22 * len(cases) * len(names)))
    height = 0.8 / len(names)
    for index, who in enumerate(names):
        at = [(row, found[who]) for row, (_, found) in enumerate(cases) if who in found]
        middle = [point.microseconds for _, point in at]
        spread = [[max(point.microseconds - (point.low or point.microseconds), 0) for _, point in at],
                  [max((point.high or point.microseconds) - point.microseconds, 0) for _, point in at]]
        axes.barh([row + index * height for row, _ in at], middle, height, xerr=spread, label=who,
                  error_kw={"elinewidth": 0.6})
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(cases))],
                    [f"{op} {shape} {dtype}" for (_, op, shape, dtype), _ in cases])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds of a call: median, and the 10th and 90th percentile")
    axes.set_title(f"{verb}: time beside peers")
    axes.legend()
    save(figure, out, f"beside_peers_{verb}.svg")


def scatter(axes, points, x, y):
    shown = set()
    for point in points:
        label = f"{point.verb} {point.op}"
        axes.plot(x(point), y(point), MARKERS.get(point.op, "x"), color=COLOURS.get(point.verb, "black"), markersize=4,
                  alpha=0.7, linestyle="", label="" if label in shown else label)
        shown.add(label)


def roofline(points, out):
    figure, axes = pyplot.subplots(figsize=(7, 5))
    scatter(axes, points, lambda p: p.flops / p.bytes, lambda p: p.flops / p.microseconds * 1e6)
    edges = [min(p.flops / p.bytes for p in points) / 2, max(p.flops / p.bytes for p in points) * 2]
    for gpu in sorted({p.gpu for p in points if p.gpu}):
        rate, memory = data.ROOFS[gpu]
        knee = rate / memory
        line = [edges[0], min(max(knee, edges[0]), edges[1]), edges[1]]
        axes.plot(line, [min(rate, memory * each) for each in line], "-", linewidth=1,
                  label=f"{gpu}: {rate / 1e12:.0f} TFLOP/s, {memory / 1e12:.2f} TB/s")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("operations per byte that must be moved")
    axes.set_ylabel("operations a second")
    what = "predictions of the simulator's model, no measurements" if points[0].who == "predicted" else "measured"
    axes.set_title(f"Roofline, {what}")
    axes.legend()
    save(figure, out, "roofline.svg")


def predicted(pairs, out):
    figure, axes = pyplot.subplots(figsize=(6, 6))
    told = {id(measured): prediction for prediction, measured in pairs}
    scatter(axes, [measured for _, measured in pairs], lambda p: p.microseconds, lambda p: told[id(p)].microseconds)
    every = [point.microseconds for pair in pairs for point in pair]
    edges = [min(every) / 1.5, max(every) * 1.5]
    axes.plot(edges, edges, "-", linewidth=1, color="grey", label="as predicted")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured, microseconds")
    axes.set_ylabel("predicted, microseconds")
    axes.set_title("The simulator's model against the device")
    axes.legend()
    save(figure, out, "predicted.svg")


def draw(files, out):
    points = [point for path in files for point in data.points_of(path)]
    made = 0
    for verb, cases in data.beside_peers(points).items():
        bars(verb, cases, out)
        made += 1
    for name, found, function in (("roofline.svg", data.roofline(points), roofline),
                                  ("predicted.svg", data.predicted(points), predicted)):
        if found:
            function(found, out)
            made += 1
        else:
            print(f"plots: no data for {name}", file=sys.stderr)
    if not made:
        print(f"plots: nothing to draw in {len(files)} files", file=sys.stderr)
    return 0 if made else 1
