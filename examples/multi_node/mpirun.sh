#!/bin/sh
# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
# A program on every GPU of several nodes by mpirun, of Open MPI or of MPICH and Intel; no MPI is
# linked, mpirun only starts the processes:
#
#   RANKS=16 HOSTS=hosts.txt mpirun.sh build/ranks
#
# Ranks meet through a folder that all nodes see (SHARED), or where HEAD names the first node at that
# address; there LATHE_RENDEZVOUS_SECRET, if it is set, keeps others out. Every rank says its place:
# OMPI_COMM_WORLD_RANK or PMI_RANK and so on.
set -eu
if [ -n "${HEAD:-}" ]; then
  export MASTER_ADDR="$HEAD" MASTER_PORT="${PORT:-29500}"
  open_mpi="-x MASTER_ADDR -x MASTER_PORT" others="-genvlist MASTER_ADDR,MASTER_PORT"
  if [ -n "${LATHE_RENDEZVOUS_SECRET:-}" ]; then  # its name: the value is no argument
    open_mpi="$open_mpi -x LATHE_RENDEZVOUS_SECRET" others="$others,LATHE_RENDEZVOUS_SECRET"
  fi
else
  export LATHE_RENDEZVOUS_DIR="${SHARED:-$PWD}"
  open_mpi="-x LATHE_RENDEZVOUS_DIR" others="-genvlist LATHE_RENDEZVOUS_DIR"
fi
case $(mpirun --version 2>&1) in
  *"Open MPI"*) pass=$open_mpi ;;
  *) pass=$others ;;
esac
# shellcheck disable=SC2086 # options, word by word
exec mpirun -np "${RANKS:-1}" ${HOSTS:+-hostfile "$HOSTS"} $pass "$@"
