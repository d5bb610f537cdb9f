# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Sequences in pages of which some are nobody's, for the tables of garbage; their results."""
import torch

from attention import reference

H, HK, D, PAGE = 4, 2, 32, 8


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).half()


def attended(q, k, v, **options):
    """Returns (out [Sq,H,DV], lse [H,Sq]) of one sequence; zeros and -inf for no rows."""
    out, lse = reference(q[None], k[None], v[None], **options)
    return out[0], lse[0]


def whole(parts, q, rows, lse=True):
    """Returns outputs with results of sequences at rows; other rows have out 0 and lse -inf.

    parts: pairs (slice of rows, (out, lse)).
    """
    width = parts[0][1][0].shape[-1] if parts else D
    out = torch.zeros(rows, q.shape[-2], width, dtype=torch.float64)
    logs = torch.full((q.shape[-2], rows), -torch.inf, dtype=torch.float64)
    for at, (found, log) in parts:
        out = torch.cat([out[:at.start], found, out[at.stop:]])
        logs = torch.cat([logs[:, :at.start], log, logs[:, at.stop:]], 1)
    return (out, logs) if lse else (out,)


# ---- pages ---------------------------------------------------------------------------------------

# Pages 0 and 3 are nobody's: garbage like 0 and 3 names them.
PAGES = ((5, 2, None), (None, None, None), (4, 1, 6))
LENGTHS, NEW = (11, 0, 20), (2, 0, 4)


def cache_of(garbage, width=D):
    """Returns (k_cache, v_cache, table, lengths): rows that nobody uses hold garbage."""
    k, v = random(7, PAGE, HK, width), random(7, PAGE, HK, width, seed=1)
    used = torch.zeros(7, PAGE, dtype=torch.bool)
    for pages, length in zip(PAGES, LENGTHS):
        for at in range(length):
            used[pages[at // PAGE], at % PAGE] = True
    k[~used] = v[~used] = garbage.number
    table = ints(*[[garbage.index if page is None else page for page in pages]
                    for pages in (*PAGES, (None,) * 3)])
    return k, v, table, ints(*LENGTHS[:1], garbage.length, LENGTHS[2], garbage.length)


def keys_of(cache, i, new=None):
    """Returns the keys of sequence i, followed by new ones."""
    stored = [cache[PAGES[i][at // PAGE], at % PAGE] for at in range(LENGTHS[i])]
    return torch.stack([*stored, *(() if new is None else new)])


def ragged(garbage, lengths=(2, 0, 1), width=D):
    """Returns packed queries with rows of padding, over pages; sequences 1 and 3 are padding."""
    k, v, table, used = cache_of(garbage, width)
    q = random(5, H, width)
    last = sum(lengths)
    q[last:] = garbage.number
    starts = torch.tensor([0, *lengths, 0]).cumsum(0).int()
    return {"q": q, "k_cache": k, "v_cache": v, "table": table, "used": used, "cu_q": starts,
            "sinks": torch.linspace(-1, 1, H)}
