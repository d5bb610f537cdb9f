# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""A server of a small hybrid model, a layer of KDA with its convolution and one of latent attention.

Requests come and go in one batch, prompts that begin alike share a page and states (a prefix
cache), and words are drafted and verified several at a time. Every word that the server chose is
compared with the best one of the model in float64. NumPy's arrays lie in host memory, so
LATHE_DEVICE=sim has to be set.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

import lathe
from server_model import CHANNELS, D, H, KEYS, TAPS, VALUES, WORDS, Model

SEATS, SPEC, CACHED, PAGE, TABLE, PAGES, WANTED = 3, 3, 2, 16, 3, 16, 12
COLUMNS = TAPS - 1 + SPEC - 1


@dataclass
class Request:
    words: list[int]
    prompt: int
    done: int = 0      # words that have keys and states
    accepted: int = 1  # how many of the last step's words count
    rows: int = 0      # words of the next step
    pages: list[int] = field(default_factory=list)


def half(array, *shape: int):
    return np.ascontiguousarray(array, np.float16).reshape(shape)


def integers(*values):
    return np.array(values, np.int32)


class Server:
    """A seat has a slot of the convolution and SPEC of KDA, one for the state behind each token of
    a step; entries of the prefix cache have one of each behind those."""

    def __init__(self, model: Model) -> None:
        self.model, self.filter = model, half(model.filter, CHANNELS, TAPS)
        self.conv = np.full((SEATS + CACHED, CHANNELS, COLUMNS), np.nan, np.float16)
        self.kda = np.full((SEATS * SPEC + CACHED, H, D, D), np.nan, np.float32)
        self.cache = np.full((PAGES, PAGE, 1, KEYS), np.nan, np.float16)
        self.users = [0] * PAGES
        self.seats: list[Request | None] = [None] * SEATS
        self.prefixes: dict[tuple[int, ...], tuple[int, int]] = {}  # words -> entry, page
        self.reused = self.taken = 0

    def forward(self, batch: list[Request], mix):
        """Returns the best word behind each of the next `rows` words of each request."""
        for r in batch:
            while len(r.pages) * PAGE < r.done + r.rows:
                r.pages.append(self.users.index(0))
                self.users[r.pages[-1]] = 1
        words = [word for r in batch for word in r.words[r.done:r.done + r.rows]]
        offsets = integers(0, *np.cumsum([r.rows for r in batch]))
        stream, qkv, gate, beta = self.model.before_mixing(words)
        inputs = {"g": gate.astype(np.float32).reshape(1, -1, H, D), "cu_seqlens": offsets,
                  "beta": beta.astype(np.float32)[None], "state_pool": self.kda,
                  "use_qk_l2norm_in_kernel": 1}
        mixed = mix(half(qkv, -1, CHANNELS), offsets, inputs)
        stream, query, key = self.model.before_attending(
            stream, mixed.astype(np.float64).reshape(-1, H * D))
        table = [r.pages + [0] * (TABLE - len(r.pages)) for r in batch]
        attended = lathe.run("flash_attention_decode", q=half(query, -1, H, KEYS), causal=1,
                             k_cache=self.cache, block_table=integers(*table),
                             cache_seqlens=integers(*(r.done for r in batch)),
                             k_new=half(key, -1, 1, KEYS), cu_seqlens_q=offsets).out
        logits = self.model.logits(stream, attended.astype(np.float64).reshape(-1, H * VALUES))
        return logits.argmax(-1).tolist()

    def admit(self, r: Request, seat: int) -> None:
        """Computes a prompt: from the states of one that began alike, or from zeros, and then the
        states behind its first page are kept."""
        start = tuple(r.words[:PAGE])
        found, keep = self.prefixes.get(start), None
        if found:
            r.done, r.pages, self.reused = PAGE, [found[1]], self.reused + 1
        else:
            if len(self.prefixes) == CACHED:  # the oldest makes room
                keep, page = self.prefixes.pop(next(iter(self.prefixes)))
                self.users[page] -= 1
            else:
                keep = len(self.prefixes)
        kept = integers() if keep is None else integers(PAGE)
        pools = {name: (integers(seat * each), integers(seats + found[0] if found else -1),
                        integers() if keep is None else integers(seats + keep))
                 for name, each, seats in (("conv", 1, SEATS), ("kda", SPEC, SEATS * SPEC))}

        def mix(qkv, offsets, inputs):
            slots = {name: {"state_indices": at, "source_indices": source,
                            "cu_checkpoints": integers(0, len(kept)), "checkpoint_tokens": kept,
                            "checkpoint_slots": to} for name, (at, source, to) in pools.items()}
            y = lathe.run("causal_conv1d", x=qkv[None], weight=self.filter, cu_seqlens=offsets,
                          state_pool=self.conv[..., :TAPS - 1], activation="silu",
                          split=(H * D,) * 3, **slots["conv"])
            q, k, v = (each.reshape(1, -1, H, D) for each in (y.y_0, y.y_1, y.y_2))
            return lathe.run("kda", q=q, k=k, v=v, **inputs, **slots["kda"]).o

        r.rows = r.prompt - r.done
        r.words.append(self.forward([r], mix)[-1])
        r.done, r.accepted, self.seats[seat] = r.prompt, 1, r
        if keep is not None:
            self.prefixes[start] = keep, r.pages[0]
        self.users[r.pages[0]] += 1

    def draft(self, r: Request) -> None:
        """Takes the words behind the last place where the last word stood."""
        at = max((i for i in range(r.done) if r.words[i] == r.words[-1]), default=r.done)
        r.words += r.words[at + 1:at + SPEC][:SPEC - 1]
        r.rows = len(r.words) - r.done

    def decode(self) -> None:
        """Takes a step of all seats: drafts count as far as the model would have chosen them."""
        taken = [(seat, r) for seat, r in enumerate(self.seats) if r]
        batch = [r for _, r in taken]
        for r in batch:
            self.draft(r)
        accepted = integers(*(r.accepted for r in batch))

        def mix(qkv, offsets, inputs):
            y = lathe.run("causal_conv1d_update", x=qkv, state=self.conv, weight=self.filter,
                          cu_seqlens=offsets, state_indices=integers(*(seat for seat, _ in taken)),
                          num_accepted_tokens=accepted, activation="silu").y
            q, k, v = np.moveaxis(y.reshape(1, -1, 3, H, D), 2, 0)  # views of one projection
            slots = integers(*([seat * SPEC + i for i in range(SPEC)] for seat, _ in taken))
            return lathe.run("kda_recurrent", q=q, k=k, v=v, state_indices=slots,
                             num_accepted_tokens=accepted, **inputs).o

        best = self.forward(batch, mix)
        for seat, r in taken:
            mine, best = best[:r.rows], best[r.rows:]
            count = 1
            while count < r.rows and mine[count - 1] == r.words[r.done + count]:
                count += 1
            r.words[r.done + count:] = [mine[count - 1]]
            r.done, r.accepted, self.taken = r.done + count, count, self.taken + count - 1
            if len(r.words) - r.prompt >= WANTED:
                for page in r.pages:
                    self.users[page] -= 1
                self.seats[seat] = None


def main() -> float:
    """Serves, and returns how far a chosen word is, at most, from the best one."""
    model = Model()
    server, steps = Server(model), 0
    requests = []
    for n in range(6):  # two kinds of prompts, which end differently
        prompt = PAGE + 2 + n % 3
        words = [(i * (7 + n % 2 if i < PAGE else 5 + n) + n % 2) % WORDS for i in range(prompt)]
        requests.append(Request(words, prompt))
    waiting = list(requests)
    while waiting or any(server.seats):
        if waiting and None in server.seats:
            server.admit(waiting.pop(0), server.seats.index(None))
        server.decode()
        steps += 1
    worst = 0.0
    for r in requests:
        logits = model.reference(r.words)[r.prompt - 1:-1]
        chosen = logits[np.arange(len(logits)), r.words[r.prompt:]]
        worst = max(worst, float((logits.max(-1) - chosen).max()))
    print(f"server of {len(requests)} requests, {sum(len(r.words) - r.prompt for r in requests)} "
          f"words in {steps} steps, {server.reused} prompts from the cache, {server.taken} drafts "
          f"taken: largest error {worst:.1e}")
    assert server.reused and server.taken
    return worst


if __name__ == "__main__":
    main()
