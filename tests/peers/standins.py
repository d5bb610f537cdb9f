# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a folder of libraries that let PyTorch's CUDA wheel be imported for its CPU half alone.

standins.py OUTPUT_FOLDER [SITE_PACKAGES]. The wheel is linked against gigabytes of NVIDIA libraries that
a CPU never calls. Each stand-in has the name and the symbols that torch looks for; every function
answers 100, cudaErrorNoDevice, and those that name an error answer a text: torch.cuda raises its own
exceptions, as it does with NVIDIA's libraries on a machine without a GPU.
"""
import pathlib
import re
import subprocess
import sys
import sysconfig

# libcuda itself gets none: torch opens it late, and here it is the simulator. libquadmath is needed by the
# Fortran library that torch ships.
ABSENT = re.compile(r"^lib(cu(?!da\.)|nccl|nvrtc|nvshmem|quadmath)")
# Undefined symbols without a version: which prefix belongs to which library does not matter to the
# loader, so all of them go into one.
LOOSE = re.compile(r"^(nccl|nvshmem|cusparseLt|cuFile|cufile|nvrtc|cudnn|cublas|cufft|cusolver|cupti)")

# Functions that name an error, by what they return or fill; torch reads their texts to raise an exception.
RETURNS_TEXT = re.compile(r"(String|ErrorName|StatusName)$|^ncclGetLastError$")
FILLS_TEXT = {
    "cuptiGetResultString": "int {}(int code, const char **text) {{ *text = no_device; return 0; }}",
    "cudnnGetLastErrorString": "void {}(char *text, unsigned long size) {{ if (size) *text = 0; }}",
}


def definition(symbol):
    """A function of C under a symbol's name."""
    if symbol in FILLS_TEXT:
        return FILLS_TEXT[symbol].format(symbol) + "\n"
    if RETURNS_TEXT.search(symbol):
        return f"const char *{symbol}(void) {{ return no_device; }}\n"
    return f"int {symbol}(void) {{ return 100; }}\n"


def source_of(symbols):
    text = 'static const char no_device[] = "no CUDA-capable device: this library stands in for the real one";\n'
    return text + "".join(map(definition, symbols))


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needs(libraries):
    """{library: {version or "": its symbols}} of what no library of torch defines itself."""
    shipped = {path.name for path in libraries}
    wanted, home, loose = {}, {}, set()
    for path in libraries:
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", output_of("readelf", "-dW", str(path))):
            if name not in shipped and ABSENT.match(name):
                wanted.setdefault(name, {})
        name = None
        for file, version in re.findall(r"File: (\S+)|Name: (\S+)", output_of("readelf", "-VW", str(path))):
            name = file or name
            if version and name in wanted:
                home[version] = name
    for path in libraries:
        for line in output_of("nm", "-D", "--undefined-only", str(path)).splitlines():
            symbol, _, version = line.split()[-1].partition("@")
            version = version.lstrip("@")
            if version in home:
                wanted[home[version]].setdefault(version, set()).add(symbol)
            elif not version and LOOSE.match(symbol):
                loose.add(symbol)
    wanted["libnccl.so.2"].setdefault("", set()).update(loose)
    return wanted


def main():
    folder = pathlib.Path(sys.argv[1])
    site = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else sysconfig.get_path("purelib"))
    libraries = sorted((site / "torch/lib").glob("*.so*"))
    if not libraries:
        sys.exit(f"standins: no torch in {site}")
    wanted = needs(libraries)
    folder.mkdir(parents=True, exist_ok=True)
    for name, versions in sorted(wanted.items()):
        symbols = sorted(set().union(*versions.values()))
        command = ["gcc", "-w", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,-soname,{name}", "-o", str(folder / name)]
        if any(versions):
            script = folder / f"{name}.map"
            script.write_text("".join(f"{version} {{ {' '.join(s + ';' for s in sorted(symbols))} }};\n"
                                      for version, symbols in sorted(versions.items()) if version))
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, input=source_of(symbols), text=True, check=True)
    print(f"{len(wanted)} stand-ins in {folder}")


if __name__ == "__main__":
    main()
