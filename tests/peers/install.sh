#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
#
# tests/peers/install.sh FOLDER: the peers' wheels into FOLDER/venv (2.5 GB), unless they are there.
#
#   PYTHON=python3.11       an interpreter with its headers, as Triton compiles its launcher
#   LATHE_PEERS_TORCH=...   a requirement for torch in place of the pinned one
#   LATHE_PEERS_TRITON=...  the same for the Triton that this torch was made with
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=$1
python=${PYTHON:-python3}

want=$(cat "$here/requirements.txt" "$here/standins.py"; echo "$python ${LATHE_PEERS_TORCH:-} ${LATHE_PEERS_TRITON:-}")
[ "$(cat "$peers/stamp" 2>/dev/null)" != "$want" ] || exit 0
"$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
  { echo "peers: $python has no Python.h: install its development package" >&2; exit 1; }
echo "peers: installing into $peers/venv"
mkdir -p "$peers"
rm -rf "$peers/venv" "$peers/standins" "$peers/stamp"
"$python" -m venv "$peers/venv"
sed "s|^torch==.*|${LATHE_PEERS_TORCH:-&}|; s|^triton==.*|${LATHE_PEERS_TRITON:-&}|" "$here/requirements.txt" >"$peers/requirements.txt"
# What is imported is compiled then: a tenth of the files.
"$peers/venv/bin/pip" install --quiet --disable-pip-version-check --no-input --no-deps --no-compile \
  -r "$peers/requirements.txt"
"$peers/venv/bin/python" "$here/standins.py" "$peers/standins"
printf '%s' "$want" >"$peers/stamp"
