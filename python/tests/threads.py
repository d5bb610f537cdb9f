# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks of torch.distributed as threads of this process, which is how the simulator has ranks."""
import threading

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.multi_threaded_pg import (ProcessLocalGroup,
                                                                   _install_threaded_pg,
                                                                   _uninstall_threaded_pg)


def over_ranks(world, work):
    """Returns what work(rank) returns in a thread for each rank of a threaded process group."""
    world_object = _install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    store = dist.HashStore()
    results, failures = [None] * world, []

    def rank(index):
        try:
            dist.init_process_group(backend="threaded", rank=index, world_size=world, store=store)
            results[index] = work(index)
        except BaseException as failure:
            failures.append(failure)
            ProcessLocalGroup.exception_handle(failure)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    threads = [threading.Thread(target=rank, args=(index,)) for index in range(world)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        _uninstall_threaded_pg()
        ProcessLocalGroup.reset()  # the failure of a rank would end those of the next call
        del world_object
    if failures:
        # A rank that waits for one that has failed is ended by SystemExit.
        raise next((each for each in failures if not isinstance(each, SystemExit)), failures[0])
    return results
