#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""The installed package, used from outside the tree by C99 and C++20: package_test.py SOURCE BUILD

Installs BUILD into a temporary prefix, builds the programs of SOURCE/examples with find_package(lathe)
and with pkg-config, and runs them on the simulator, with the build tree out of reach.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROJECT = """\
cmake_minimum_required(VERSION 3.22)
project(outside C CXX)
find_package(lathe {version} REQUIRED)
foreach(name {names})
  add_executable(${{name}} ${{name}}.c)
  set_target_properties(${{name}} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF)
  target_compile_options(${{name}} PRIVATE -Wall -Wextra -Wpedantic -Werror)
  target_link_libraries(${{name}} PRIVATE lathe::lathe m)
endforeach()
foreach(name {names_in_cpp})
  add_executable(${{name}}_cpp ${{name}}.cpp)
  set_target_properties(${{name}}_cpp PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_compile_options(${{name}}_cpp PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Werror)
  target_link_libraries(${{name}}_cpp PRIVATE lathe::lathe)
endforeach()
"""

# What each example says first.
EXAMPLES = {"conv1d": "causal_conv1d of 100 tokens, 64 channels: largest error ",
            "flash_attention": "flash_attention of 200 tokens, 4 heads: largest error ",
            "ranks": "rank 0 of 1: causal_conv1d of tokens 0 to 1000 of 1000: largest error ",
            "ring_attention": "flash_attention of 203 tokens over 4 ranks: largest error ",
            "hybrid": "two layers of 301 tokens over 4 ranks: largest distance from one rank ",
            "server": "server of 6 requests, 7",
            "kda": "kda of 150 tokens, 4 value heads: largest error ",
            "conv1d_cpp": "causal_conv1d of 100 tokens, 64 channels: largest error ",
            "own_kernel_cpp": "scale_rows of 100 rows, 40 columns: largest error ",
            "sparse_attention": "sparse_flash_attention of 40 rows, 20 keys each: largest error "}

# What each launcher tells the only process of a run, and of two.
LAUNCHERS = {"torchrun": ("RANK", "WORLD_SIZE"),
             "Open MPI": ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
             "PMI": ("PMI_RANK", "PMI_SIZE"),
             "Slurm": ("SLURM_PROCID", "SLURM_NTASKS")}
ALONE = {"RANK": "0", "WORLD_SIZE": "1"}  # what the example of ranks needs to run at all

# Stand-ins for launchers: they say how they were called and run the program as their only rank.
STAND_INS = {
    "torchrun": 'export RANK=0 WORLD_SIZE=1 LOCAL_RANK=0',
    "mpirun": '[ "$1" != --version ] || { echo "mpirun ($MPI)"; exit; }\n'
              'export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1',
    "srun": 'export SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_LOCALID=0'}
STAND_IN = """\
#!/bin/sh
{0}
echo "{1} $* MASTER=${{MASTER_ADDR:-}}:${{MASTER_PORT:-}} DIR=${{LATHE_RENDEZVOUS_DIR:-}}" >&2
for program; do :; done
exec "$program"
"""
# A script's variables, and what its launcher must have been told.
SCRIPTS = [("torchrun.sh", {"HEAD": "n0", "NODES": "2", "GPUS": "8"},
            "torchrun --no-python --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d "
            "--rdzv-endpoint n0:29400 --rdzv-id lathe "),
           ("mpirun.sh", {"RANKS": "4", "HOSTS": "h", "HEAD": "n0", "MPI": "Open MPI"},
            "mpirun -np 4 -hostfile h -x MASTER_ADDR -x MASTER_PORT "),
           ("mpirun.sh", {"HEAD": "n0", "MPI": "Open MPI", "LATHE_RENDEZVOUS_SECRET": "key"},
            "mpirun -np 1 -x MASTER_ADDR -x MASTER_PORT -x LATHE_RENDEZVOUS_SECRET "),
           ("mpirun.sh", {"HEAD": "n0", "MPI": "Intel", "LATHE_RENDEZVOUS_SECRET": "key"},
            "mpirun -np 1 -genvlist MASTER_ADDR,MASTER_PORT,LATHE_RENDEZVOUS_SECRET "),
           ("mpirun.sh", {"SHARED": "/s", "MPI": "Intel"},
            "mpirun -np 1 -genvlist LATHE_RENDEZVOUS_DIR "),
           ("slurm.sh", {"SHARED": "/s"}, "srun --gpu-bind=none "),
           ("slurm.sh", {"SLURM_JOB_ID": "120007", "SLURM_JOB_NODELIST": "n[0-1]"},
            "srun --gpu-bind=none ")]
PLACES = ["MASTER=: DIR=", "MASTER=n0:29500 DIR=", "MASTER=n0:29500 DIR=", "MASTER=n0:29500 DIR=",
          "MASTER=: DIR=/s", "MASTER=: DIR=/s",
          "MASTER=n0:20014 DIR="]


def run(*words, **kwargs):
    words = [str(word) for word in words]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, timeout=240, **kwargs)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout.strip()


def check_output(program, env):
    text = run(program, env=env)
    print(f"{program.parent.name}: {text}")
    if not text.startswith(EXAMPLES[program.name]):
        sys.exit(f"{program}: unexpected output")


