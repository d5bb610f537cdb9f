# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""What is carried to a machine with a GPU that has no compiler for the host: programs, NVRTC, golden files, wheels.

`scripts/gpu pack` writes archives below one folder, `scripts/gpu DIR` unpacks them where nothing was built. Tar and xz,
as Python has both everywhere.
"""
import argparse
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

from visit import stages

PLACE = ".deps/visit"
NVRTC_12 = "nvidia-cuda-nvrtc-cu12==12.9.86"  # for drivers that refuse what NVRTC 13 makes
LIBRARY_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib")


def programs(build):
    """What a visit runs, relative to the build folder."""
    found = [build / "bin/lathe", build / "bin/lathe_bench"]
    for pattern in ("lib/liblathe.so*", "sim/*.so*", "bench/null/*.so*", "bin/bench/null/*.so*", "tests/*.so"):
        found += sorted(build.glob(pattern))
    found += [path for path in sorted((build / "tests").glob("*_test")) if path.name.startswith(stages.SUITE)]
    return [path for path in found if path.exists()]


def stripped(path, folder):
    """A copy without symbols; the file itself where strip cannot."""
    copy = pathlib.Path(folder, path.name)
    shutil.copyfile(path, copy)
    copy.chmod(0o755)
    if shutil.which("strip"):
        subprocess.run(["strip", copy], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return copy


def write_archive(target, files, preset):
    """`files`: (path, name in the archive). The same files give the same bytes."""
    with tarfile.open(target, "w:xz", preset=preset) as archive, tempfile.TemporaryDirectory() as folder:
        for path, name in files:
            entry = archive.gettarinfo(path, name)
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
            if entry.isreg():
                copy = stripped(path, folder) if os.access(path, os.X_OK) or ".so" in path.name else path
                data = copy.read_bytes()
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
            else:
                archive.addfile(entry)  # a link


def compiler(major, folders):
    """[(path, name)] of NVRTC and its builtins, from the first folder that has this version."""
    for folder in folders:
        library = folder / f"libnvrtc.so.{major}"
        if library.exists():
            builtins = sorted(folder.glob(f"libnvrtc-builtins.so.{major}.*"))
            return [(path.resolve(), path.name) for path in [library, *builtins]]
    return []


def library_folders(root):
    homes = [os.environ.get("CUDA_HOME"), "/usr/local/cuda"]
    folders = [root / ".deps/lib", root / ".deps/nvrtc12/nvidia/cuda_nvrtc/lib"]
    return folders + [pathlib.Path(home, lib) for home in homes if home for lib in LIBRARY_FOLDERS]


def fetch_nvrtc_12(root):
    """Through a venv, as Debian's own pip refuses to install."""
    pip = root / ".deps/venv/bin/pip"
    if not pip.exists():
        subprocess.run([sys.executable, "-m", "venv", root / ".deps/venv"], check=True)
    subprocess.run([pip, "install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--no-compile",
                    "--target", root / ".deps/nvrtc12", NVRTC_12], check=True)


def parts(root, build, arguments):
    """{archive's name: [(path, name)]}"""
    found = {"programs": [(path, str(path.relative_to(build))) for path in programs(build)]}
    golden = pathlib.Path(os.environ.get("LATHE_GOLDEN", root.parent / "shared/golden"))
    if (golden / "run_golden.py").exists():
        found["golden"] = [(path, str(path.relative_to(golden))) for path in sorted(golden.rglob("*"))
                           if path.is_file() and "__pycache__" not in path.parts]
    for major in arguments.nvrtc.split(","):
        if not major:
            continue
        files = compiler(major, library_folders(root))
        if not files and major == "12" and arguments.fetch:
            fetch_nvrtc_12(root)
            files = compiler(major, library_folders(root))
        if not files:
            print(f"pack: no NVRTC {major} was found" + ("; --fetch takes its wheel" if major == "12" else ""))
        else:
            found[f"nvrtc{major}"] = files
    if arguments.wheels:
        found["wheels"] = [(path, path.name) for path in sorted(arguments.wheels.glob("*.whl"))]
    return found


def main(root, words):
    parser = argparse.ArgumentParser(prog="scripts/gpu pack", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=root / PLACE)
    parser.add_argument("--nvrtc", default="13,12", help="major versions to take along (default: 13,12)")
    parser.add_argument("--fetch", action="store_true", help=f"install {NVRTC_12} below .deps if there is no NVRTC 12")
    parser.add_argument("--wheels", type=pathlib.Path, help="a folder of pure Python wheels, such as FLA's")
    parser.add_argument("--limit", type=float, default=64, help="MiB that the pack may have (default: 64)")
    parser.add_argument("--preset", type=int, default=6, help="of xz, 0 to 9 (default: 6)")
    arguments = parser.parse_args(words)
    build = pathlib.Path(os.environ.get("LATHE_BUILD", root / "build")).resolve()
    if not (build / "bin/lathe_bench").exists():
        print(f"pack: {build}/bin/lathe_bench is missing: run scripts/build first", file=sys.stderr)
        return 1
    shutil.rmtree(arguments.folder, ignore_errors=True)
    arguments.folder.mkdir(parents=True)
    total = 0
    for name, files in parts(root, build, arguments).items():
        target = arguments.folder / f"{name}.tar.xz"
        write_archive(target, files, arguments.preset)
        total += target.stat().st_size
        before = sum(path.stat().st_size for path, _ in files)
        print(f"pack: {name}: {len(files)} files, {before / 2**20:.1f} MiB, {target.stat().st_size / 2**20:.1f} packed",
              flush=True)
    (arguments.folder / "pack.json").write_text(json.dumps({"bytes": total}) + "\n", encoding="utf-8")
    print(f"pack: {total / 2**20:.1f} MiB in {arguments.folder}")
    if total > arguments.limit * 2**20:
        print(f"pack: more than {arguments.limit:.0f} MiB; --nvrtc 13 or --nvrtc 12 takes one compiler only",
              file=sys.stderr)
        return 1
    return 0


def extract(archive, target):
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "r:xz") as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(target, filter="tar")
        else:
            tar.extractall(target)


def unpack(root, say):
    """Unpacks a pack that was carried here, once. Where a build was made nothing is touched."""
    folder = root / PLACE
    if not (folder / "pack.json").exists() or (root / "build/CMakeCache.txt").exists():
        return
    stamp = folder / "unpacked.json"
    if stamp.exists() and stamp.read_bytes() == (folder / "pack.json").read_bytes():
        return
    targets = {"programs": root / "build", "golden": folder / "golden", "nvrtc13": root / ".deps/lib",
               "nvrtc12": root / ".deps/lib", "wheels": folder / "wheels"}
    for archive in sorted(folder.glob("*.tar.xz")):
        name = archive.name[:-len(".tar.xz")]
        if name in targets:
            say(f"unpacking {name}")
            extract(archive, targets[name])
    for wheel in sorted((folder / "wheels").glob("*.whl")):
        zipfile.ZipFile(wheel).extractall(folder / "site")
    shutil.copyfile(folder / "pack.json", stamp)
