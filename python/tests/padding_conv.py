# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Convolution by the peers' names, with garbage where nobody is: rows of padding.py's table."""
import torch

from lathe.compat import causal_conv1d, vllm_conv
from padding import NAN, Row

MODULES = (causal_conv1d, vllm_conv)

D, W = 24, 4
KEPT = W - 1
BOUND = 1e-5


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def taps():
    return {"weight": randn(D, W) / 2, "bias": randn(D)}


def outside(garbage, size):
    """Returns an index that is no place of a pool: the garbage, or -1 where it is one."""
    return garbage.index if not 0 <= garbage.index < size else -1


def _convolved(x, weight, bias, before):
    """Returns (y, before and x) of one sequence x [n,D] behind before [W-1,D], in float64."""
    seen = torch.cat([before.double(), x.double()])
    y = bias.double() + sum(seen[i:i + len(x)] * weight.double()[:, i] for i in range(W))
    return y * y.sigmoid(), seen


def _pool(garbage, slots, columns, named):
    """Returns states [S,D,L], channel-last; slots that are not named hold garbage."""
    pool = randn(slots, columns, D, seed=1)
    for slot in set(range(slots)) - set(named):
        pool[slot] = garbage.number
    return pool.transpose(1, 2)


def slot_mask(*numbers, of):
    mask = torch.zeros(of, dtype=torch.bool)
    mask[list(numbers)] = True
    return {"pool": mask}


# ---- causal_conv1d -------------------------------------------------------------------------------


def _numbered(garbage):
    """Returns x [B,T,D] and seq_idx [B,T] with tokens of nobody before, between and behind."""
    number = min(garbage.index, -1) if garbage.index < 2**31 - 1 else -1
    seq_idx = ints(0, 0, 0, number, number, 1, 1, number, number, 0, 0, 0, 0, 4, 4, 7)
    x = randn(2, 8, D)
    x.view(16, D)[seq_idx < 0] = garbage.number
    return {"x": x, **taps(), "seq_idx": seq_idx.view(2, 8)}


def _numbered_wanted(x, weight, bias, seq_idx):
    y = [torch.zeros(1, D, dtype=torch.float64)] * 16
    for begin, end in ((0, 3), (5, 7), (9, 13), (13, 15), (15, 16)):
        part, _ = _convolved(x.flatten(0, 1)[begin:end], weight, bias, x.new_zeros(KEPT, D))
        y[begin:end] = part.split(1)
    return torch.cat(y),


def _numbered_call(x, weight, bias, seq_idx):
    y = causal_conv1d.causal_conv1d_fn(x.transpose(1, 2), weight, bias, seq_idx, activation="silu")
    return y.transpose(1, 2).flatten(0, 1),


def steps(tokens, columns):
    """Returns a maker of tokens x [B,D,T] and states in slots, of which two rows have none."""
    def made(garbage):
        x = randn(4, tokens, D).transpose(1, 2)
        x[1], x[3] = garbage.number, garbage.number
        return {"x": x, **taps(), "pool": _pool(garbage, 6, columns, (4, 2)),
                "slots": ints(4, outside(garbage, 6), 2, -1),
                "taken": ints(3, garbage.length, 7, garbage.length)}
    return made


def steps_wanted(ring):
    def wanted(x, weight, bias, pool, slots, taken):
        y, after = torch.zeros(x.shape, dtype=torch.float64), pool.double()
        columns = pool.shape[2]
        for row, slot in ((0, 4), (2, 2)):
            # The columns of a ring in order, the oldest first.
            order = [(int(taken[row]) + i) % columns for i in range(columns)] if ring \
                else list(range(columns))
            state = pool[slot][:, order].t()
            found, seen = _convolved(x[row].t(), weight, bias, state[columns - KEPT:])
            y[row] = found.t()
            rolled = torch.cat([state.double(), x[row].t().double()])[-columns:]
            shift = x.shape[2] % columns if ring else 0
            for i, place in enumerate(order[shift:] + order[:shift]):
                after[slot][:, place] = rolled[i]
        return y, after
    return wanted


def _steps_call(ring):
    def call(x, weight, bias, pool, slots, taken):
        x = x.squeeze(2) if x.shape[2] == 1 else x
        y = causal_conv1d.causal_conv1d_update(x, pool, weight, bias, "silu",
                                               taken if ring else None, slots)
        return y.view(4, D, -1), pool
    return call


def steps_named(pool, **others):
    return slot_mask(4, 2, of=len(pool))


def _packed(garbage):
    """Returns packed x [T,D] with two rows past the last offset, and empty sequences."""
    x = randn(12, D)
    x[10:] = garbage.number
    return {"x": x, "offsets": ints(0, 1, 1, 6, 10, 10, 10)}


def _last_wanted(x, offsets):
    found = torch.zeros(6, D, 5, dtype=torch.float64)
    for n, (begin, end) in enumerate(zip(offsets.tolist(), offsets[1:].tolist())):
        kept = min(5, end - begin)
        found[n, :, 5 - kept:] = x[end - kept:end].t()
    return found,


