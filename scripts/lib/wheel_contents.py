#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What belongs into the wheels, and nothing else: scripts/lib/wheel_contents.py WHEEL...

Names each file that is missing or too many, a wheel of 10 MB or more, a tag that claims more than
the machine code keeps, code that looks for libraries in a build folder or takes the driver's name,
and a description that is missing or has a link that leads nowhere. Exits 1 if there is anything.
Needs readelf.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

LIMIT = 10_000_000  # bytes

MODULES = """
__init__.py _check.py _core.pyi _errors.py _library.py _kernel.py _log.py _objects.py _operators.py _run.py
_signatures.pyi cli.py flex.py py.typed compat/__init__.py compat/_arguments.py compat/_attention.py
compat/_bert_padding.py compat/_conv.py compat/_conv_blocks.py compat/_conv_checks.py
compat/_fla_checks.py compat/_fla_context.py compat/_fla_conv.py
compat/_fla_kda.py compat/_fla_register.py compat/_install.py compat/_kvcache.py compat/_places.py
compat/_plugins.py compat/_ragged.py compat/_serving_kda.py compat/_torch_cp_balancers.py
compat/_transformers_attention.py compat/_transformers_functions.py compat/_transformers_mask.py
compat/_transformers_positions.py compat/_vllm_attention.py compat/_vllm_register.py
compat/causal_conv1d.py compat/fla.py compat/flash_attn.py compat/flash_attn_3.py
compat/flash_attn_4.py compat/flash_mla.py compat/sdpa.py compat/torch_cp.py compat/transformers.py
compat/sglang.py compat/vllm.py compat/vllm_conv.py compat/vllm_glm.py compat/vllm_kda.py nn/__init__.py
nn/_attention.py nn/_cache.py nn/_kda.py nn/_norm.py torch/__init__.py torch/_batching.py
torch/_calls.py torch/_device.py torch/_flops.py torch/_functions.py torch/_gradients.py
torch/_late.py torch/_layout.py torch/_mod_blocks.py torch/_mod_break.py torch/_mod_captures.py
torch/_mod_compile.py torch/_mod_division.py torch/_mod_helpers.py torch/_mod_numbers.py
torch/_mod_operations.py torch/_mod_record.py torch/_mod_text.py torch/_mod_trace.py
torch/_mod_traced.py torch/_mod_types.py torch/_operator_calls.py torch/_own.py torch/_ranks.py torch/_shapes.py
torch/_sharding.py torch/_signatures.py torch/_statistics.py torch/_tensors.py torch/_traced.py
torch/_transforms.py torch/_version.py
""".split()
HEADERS = ["lathe.h", *(f"lathe/{part}.h" for part in ("cache", "plan", "ranks", "tune"))]

# For each wheel: the files of the package, those of its .dist-info, and the tags before the platform.
WHEELS = {
    "lathe_jit": ([*MODULES, "_core.abi3.so", "bin/lathe", "lib/liblathe.so.0",
                   *(f"include/{header}" for header in HEADERS)],
                  ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"],
                  "cp311-abi3"),
    "lathe_jit_sim": (["lib/sim/libcuda.so.1", "lib/sim/libnccl.so.2"],
                      ["METADATA", "RECORD", "WHEEL", "licenses/LICENSE"], "py3-none"),
}

# The libraries that code in a wheel may need: the package's own, and those of every manylinux.
NEEDED = {"liblathe.so.0", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
          "ld-linux-x86-64.so.2"}
# Once a library of such a name is loaded, a later search for the GPU's finds it instead.
TAKEN_NAMES = ("libcuda.so", "libnccl.so", "libnvrtc.so")


def readelf(option, path):
    return subprocess.run(["readelf", "--wide", option, path], check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


def check_code(path, oldest):
    """What is wrong with a library or program, for a machine whose C library is as old as this."""
    dynamic = re.findall(r"\((\w+)\) .*\[(.*)\]", readelf("--dynamic", path))
    for kind, value in dynamic:
        if kind == "NEEDED" and value not in NEEDED:
            yield f"needs {value}"
        if kind in ("RPATH", "RUNPATH"):
            for folder in value.split(":"):
                if folder != "$ORIGIN" and not folder.startswith("$ORIGIN/"):
                    yield f"looks for libraries in '{folder}'"
        if kind == "SONAME" and value.startswith(TAKEN_NAMES):
            yield f"calls itself {value}"
    versions = {tuple(map(int, found.split(".")))
                for found in re.findall(r"Name: GLIBC_([\d.]+)", readelf("--version-info", path))}
    if versions and max(versions) > oldest:
        yield "needs GLIBC_" + ".".join(map(str, max(versions)))


def check_names(found, wanted):
    for name in sorted(found - wanted):
        yield f"{name} does not belong there"
    for name in sorted(wanted - found):
        yield f"{name} is missing"


def check_tag(tag, path, python, written):
    """What is wrong with the tag in a wheel's name, and the C library that it promises to do with."""
    tags = re.fullmatch(rf"{python}-((?:manylinux_\d+_\d+_x86_64\.?)+)", tag)
    oldest = [tuple(map(int, each)) for each in re.findall(r"manylinux_(\d+)_(\d+)_", tag)]
    if not tags:
        return [f"its tag is {tag}; expected {python}-manylinux_2_N_x86_64"], (0, 0)
    names = {f"{python}-{each}" for each in tags[1].split(".")}
    said = set(re.findall(r"^Tag: (\S+)$", written, re.M))
    wrong = [] if said == names else [f"{path}/WHEEL says {', '.join(sorted(said))}; the name {tag}"]
    return wrong, min(oldest)


def check_description(written):
    """What is wrong with METADATA: the document after its first empty line is what an index shows."""
    _, _, document = written.partition("\n\n")
    if not document.strip():
        yield "METADATA has no description"
    # Code may hold what looks like a link.
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", document, flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"https?://|#", target):
            yield f"METADATA links to {target}, which no wheel has"


def check(path):
    """The sentences about one wheel."""
    path = pathlib.Path(path)
    name, version, tag = path.stem.split("-", 2)
    if name not in WHEELS:
        return [f"there is no wheel {name}; there are {', '.join(WHEELS)}"]
    files, notes, python = WHEELS[name]
    about = f"{name}-{version}.dist-info"
    wrong = []
    if path.stat().st_size >= LIMIT:
        wrong.append(f"has {path.stat().st_size} bytes; allowed are {LIMIT - 1}")
    with zipfile.ZipFile(path) as wheel, tempfile.TemporaryDirectory() as folder:
        found = {each for each in wheel.namelist() if not each.endswith("/")}
        wanted = {*(f"lathe/{file}" for file in files), *(f"{about}/{note}" for note in notes)}
        wrong += check_names(found, wanted)
        written, metadata = (wheel.read(f"{about}/{each}").decode() if f"{about}/{each}" in found
                             else "" for each in ("WHEEL", "METADATA"))
        wrong += check_description(metadata)
        complaints, oldest = check_tag(tag, about, python, written)
        wrong += complaints
        for file in sorted(found):
            with wheel.open(file) as content:
                is_code = content.read(4) == b"\x7fELF"
            if is_code:
                extracted = wheel.extract(file, folder)
                wrong += [f"{file} {sentence}" for sentence in check_code(extracted, oldest)]
    return wrong


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    failed = False
    for path in sys.argv[1:]:
        for sentence in check(path):
            print(f"{pathlib.Path(path).name}: {sentence}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
