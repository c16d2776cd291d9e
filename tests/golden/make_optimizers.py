#!/usr/bin/env python3
"""Makes optimizers.json: 20 steps by each optimizer, with torch.optim as the independent judge, in float64.

Run:    ../venv/bin/python tests/golden/make_optimizers.py [FILE]     (a PyTorch of 2.9 or later)
Writes: { "made_with", KIND: { "loss", "grad_norm", "squares", "eval_loss" } }, a number for each step; optimizers.lua is
        the same model and the same options. squares: of all parameters, before the step.
Odd:    Lion is in no torch.optim, so its formula stands here. Muon's Newton-Schulz is torch's own, run in float64 where
        torch rounds to bfloat16.
"""

import json
import math
import pathlib
import sys

import torch

torch.set_default_dtype(torch.float64)
torch.bfloat16 = torch.float64  # torch.optim.Muon's one narrow cast
STEPS = 20


def sines(phase, *shape):
    count = math.prod(shape)
    return torch.nn.Parameter((torch.sin(torch.arange(count) * 0.7 + phase) * 0.5).reshape(shape))


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of arXiv:2302.06675."""

    def __init__(self, params, lr, weight_decay, betas=(0.9, 0.99)):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, betas=betas))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                c = beta1 * m + (1 - beta1) * p.grad
                p.sub_(group["lr"] * (torch.sign(c) + group["weight_decay"] * p))
                m.copy_(beta2 * m + (1 - beta2) * p.grad)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.up, self.down = sines(0.1, 6, 5), sines(0.2, 8, 5), sines(0.3, 3, 8)
        self.bias = sines(0.4, 8)

    def loss(self, cursor):
        tokens = torch.tensor([(cursor * 5 + i * 3) % 5 for i in range(4)])
        targets = torch.tensor([math.sin(cursor + 1.3 * i) for i in range(12)]).reshape(4, 3)
        return ((torch.tanh(self.embed[tokens] @ self.up.T + self.bias) @ self.down.T - targets) ** 2).mean()


def adamw(groups, lr=1e-2):
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8)


def group(params, **options):
    return dict(params=params, **options)


def kinds(m):
    """{ kind: optimizers }, made for the model."""
    return {
        "adamw": lambda: [adamw([group([m.embed], lr=1e-3, weight_decay=0.1), group([m.up, m.down], weight_decay=0.1),
                                 group([m.bias], lr=2e-2, weight_decay=0)])],
        "frozen": lambda: [adamw([group([m.up, m.down], weight_decay=0.2), group([m.bias], weight_decay=0)])],
        "sgd": lambda: [torch.optim.SGD([group([m.embed, m.up, m.bias]), group([m.down], weight_decay=0.1)], lr=1e-1,
                                        momentum=0.9, nesterov=True)],
        "lion": lambda: [Lion([group([m.embed, m.up, m.down]), group([m.bias], weight_decay=0)], lr=1e-3,
                              weight_decay=0.3)],
        "adafactor": lambda: [torch.optim.Adafactor(m.parameters(), lr=0.2, weight_decay=0.05)],
        "muon": lambda: [torch.optim.Muon([m.up, m.down], lr=1e-2, weight_decay=0.1,
                                          adjust_lr_fn="match_rms_adamw"),
                         adamw([group([m.embed], weight_decay=0.1), group([m.bias], weight_decay=0)])],
        "muon_original": lambda: [torch.optim.Muon([m.up], lr=1e-2, weight_decay=0, nesterov=False,
                                                   adjust_lr_fn="original"),
                                  adamw([group([m.embed, m.down, m.bias], weight_decay=0)])],
    }


CLIP = {"adamw": 0.5, "muon": 1.0}


def curve(kind):
    model = Model()
    if kind == "frozen":
        model.embed.requires_grad_(False)
    optimizers = kinds(model)[kind]()
    averaged = None
    if kind == "adamw":
        averaged = torch.optim.swa_utils.AveragedModel(model,
                                                       multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    rows = {"loss": [], "grad_norm": [], "squares": [], "eval_loss": []}
    for step in range(STEPS):
        for one in optimizers:
            one.zero_grad()
        rows["squares"].append(sum((p.detach() ** 2).sum() for p in model.parameters()).item())
        loss = model.loss(step)
        loss.backward()
        learnt = [p for p in model.parameters() if p.requires_grad]
        norm = torch.nn.utils.clip_grad_norm_(learnt, CLIP.get(kind, math.inf))
        for one in optimizers:
            one.step()
        if averaged:
            averaged.update_parameters(model)
        judged = averaged.module if averaged else model
        with torch.no_grad():
            held_out = [judged.loss(b).item() for b in range(2)]
        rows["loss"].append(loss.item())
        rows["grad_norm"].append(norm.item())
        rows["eval_loss"].append(sum(held_out) / 2)
    return rows


def main():
    out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("optimizers.json"))
    result = {"made_with": "PyTorch " + torch.__version__.split("+")[0]}
    for kind in kinds(None):
        result[kind] = curve(kind)
    lines = ",\n".join(f'"{key}": {json.dumps(value)}' for key, value in result.items())
    out.write_text("{\n" + lines + "\n}\n")


main()