def _update_rows(what, tokens, columns, ring=False):
    return Row(causal_conv1d, "causal_conv1d_update", steps(tokens, columns), _steps_call(ring),
               steps_wanted(ring), steps_named, what=what, bound=BOUND)


CONV = (
    Row(causal_conv1d, "causal_conv1d_fn", _numbered, _numbered_call, _numbered_wanted,
        gradients=("x", "weight", "bias"), bound=BOUND),
    _update_rows("one token", 1, W), _update_rows("one token, W - 1 slots", 1, KEPT),
    _update_rows("tokens", 3, 6), _update_rows("ring", 1, W, True),
    _update_rows("tokens of a ring", 6, W, True),
    Row(causal_conv1d, "causal_conv1d_varlen_states", _packed,
        lambda x, offsets: (causal_conv1d.causal_conv1d_varlen_states(x, offsets, 5),),
        _last_wanted),
)

# ---- vLLM's pools --------------------------------------------------------------------------------

NULL = 0  # the block that is padding


def _sequences(garbage, slots):
    """Returns packed x [T,D] of five sequences, of which those of nobody may have tokens."""
    x = randn(15, D)
    x[5:7], x[13:] = garbage.number, garbage.number
    return {"x": x, **taps(), "slots": slots,
            "offsets": ints(0, 5, 7, 7, 12, 13, 13, 13)}


def _prefill(garbage):
    # The second sequence is padding with tokens, the third and the last two have none.
    slots = ints(3, garbage.index if garbage.index not in (1, 3, 5) else NULL, 4, 1, 5,
                  garbage.index, NULL)
    known = torch.tensor([True, True, False, False, True, garbage.length > 0, True])
    return {**_sequences(garbage, slots), "pool": _pool(garbage, 8, KEPT + 2, (3, 1, 5)),
            "known": known}


def _prefill_wanted(x, weight, bias, slots, offsets, pool, known):
    y, after = torch.full((15, D), NAN, dtype=torch.float64), pool.double()
    for n, slot in ((0, 3), (3, 1), (4, 5)):
        begin, end = offsets[n], offsets[n + 1]
        before = pool[slot, :, :KEPT].t() if known[n] else torch.zeros(KEPT, D)
        y[begin:end], seen = _convolved(x[begin:end], weight, bias, before)
        after[slot, :, :KEPT] = seen[-KEPT:].t()
    return y, after


def _prefill_call(x, weight, bias, slots, offsets, pool, known):
    y = vllm_conv.causal_conv1d_fn(x.t(), weight, bias, pool, offsets, slots, known,
                                   null_block_id=NULL)
    return y.t(), pool


def _columns(pool, *slots, first):
    """Returns a mask of the first columns of slots."""
    mask = torch.zeros(pool.shape, dtype=torch.bool)
    mask[list(slots), :, :first] = True
    return {"pool": mask}


def drafts_of(tokens, columns, most):
    """Returns a maker of a step of `tokens` of each row; of the last step's, some count."""
    def made(garbage):
        x = randn(5, tokens, D).transpose(1, 2)
        x[[1, 3, 4]] = garbage.number
        return {"x": x, **taps(), "pool": _pool(garbage, 8, columns, (6, 2)),
                "slots": ints(6, garbage.index if garbage.index not in (2, 6) else NULL, 2, NULL,
                               outside(garbage, 8)) if garbage.index != 3
                else ints(6, NULL, 2, NULL, -1),
                "accepted": ints(most, garbage.length, 1, 0, garbage.length)}
    return made


def drafts_wanted(drafts):
    def wanted(x, weight, bias, pool, slots, accepted):
        y, after = torch.zeros(x.shape, dtype=torch.float64), pool.double()
        for row in (0, 2):
            slot, first = slots[row], accepted[row] - 1 if drafts else 0
            before = pool[slot, :, first:first + KEPT].t()
            found, seen = _convolved(x[row].t(), weight, bias, before)
            y[row] = found.t()
            kept = seen[1:] if drafts else seen[-KEPT:]
            after[slot, :, :len(kept)] = kept.t()
        return y, after
    return wanted


def _drafts_call(drafts):
    def call(x, weight, bias, pool, slots, accepted):
        x = x.squeeze(2) if x.shape[2] == 1 else x
        y = vllm_conv.causal_conv1d_update(x, pool, weight, bias, True, slots,
                                           accepted if drafts else None, null_block_id=NULL)
        return y.view(5, D, -1), pool
    return call


def drafts_named(drafts):
    def named(x, pool, **others):
        return _columns(pool, 6, 2, first=KEPT - 1 + x.shape[2] if drafts else KEPT)
    return named


