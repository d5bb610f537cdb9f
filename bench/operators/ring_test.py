#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A ring's messages travel beside its kernels: ring_test.py LATHE_BENCH

What part of the messages is hidden is a figure, as it falls when kernels get faster. That all of them but the first
travel while kernels run is a fact of the schedule: the own tokens' kernels are short under a causal mask, those of a
later message are not.
"""
import csv
import io
import os
import subprocess
import sys

WORLD, TOKENS, HEADS, WIDTH = 4, 512, 8, 128  # of keys and values


def main():
    done = subprocess.run([sys.argv[1], "ring", "--tokens", str(TOKENS), "--only", f"32/8 d128 W{WORLD} ring head_tail fwd",
                           "--format", "csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300,
                          env={**os.environ, "LATHE_TEST_DEVICE": "sim"})
    if done.returncode != 0:
        sys.exit(f"exit {done.returncode}: {done.stderr}")
    row, = csv.DictReader(io.StringIO(done.stdout))
    failed = []
    if int(row["groups"]) != WORLD - 1:
        failed.append(f"{row['groups']} groups of messages, expected {WORLD - 1}")
    megabytes = (WORLD - 1) * 2 * TOKENS * HEADS * WIDTH * 2 / 1e6  # keys and values in 16 bits
    if float(row["MB"]) != round(megabytes, 1):
        failed.append(f"{row['MB']} MB, expected {megabytes:.1f}")
    message = float(row["transfer_us"]) / (WORLD - 1)
    if not 0 <= float(row["exposed_us"]) < message:
        failed.append(f"kernels wait {row['exposed_us']} us, expected less than the {message:.1f} us of one message")
    if not float(row["compute_us"]) <= float(row["time_us"]) <= float(row["compute_us"]) + float(row["transfer_us"]):
        failed.append(f"the time is neither kernels nor kernels and messages: {row}")
    timeline = [line for line in done.stderr.splitlines() if line.startswith("rank ")]
    if len(timeline) != 2 * WORLD or not all("=" in line for line in timeline if "exchange" in line):
        failed.append("the timeline has no row for each rank's kernels and messages:\n" + done.stderr)
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
