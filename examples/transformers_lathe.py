# SPDX-FileCopyrightText: 2026 The lathe authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny model of transformers on lathe's kernels, then generates with it.

    python examples/transformers_lathe.py             # on a GPU
    LATHE_DEVICE=sim python examples/transformers_lathe.py

The model learns to go on with a sequence that counts up. Weights are random and nothing is
downloaded. On the simulator this takes half a minute once the kernels are compiled.
"""
import torch
import transformers

import lathe.torch
import lathe.compat.transformers

lathe.compat.transformers.register()  # the one line; attn_implementation below names it

DEVICE = "cpu" if lathe.torch.simulated() else "cuda"
VOCABULARY, LENGTH, PROMPT = 16, 12, 5


def make_model():
    """Returns a model of two layers, with grouped heads and a window of 8 tokens."""
    config = transformers.MistralConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=8, bos_token_id=None,
        eos_token_id=None, pad_token_id=0)
    return transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="lathe").to(DEVICE)


def counting(batch):
    """Returns sequences that count up from anywhere, as [batch, LENGTH]; 0 is padding."""
    first = torch.randint(0, VOCABULARY - 1, (batch, 1), device=DEVICE)
    return (first + torch.arange(LENGTH, device=DEVICE)) % (VOCABULARY - 1) + 1


def train(model, steps=40):
    """Trains on batches of which the first sequence is padded at the left; returns the losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        tokens = counting(8)
        mask = torch.ones_like(tokens)
        mask[0, :3] = 0
        labels = tokens.masked_fill(mask == 0, -100)
        loss = model(input_ids=tokens, attention_mask=mask, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main():
    """Trains, generates with a padded batch, and says how many tokens are right."""
    torch.manual_seed(0)
    model = make_model().train()
    losses = train(model)
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}")
    model.eval()
    tokens = counting(4)
    prompt, mask = tokens[:, :PROMPT].clone(), torch.ones(4, PROMPT, device=DEVICE).long()
    prompt[0, :2], mask[0, :2] = 0, 0
    found = model.generate(prompt, attention_mask=mask, max_new_tokens=LENGTH - PROMPT,
                           do_sample=False)
    right = (found[:, PROMPT:] == tokens[:, PROMPT:]).float().mean().item()
    print("generated", found[1].tolist())
    print(f"{100 * right:.0f} % of the tokens are right")
    return losses, right


if __name__ == "__main__":
    main()
