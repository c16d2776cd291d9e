#!/usr/bin/env python3
"""Makes narrow.json: how far PyTorch's own autocast in bf16 and fp16 strays from the golden float64 curves.

Run:    ../venv/bin/python tests/golden/make_narrow.py [DIRECTORY]     (default: beside this file)
Writes: DIRECTORY/narrow.json: per model and precision the largest relative distance, over all steps, of losses and gradient
        norms from the float64 curve. In fp16 the loss is scaled by 2^16 and the gradients unscaled, as GradScaler does.
In:     the models, weights and batches of make_curves.py.
Odd:    master weights, norms, softmax, loss and optimizer are float32 under autocast, as in our plans of bf16 and fp16.
"""

import json
import pathlib
import sys

import torch

import make_curves as curves

SCALE = 2.0**16


def train(model, dtype):
    """make_curves.train in float32 under autocast."""
    cfg, (shapes, logits) = curves.CONFIGS[model], curves.MODELS[model]
    params = {name: curves.initial_value(name, shape).float().requires_grad_() for name, shape in shapes(cfg).items()}
    groups = [dict(params=[p for p in params.values() if p.dim() >= 2], weight_decay=curves.WEIGHT_DECAY),
              dict(params=[p for p in params.values() if p.dim() < 2], weight_decay=0.0)]
    adamw = torch.optim.AdamW(groups, lr=curves.PEAK_LR, betas=curves.BETAS, eps=curves.ADAM_EPS, foreach=False)
    scale = SCALE if dtype == torch.float16 else 1.0
    curve = {"loss": [], "grad_norm": []}
    for step in range(curves.STEPS):
        inputs, targets = curves.batch_of_step(step, cfg)
        valid = int((targets != curves.IGNORED).sum())
        adamw.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            scores = logits(params, inputs, cfg)
        loss = curves.cross_entropy_sum(scores.float(), targets) / valid
        (loss * scale).backward()
        for p in params.values():
            p.grad /= scale
        curve["grad_norm"].append(
            torch.nn.utils.clip_grad_norm_(params.values(), curves.CLIP, foreach=False).item())
        curve["loss"].append(loss.item())
        for group in adamw.param_groups:
            group["lr"] = curves.learning_rate(step)
        adamw.step()
    return curve


def main():
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    torch.set_num_threads(1)
    content = {"made_with": {"torch": torch.__version__}}
    for model in ("llama", "gpt2"):
        exact = curves.train(model, torch.float64)
        content[model] = {name: curves.distance(train(model, dtype), exact)
                          for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16))}
    (directory / "narrow.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
