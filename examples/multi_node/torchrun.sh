#!/bin/sh
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# A program on every GPU of several nodes by torchrun, started once on each node:
#
#   HEAD=node0 NODES=2 GPUS=8 torchrun.sh build/ranks
#
# torchrun sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. Ranks meet at the port
# after MASTER_PORT, which torchrun's own store holds; after a restart they meet anew.
set -eu
: "${HEAD:?the name of the first node}"
exec torchrun --no-python \
  --nnodes "${NODES:-1}" --nproc-per-node "${GPUS:-1}" \
  --rdzv-backend c10d --rdzv-endpoint "$HEAD:${PORT:-29400}" --rdzv-id "${RUN:-lathe}" \
  "$@"
