# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What a visit runs on: processor, GPU, driver, compiler, and the peers that Python can import."""
import functools
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time

GPU_FIELDS = ("name", "driver_version", "compute_cap", "memory.total", "clocks.max.sm", "clocks.max.mem", "power.limit")
PEERS = ("torch", "triton", "fla", "causal_conv1d", "flash_attn", "flash_attn_interface")
# Versions without importing: an import of torch takes seconds, and a broken peer must not end the visit.
VERSIONS = """
import importlib.metadata as m, json, sys
names = {"fla": "flash-linear-attention", "flash_attn": "flash-attn", "flash_attn_interface": "flash-attn-3",
         "causal_conv1d": "causal-conv1d"}
found = {}
for name in sys.argv[1:]:
    try: found[name] = m.version(names.get(name, name))
    except m.PackageNotFoundError: pass
print(json.dumps(found))
"""


def output_of(command, env, seconds=30):
    """What a command prints, or None if it fails or hangs."""
    try:
        done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True,
                              timeout=seconds, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def gpus(env):
    if not shutil.which("nvidia-smi"):
        return []
    text = output_of(["nvidia-smi", f"--query-gpu={','.join(GPU_FIELDS)}", "--format=csv,noheader"], env)
    rows = [line.split(", ") for line in (text or "").splitlines() if line.strip()]
    return [dict(zip(GPU_FIELDS, row)) for row in rows if len(row) == len(GPU_FIELDS)]


@functools.lru_cache
def python_with_numpy():
    """The comparison of golden files needs numpy, which another interpreter than this one may have."""
    for python in (sys.executable, "/usr/bin/python3"):
        if output_of([python, "-c", "import numpy"], None) is not None:
            return python
    return sys.executable


def nvrtc_of_python():
    """Folders with an NVRTC that a Python package such as torch has brought; the library looks there last."""
    spec = importlib.util.find_spec("nvidia")
    bases = [pathlib.Path(base) for base in (spec.submodule_search_locations or [])] if spec else []
    return sorted({path.parent for base in bases for path in base.glob("*/lib/libnvrtc.so.1[23]")})


def processor():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit(root):
    text = output_of(["git", "-C", root, "rev-parse", "--short=12", "HEAD"], None)
    return text.strip() if text else "unknown"


def describe(visit):
    doctor = output_of([visit.build / "bin/lathe", "doctor", "--json"], visit.env)
    try:
        doctor = json.loads(doctor) if doctor else None
    except ValueError:
        doctor = None
    versions = output_of([sys.executable, "-c", VERSIONS, *PEERS], visit.env)
    return {"time": time.strftime("%FT%TZ", time.gmtime()), "commit": commit(visit.root),
            "system": f"{platform.system()} {platform.release()}", "python": platform.python_version(),
            "processor": processor(), "cores": os.cpu_count(), "device": visit.device,
            "gpus": gpus(visit.env) if visit.device == "cuda" else [],
            "lathe": doctor["version"] if doctor else "does not start: see logs",
            "doctor": doctor["items"] if doctor else [], "peers": json.loads(versions) if versions else {}}


def archs_of(machine):
    """What golden files are compiled for: machine code runs on the architecture that it was made for."""
    if not machine["gpus"]:
        return "sm_90a"
    capability = machine["gpus"][0]["compute_cap"].replace(".", "")
    return {"90": "sm_90a"}.get(capability, f"sm_{capability}")
