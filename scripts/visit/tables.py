# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the chart of README.md, and the tables of README.md and docs/figures.md that follow from rows of bench/results.

BLOCKS has a function for each block of a document. A block stands between two marks, NAME: begin and NAME: end.
"""
import textwrap

from visit import chart, h200

ROOT = h200.ROOT
CHART = "docs/images/h200.svg"
START, FORWARDS, LAUNCH = "cache-start-2026-11-22", "cache-forwards-2026-11-22", "launch-2026-11-22"
SPARSE = "sparse, 4096 rows, 128 heads of 512 + 64, 2048 keys"
DECODING = "decoding, 16 sequences of 8192 keys, 32 heads over 8"
DIRECTIONS = ("forward", "backward")


def table(head, rows):
    lines = ["".join(f"| {cell} " if cell else "| " for cell in row) + "|" for row in [head, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def whole(value):
    return f"{int(value + 0.5)}" if value else ""


def in_ms(value, digits=3):
    return f"{value:.{digits}f} ms" if value else ""


def bandwidth(row):
    return f"{float(row['GB_per_s']) / 1e3:.2f} TB/s"


def cases():
    return [(width, causal) for width in h200.WIDTHS for causal in (False, True)]


def name(width, causal):
    return f"D {width}{' causal' if causal else ''}"


# --- README ---

def beside_peers():
    """Returns two sentences: how far lathe is from FlashAttention-3, and from what others published of KDA."""
    over = {}
    for case in cases():
        rates = h200.forward(*case)
        over[case] = round(100 * (rates["lathe"] / rates["FlashAttention-3"] - 1))
    if {case for case, percent in over.items() if percent > 0} != {(256, False), (256, True)}:
        raise ValueError(f"the sentence says that lathe is ahead at D 256 alone; the rows say {over}")
    ahead = " to ".join(map(str, sorted({percent for percent in over.values() if percent > 0})))
    behind = sorted(-percent for percent in over.values() if percent <= 0)
    ms = {who: in_ms(time, 2) for who, _, time in h200.kda_beside_peers()}
    words = (f"On an H200 the forward of attention is {ahead} % faster than FlashAttention-3 with heads of width 256, and "
             f"{behind[0]} to {behind[-1]} % slower with 64 and 128. The forward of KDA takes {ms['lathe']} for 8192 tokens "
             f"and 64 heads; others published {ms['FLA']} for FLA and {ms['cuLA']} for cuLA on an H200.")
    return textwrap.fill(words, 138)


def median(source, who, what, kernels=None):
    """Returns microseconds of the one row of a bench of starts that has these words."""
    found = [row for row in h200.table(source) if row["what"] == what and row["who"].startswith(who)
             and kernels in (None, int(row["kernels"]))]
    if len(found) != 1:
        raise ValueError(f"{source}: {len(found)} rows of {who} are '{what}'; one is needed")
    return float(found[0]["median"]) * {"us": 1, "ms": 1e3}[found[0]["unit"]]


def triton():
    """Cold start, warm start and launch beside Triton, by a clock on a CPU."""
    cold = [median(START, who, "cold, conv1d forward") / 1e3 for who in ("lathe", "triton")]
    kda_cold = [median(FORWARDS, "lathe", "cold process, kda forward, K 64, processor time") / 1e6,
                median(FORWARDS, "triton", "cold, kda forward, K 64, processor time") / 1e6]
    first = [median(START, "lathe", "warm start, a kernel", 1), median(START, "triton", "cache hit, first of a process")]
    later = [median(START, "lathe", "warm start, a kernel", 53), median(START, "triton", "cache hit, later ones, a kernel")]
    imports = median(START, "triton", "imports") / 1e6
    launches = [float(row["ns_above_bare_per_launch"]) / 1e3 for row in h200.table(LAUNCH)[1:]]
    rows = [["first use on a machine: conv1d's forward", *(f"{each:.0f} ms" for each in cold)],
            ["the same: KDA's forward, processor time", *(f"{each:.1f} s" for each in kda_cold)],
            ["first use in a process: conv1d's forward, compiled before", in_ms(first[0] / 1e3, 2), in_ms(first[1] / 1e3, 0)],
            ["the same: each further kernel", in_ms(later[0] / 1e3), in_ms(later[1] / 1e3, 1)],
            ["imports in front of that", "none", f"{imports:.1f} s"],
            ["each launch, above the driver's own", f"{min(launches):.2f} to {max(launches):.2f} us", "not measured"]]
    return table(["", "lathe", "Triton 3.9, FLA 0.6"], rows)


def attention_figures():
    for case in cases():
        rates = h200.forward(*case)
        others = [f"{who} {whole(rates[who])}" for who in ("FlashAttention-3", "cuDNN") if rates[who]]
        yield [f"attention forward, {name(*case)}", f"{whole(rates['lathe'])} TFLOP/s", ", ".join(others), "measured"]
    operations = 2.5 * 4 * h200.BATCH * h200.COLUMNS * h200.LENGTH**2
    for width in (64, 128):
        rates = h200.backward(width, False)
        others = f"FlashAttention-3 {whole(h200.flash3_backward(f'D {width}'))} (8k), cuDNN {whole(rates['cuDNN'])}"
        clock = operations / h200.clock()[f"attention D {width}"]["backward"] / 1e9
        yield [f"attention backward, D {width}, portable kernel", f"{whole(rates['lathe, portable'])} TFLOP/s", others, "measured"]
        yield [f"attention backward, D {width}, Hopper's kernel", f"{whole(clock)} TFLOP/s", "", "the clock"]


def figures():
    """README's figures of a GPU: measured, and by the clock where nobody measured."""
    rows = list(attention_figures())
    case = "KDA, T 8192, 96 heads of 128"
    for op in DIRECTIONS:
        call, time = f"KDA {op}, T 8192, 96 heads of 128", h200.milliseconds("kda", op, h200.KDA_CASES[case])
        rows.append([f"{call}, portable kernels", in_ms(time, 2), "", "measured"])
        rows.append([f"{call}, Hopper's kernels", in_ms(h200.clock()[case][op], 2), "", "the clock"])
    copy = f"a copy {bandwidth(h200.find('conv', op='copy'))}, measured"
    for op, tensors in zip(DIRECTIONS, (2, 3)):
        rate = 2 * tensors * 8192 * 12288 / h200.clock()["conv1d, T 8192, D 12288, W 4"][op] / 1e9
        rows.append([f"causal conv1d {op}, T 8192, D 12288", f"{rate:.2f} TB/s", copy, "the clock"])
    return table(["bf16, on an H200", "lathe", "others", "how"], rows)