def packed_drafts(garbage):
    """As _prefill, with counts, of which those of padding are garbage."""
    found = _prefill(garbage)
    del found["known"]
    return {**found, "pool": _pool(garbage, 8, KEPT + 6, (3, 1, 5)),
            "accepted": ints(3, garbage.length, garbage.length, 1, 2, 0, garbage.length)}


def packed_drafts_wanted(drafts):
    def wanted(x, weight, bias, slots, offsets, pool, accepted):
        y, after = torch.full((15, D), NAN, dtype=torch.float64), pool.double()
        for n, slot in ((0, 3), (3, 1), (4, 5)):
            begin, end, first = offsets[n], offsets[n + 1], accepted[n] - 1 if drafts else 0
            before = pool[slot, :, first:first + KEPT].t()
            y[begin:end], seen = _convolved(x[begin:end], weight, bias, before)
            kept = seen[1:] if drafts else seen[-KEPT:]
            after[slot, :, :len(kept)] = kept.t()
        return y, after
    return wanted


def _packed_drafts_call(drafts, most):
    def call(x, weight, bias, slots, offsets, pool, accepted):
        return vllm_conv.causal_conv1d_update(
            x, pool, weight, bias, True, slots, accepted if drafts else None, offsets, most,
            null_block_id=NULL), pool
    return call


def packed_named(drafts):
    def named(pool, **others):
        return _columns(pool, 3, 1, 5, first=KEPT + 4 if drafts else KEPT)
    return named


def _channels_first(make):
    """Returns a maker of the same inputs with the other layout of the pool."""
    def made(garbage):
        found = make(garbage)
        return {**found, "pool": found["pool"].contiguous()}
    return made


def _blocks(garbage):
    """Two sequences in blocks of 4 tokens, of which they have 3 and 5; the third is padding."""
    x = randn(13, D)
    x[11:] = garbage.number
    other = garbage.index
    return {"x": x, **taps(), "pool": _pool(garbage, 12, KEPT, (2, 3, 4, 6, 7, 8)),
            "slots": torch.stack([ints(2, 3, 4, other, other), ints(other, 6, 7, 8, other),
                                  ints(NULL, other, other, other, other)]),
            "offsets": ints(0, 6, 11, 11), "known": torch.tensor([True, True, other > 0]),
            "first": ints(0, 1, other), "last": ints(2, 2, other),
            "initial": ints(0, 1, other), "computed": ints(3, 5, garbage.length)}


def _blocks_call(x, weight, bias, pool, slots, offsets, known, first, last, initial, computed):
    y = vllm_conv.causal_conv1d_fn(
        x.t(), weight, bias, pool, offsets, slots, known, null_block_id=NULL,
        block_idx_first_scheduled_token=first, block_idx_last_scheduled_token=last,
        initial_state_idx=initial, num_computed_tokens=computed, block_size_to_align=4)
    return y.t(), pool


def _blocks_wanted(x, weight, bias, pool, slots, offsets, computed, **others):
    y, after = torch.full((13, D), NAN, dtype=torch.float64), pool.double()
    for n, source, end, ends in ((0, 2, 4, {2: 1, 3: 5}), (1, 6, 7, {6: 3})):
        begin, stop = offsets[n], offsets[n + 1]
        y[begin:stop], seen = _convolved(x[begin:stop], weight, bias, pool[source].t())
        for slot, tokens in {**ends, end: int(stop - begin)}.items():
            after[slot] = seen[tokens:tokens + KEPT].t()
    return y, after


VLLM_UPDATES = (
    *(Row(vllm_conv, "causal_conv1d_update", drafts_of(tokens, columns, most), _drafts_call(drafts),
          drafts_wanted(drafts), drafts_named(drafts), what=what, bound=BOUND)
      for what, tokens, columns, most, drafts in (
          ("one token", 1, KEPT, 1, False), ("tokens", 5, W, 1, False),
          ("drafts", 3, KEPT + 3, 3, True), ("one draft", 1, KEPT, 1, True))),
    *(Row(vllm_conv, "causal_conv1d_update", packed_drafts, _packed_drafts_call(drafts, most),
          packed_drafts_wanted(drafts), packed_named(drafts), what=what, bound=BOUND)
      for what, most, drafts in (
          ("packed", 5, False), ("packed drafts", 5, True), ("wrong max_query_len", 1, True),
          ("no max_query_len", -1, True))),
)
VLLM = (
    Row(vllm_conv, "causal_conv1d_fn", _prefill, _prefill_call, _prefill_wanted,
        lambda pool, **others: _columns(pool, 3, 1, 5, first=KEPT), bound=BOUND),
    Row(vllm_conv, "causal_conv1d_fn", _blocks, _blocks_call, _blocks_wanted,
        lambda pool, **others: slot_mask(2, 3, 4, 6, 7, of=len(pool)), what="blocks", bound=BOUND),
    *VLLM_UPDATES,
    *(row._replace(make=_channels_first(row.make), what=f"{row.what}, channels first")
      for row in VLLM_UPDATES),
)

ROWS = (*CONV, *VLLM)