def check_ranks(program, env):
    """As each launcher starts it; the simulator has ranks for threads alone, and says so."""
    for launcher, (rank, world) in LAUNCHERS.items():
        check_output(program, dict(env, **{rank: "0", world: "1"}))
        two = dict(env, **{rank: "1", world: "2", "MASTER_ADDR": "127.0.0.1"})
        done = subprocess.run([program], env=two, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=240)
        wanted = (f"{launcher} started 2 processes, but the simulator's ranks are threads of one "
                  "process")
        if done.returncode != 1 or wanted not in done.stderr:
            sys.exit(f"{program} as rank 1 of 2 by {launcher}: {done}")


def check_scripts(folder, program, env, root):
    (root / "stand_ins").mkdir()
    stand_ins = {name: STAND_IN.format(body, name) for name, body in STAND_INS.items()}
    stand_ins["scontrol"] = "#!/bin/sh\necho n0\necho n1\n"
    for name, text in stand_ins.items():
        (root / "stand_ins" / name).write_text(text)
        (root / "stand_ins" / name).chmod(0o755)
    path = f"{root / 'stand_ins'}:{env['PATH']}"
    for (script, variables, told), place in zip(SCRIPTS, PLACES):
        text = run(folder / script, program, env=dict(env, PATH=path, **variables))
        for wanted in (f"{told}{program} {place}", EXAMPLES[program.name]):
            if wanted not in text:
                sys.exit(f"{script} with {variables}: expected '{wanted}' in\n{text}")


def main():
    source, build = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="lathe-package-") as folder:
        root = pathlib.Path(folder)
        prefix, outside = root / "prefix", root / "outside"
        run("cmake", "--install", build, "--prefix", prefix)
        outside.mkdir()
        programs = [*(source / "examples").glob("*.c"), *(source / "examples").glob("*.cpp")]
        for example in programs:
            shutil.copy(example, outside)
        in_c = [example.stem for example in programs if example.suffix == ".c"]
        in_cpp = [example.stem for example in programs if example.suffix == ".cpp"]
        if {*in_c, *(f"{name}_cpp" for name in in_cpp)} != set(EXAMPLES):
            sys.exit(f"examples: {sorted(outside.iterdir())}, expected {sorted(EXAMPLES)}")
        for header in (source / "examples").glob("*.h"):
            shutil.copy(header, outside)
        library = next(prefix.rglob("liblathe.so")).parent
        version = run("pkg-config", "--modversion", "lathe",
                      env=dict(os.environ, PKG_CONFIG_PATH=f"{library}/pkgconfig"))

        env = {key: value for key, value in os.environ.items() if not key.startswith("LATHE_")}
        env.update(LATHE_DEVICE="sim", LATHE_SIM_CHECK="all", LATHE_CACHE_DIR=str(root / "cache"))
        # An installed library looks for NVRTC in the system; the wheels of a build tree are not there.
        for wheel in (pathlib.Path(__file__).parent.parent / ".deps/lib").glob("libnvrtc.so.*"):
            env["LATHE_NVRTC"] = str(wheel.resolve())

        (outside / "CMakeLists.txt").write_text(PROJECT.format(version=version, names=" ".join(in_c), names_in_cpp=" ".join(in_cpp)))
        run("cmake", "-G", "Ninja", "-S", outside, "-B", root / "find_package",
            f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Release")
        run("cmake", "--build", root / "find_package")
        for name in EXAMPLES:
            check_output(root / "find_package" / name, dict(env, **ALONE))
        check_ranks(root / "find_package" / "ranks", env)
        check_scripts(source / "examples/multi_node", root / "find_package" / "ranks", env, root)

        flags = run("pkg-config", "--cflags", "--libs", "lathe",
                    env=dict(os.environ, PKG_CONFIG_PATH=f"{library}/pkgconfig")).split()
        (root / "pkg_config").mkdir()
        for name in in_c:
            program = root / "pkg_config" / name
            run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", program,
                outside / f"{name}.c", *flags, "-lm", f"-Wl,-rpath,{library}")
            check_output(program, dict(env, **ALONE))

        installed = [path for path in (prefix / "include").rglob("*.h*") if path.suffix in (".h", ".hpp") and path.parent.name != "dlpack"]
        found = sorted(str(path.relative_to(prefix / "include")) for path in installed)
        expected = ["lathe.h", "lathe.hpp", *(f"lathe/{part}.h" for part in ("cache", "plan", "ranks", "tune"))]
        if found != expected:
            sys.exit(f"installed headers: {found}, expected {expected}")
        # The headers for kernels of one's own, with all that they include.
        device = prefix / "share/lathe/templates"
        texts = sorted((device / "lathe").glob("*.cuh")) + sorted((device / "common").glob("*.cuh"))
        named = {name for path in texts for name in re.findall(r'^#include "(.*)"', path.read_text(), re.M)}
        absent = sorted(name for name in named if not (device / name).is_file())
        if len(texts) < 20 or absent:
            sys.exit(f"{len(texts)} device headers are installed; they include {absent}, which are not")


if __name__ == "__main__":
    main()
