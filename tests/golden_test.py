#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors made by other code, through the program: golden_test.py LATHE ROOT OPERATOR OPTION...

Runs FOLDER/run_golden.py on FOLDER/OPERATOR. FOLDER is LATHE_GOLDEN, else ../shared/golden beside
ROOT; where there is none the test is skipped (exit 77). With --forward as the first option the
files are run without the gradients that come in, and compared in what then comes out.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def forward(source, target):
    """A copy of a golden file without dout and dlse, and without what is expected of them."""
    data = source.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    head, body, out = json.loads(data[8:begin]), bytearray(), {}
    for name, entry in head.items():
        if name == "__metadata__":
            rules = json.loads(entry["tolerance"])
            kept = {key: rule for key, rule in rules.items() if not key.startswith("d")}
            out[name] = dict(entry, tolerance=json.dumps(kept))
        elif not name.removeprefix("expect.").startswith("d"):
            low, high = entry["data_offsets"]
            out[name] = dict(entry, data_offsets=[len(body), len(body) + high - low])
            body += data[begin + low:begin + high]
    text = json.dumps(out).encode()
    target.write_bytes(len(text).to_bytes(8, "little") + text + bytes(body))


def main():
    lathe, root, operator, *rest = sys.argv[1:]
    chosen = os.environ.get("LATHE_GOLDEN")
    folder = pathlib.Path(chosen) if chosen else pathlib.Path(root).resolve().parent / "shared/golden"
    runner = folder / "run_golden.py"
    if not runner.is_file():
        print(f"no {runner}: set LATHE_GOLDEN to the folder of golden files")
        return 77
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", LATHE_SIM_CHECK="all")
    with tempfile.TemporaryDirectory() as copies:
        files = folder / operator
        if rest[:1] == ["--forward"]:
            rest = rest[1:]
            files = pathlib.Path(copies, operator)
            files.mkdir()
            for file in sorted((folder / operator).glob("*.safetensors")):
                forward(file, files / file.name)
        return subprocess.run([sys.executable, runner, lathe, files, "--quiet", *rest],
                              env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
