#!/bin/sh
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
# A program on every GPU of several nodes: sbatch slurm.sh build/ranks
#
# srun sets SLURM_PROCID, SLURM_NTASKS and SLURM_LOCALID. Ranks meet at the first node; where nodes
# cannot reach each other's ports, in the folder SHARED that all of them see. No binding of GPUs: a
# rank picks that of its SLURM_LOCALID itself.
set -eu
if [ -n "${SHARED:-}" ]; then
  export LATHE_RENDEZVOUS_DIR="$SHARED"
else
  MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  # Jobs that share a node do not meet: a port of the job's own.
  MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000 * 2))
  export MASTER_ADDR MASTER_PORT
fi
exec srun --gpu-bind=none "$@"