# --- docs/figures.md ---

def forwards():
    heads = ("lathe", "lathe, portable", "cuDNN", "FlashAttention-3", "FlashAttention-2")
    rows = [[name(*case), *(whole(h200.forward(*case)[who]) for who in heads)] for case in cases()]
    latent = dict(op="forward", shape="B2 Sq8192 Sk8192 H32 HK32 D192 DV128 causal")
    tile, rescale = h200.default_tile(latent["shape"])
    ours = [h200.find("attn", **latent, tile=tile, rescale=rescale), h200.find("portable", **latent)]
    rows.append(["D 192 and 128, causal, 8k", *(whole(h200.rate(row)) for row in ours), "", "", ""])
    return table(["forward", *heads], rows)


def backwards():
    heads = ("lathe, portable", "cuDNN", "FlashAttention-2")
    rows = [[name(*case), *(whole(h200.backward(*case)[who]) for who in heads), whole(h200.flash3_backward(name(*case)))]
            for case in cases()]
    return table(["backward", *heads, "FlashAttention-3, 8k"], rows)


def convolution():
    calls = [(op, f"B1 T8192 D{width} W4") for width in (12288, 4096) for op in DIRECTIONS]
    rows = [(f"causal_conv1d {op}, {shape}", h200.find("conv", op=op, shape=shape)) for op, shape in calls]
    rows.append(("copy of 512 MiB", h200.find("conv", op="copy", shape="512 MiB")))
    return table(["call", "time", "bytes a second"],
                 [[call, f"{whole(float(row['us']))} us", bandwidth(row)] for call, row in rows])


def kda():
    """KDA: measured where it was, and else by the clock, beside what others published. Calls that have neither on an H200
    are in the table of an H100, by sim/calibrate/kda_table.py."""
    clocked_cases = {shape: case for case, shape in h200.KDA_CASES.items()}
    rows = []
    for shape in dict.fromkeys(row["shape"] for row in h200.table("published")):
        forward, backward = (h200.milliseconds("kda", op, shape) for op in DIRECTIONS)
        if not forward and shape not in clocked_cases:
            continue
        how = "measured" if forward else "the clock"
        time = forward or h200.clock()[clocked_cases[shape]]["forward"]
        others = [f"{ms:.3f} ms {who} ({gpu or 'GPU not named'})" for who, gpu, ms in h200.published("forward", shape)]
        rows.append([shape, in_ms(time), how, in_ms(backward), ", ".join(others)])
    return table(["bf16", "forward", "how", "backward, measured", "forward, published by others"], rows)


def clocked():
    rows = [[case, *(in_ms(h200.clock()[case][op]) for op in DIRECTIONS), "the clock"] for case in (SPARSE, DECODING)]
    return table(["bf16, on an H200", "forward", "backward", "how"], rows)


BLOCKS = {"README.md": {"beside peers": beside_peers, "triton": triton, "figures": figures},
          "docs/figures.md": {"forward": forwards, "backward": backwards, "conv1d": convolution, "kda": kda,
                              "clock": clocked}}


def filled(document, blocks):
    """Returns the document's text with its blocks as they should be."""
    text = (ROOT / document).read_text(encoding="utf-8")
    for block, function in blocks.items():
        begin, end = f"<!-- {block}: begin -->", f"<!-- {block}: end -->"
        before, found, rest = text.partition(begin)
        if not found or end not in rest:
            raise ValueError(f"{document} has no {begin} and {end}")
        text = f"{before}{begin}\n\n{function()}\n\n{end}{rest.partition(end)[2]}"
    return text


def write(check):
    """Writes what differs, or with `check` only names it. Returns how many files differ."""
    texts = {CHART: chart.svg(), **{document: filled(document, blocks) for document, blocks in BLOCKS.items()}}
    changed = 0
    for file, text in texts.items():
        path = ROOT / file
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        changed += 1
        print(f"{file}: " + ("not what bench/results says; run scripts/plots --h200" if check else "written"))
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return changed
