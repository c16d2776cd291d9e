#!/usr/bin/env python3
"""Makes the golden curves of models beside the language models of make_curves.py: convnet, vit, layers, moe,
recurrent.

Run:    ../venv/bin/python tests/golden/make_models.py [DIRECTORY [MODEL...]]     (default: beside this file, all)
Writes: DIRECTORY/MODEL.json, with the fields of make_curves.py; `buffers` names what no optimizer learns.
In:     nothing. Weights, tokens, images and labels come from splitmix64 and fnv1a64, as README.md says.
Odd:    the layers are PyTorch's own (torch.nn.functional), channels first, so that they share no formula with ours; the
        experts, which PyTorch has none of, are loops over single tokens.
"""

import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

import make_curves as curves

CONFIGS = {
    "convnet": dict(image=8, channels=3, classes=5, batch=6, width=6, stages=2, blocks=1, norm_eps=1e-5, momentum=0.1),
    "vit": dict(image=8, channels=3, classes=5, batch=6, patch=2, dim=24, layers=2, heads=4, hidden=40, norm_eps=1e-5),
    "layers": dict(image=8, channels=3, classes=5, batch=6, norm_eps=1e-5, momentum=0.2, group=2),
    "moe": dict(vocab=61, dim=24, hidden=20, experts=4, top_k=2, capacity=1.0, seq=12, batch=4, balance=0.03,
                z_loss=0.002, bias_rate=0.01, norm_eps=1e-5),
    "recurrent": dict(vocab=61, dim=12, hidden=16, seq=12, batch=4, norm_eps=1e-5),
}

# --- Data by formula ---------------------------------------------------------------------------------------------


def images_of_step(step, cfg):
    """Images [n, h, w, c] of multiples of 1/128 in -1 .. 1, exact in float32, and labels [n]."""
    shape = (cfg["batch"], cfg["image"], cfg["image"], cfg["channels"])
    place = np.uint64(1000003 * step) + np.arange(np.prod(shape), dtype=np.uint64)
    pixels = (curves.splitmix64(place + np.uint64(12345)) % np.uint64(257)).astype(np.float64) / 128 - 1
    row = np.uint64(777 + 1000003 * step) + np.uint64(1009) * np.arange(cfg["batch"], dtype=np.uint64)
    labels = (curves.splitmix64(row) % np.uint64(cfg["classes"])).astype(np.int64)
    return torch.from_numpy(pixels.reshape(shape)), torch.from_numpy(labels)


# --- Layers, channels first inside -------------------------------------------------------------------------------


def first(x):
    """[n, s..., c] -> [n, c, s...]"""
    return x.movedim(-1, 1)


def kernel(w):
    """[out, k..., c] -> [out, c, k...]"""
    return w.movedim(-1, 1)


def same(x, size, stride):
    """As much padding as gives ceil(s / stride) windows, the odd element at the end."""
    pads = []
    for extent in reversed(x.shape[2:]):
        missing = max((-(-extent // stride) - 1) * stride + size - extent, 0)
        pads += [missing // 2, missing - missing // 2]
    return F.pad(x, pads)


class Running:
    """Buffers as PyTorch's batch_norm moves them, by path."""

    def __init__(self, values):
        self.values, self.next = values, dict(values)

    def batch_norm(self, x, p, name, cfg, group=None):
        parts = x.split(group or x.shape[0])
        mean, var = (self.values[f"{name}.running_{what}"] for what in ("mean", "var"))
        moved, out = [], []
        for part in parts:
            m, v = mean.clone(), var.clone()
            out.append(F.batch_norm(part, m, v, p[name + ".weight"], p[name + ".bias"], True, cfg["momentum"],
                                    cfg["norm_eps"]))
            moved.append((m, v))
        self.next[name + ".running_mean"] = torch.stack([m for m, _ in moved]).mean(0)
        self.next[name + ".running_var"] = torch.stack([v for _, v in moved]).mean(0)
        return torch.cat(out)


# --- The models: shapes of parameters and buffers by path name, and the mean loss ----------------------------------


def norm_shapes(name, channels):
    return {name + ".weight": (channels,), name + ".bias": (channels,)}


def running_shapes(name, channels):
    return {name + ".running_mean": (channels,), name + ".running_var": (channels,)}


def convnet_widths(cfg):
    widths, width = [], cfg["width"]
    for stage in range(cfg["stages"]):
        for n in range(cfg["blocks"]):
            halves = stage > 0 and n == 0
            widths.append((width, width * 2 if halves else width, 2 if halves else 1))
            width = widths[-1][1]
    return widths


def convnet_shapes(cfg):
    shapes = {"stem.weight": (cfg["width"], 3, 3, cfg["channels"])}
    for n, (wide, out, stride) in enumerate(convnet_widths(cfg)):
        block = f"blocks.{n}."
        shapes |= norm_shapes(block + "norm1", wide) | {block + "conv1.weight": (out, 3, 3, wide)}
        shapes |= norm_shapes(block + "norm2", out) | {block + "conv2.weight": (out, 3, 3, out)}
        if stride > 1:
            shapes |= {block + "skip.weight": (out, 1, 1, wide)}
    return shapes | norm_shapes("norm", out) | {"head.weight": (cfg["classes"], out), "head.bias": (cfg["classes"],)}


def convnet_buffers(cfg):
    shapes = {}
    for n, (wide, out, _) in enumerate(convnet_widths(cfg)):
        shapes |= running_shapes(f"blocks.{n}.norm1", wide) | running_shapes(f"blocks.{n}.norm2", out)
    return shapes | running_shapes("norm", out)


def convnet_loss(p, running, images, labels, cfg):
    def conv(x, name, size, stride):
        return F.conv2d(same(x, size, stride), kernel(p[name + ".weight"]), stride=stride)

    x = conv(first(images), "stem", 3, 1)
    for n, (_, _, stride) in enumerate(convnet_widths(cfg)):
        block = f"blocks.{n}."
        y = F.relu(running.batch_norm(x, p, block + "norm1", cfg))
        skip = conv(y, block + "skip", 1, stride) if stride > 1 else x
        y = F.relu(running.batch_norm(conv(y, block + "conv1", 3, stride), p, block + "norm2", cfg))
        x = skip + conv(y, block + "conv2", 3, 1)
    x = F.relu(running.batch_norm(x, p, "norm", cfg)).mean((2, 3))
    return F.cross_entropy(F.linear(x, p["head.weight"], p["head.bias"]), labels)


def vit_shapes(cfg):
    dim, hidden, patch = cfg["dim"], cfg["hidden"], cfg["patch"]
    shapes = {"patches.weight": (dim, patch, patch, cfg["channels"]), "patches.bias": (dim,),
              "position.weight": ((cfg["image"] // patch) ** 2, dim)}
    for n in range(cfg["layers"]):
        block = f"blocks.{n}."
        shapes |= norm_shapes(block + "norm1", dim)
        for part in "qkvo":
            shapes |= {block + "attn.w" + part: (dim, dim), block + "attn.b" + part: (dim,)}
        shapes |= norm_shapes(block + "norm2", dim)
        shapes |= {block + "mlp.up.weight": (hidden, dim), block + "mlp.up.bias": (hidden,),
                   block + "mlp.down.weight": (dim, hidden), block + "mlp.down.bias": (dim,)}
    return shapes | norm_shapes("norm", dim) | {"head.weight": (cfg["classes"], dim), "head.bias": (cfg["classes"],)}


def vit_loss(p, running, images, labels, cfg):
    dim, eps = cfg["dim"], cfg["norm_eps"]
    x = F.conv2d(first(images), kernel(p["patches.weight"]), p["patches.bias"], stride=cfg["patch"])
    x = x.flatten(2).transpose(1, 2) + p["position.weight"]
    for n in range(cfg["layers"]):
        block = f"blocks.{n}."
        h = F.layer_norm(x, (dim,), p[block + "norm1.weight"], p[block + "norm1.bias"], eps)
        q, k, v = (curves.split_heads(F.linear(h, p[block + "attn.w" + part], p[block + "attn.b" + part]), cfg["heads"])
                   for part in "qkv")
        h = curves.merge_heads(F.scaled_dot_product_attention(q, k, v))
        x = x + F.linear(h, p[block + "attn.wo"], p[block + "attn.bo"])
        h = F.layer_norm(x, (dim,), p[block + "norm2.weight"], p[block + "norm2.bias"], eps)
        h = F.gelu(F.linear(h, p[block + "mlp.up.weight"], p[block + "mlp.up.bias"]), approximate="tanh")
        x = x + F.linear(h, p[block + "mlp.down.weight"], p[block + "mlp.down.bias"])
    x = F.layer_norm(x, (dim,), p["norm.weight"], p["norm.bias"], eps).mean(1)
    return F.cross_entropy(F.linear(x, p["head.weight"], p["head.bias"]), labels)


def layers_shapes(cfg):
    shapes = {"conv.weight": (8, 3, 3, cfg["channels"]), "conv.bias": (8,)} | norm_shapes("group_norm", 8)
    shapes |= {"wide.weight": (12, 3, 2, 4), "up.weight": (12, 3, 3, 5), "up.bias": (10,), "line.weight": (8, 3, 10)}
    shapes |= norm_shapes("batch_norm", 8) | {"stretch.weight": (8, 2, 8), "stretch.bias": (8,)}
    shapes |= {"ffn.gate": (12, 8), "ffn.up": (12, 8), "ffn.down": (8, 12)}
    return shapes | {"head.weight": (cfg["classes"], 8), "head.bias": (cfg["classes"],)}


def layers_loss(p, running, images, labels, cfg):
    """Layers in forms that the models leave out: groups, dilation, strides, one dimension, transposed, ghost batches."""
    x = F.conv2d(first(images), kernel(p["conv.weight"]), p["conv.bias"], padding=1)
    x = F.mish(F.group_norm(x, 2, p["group_norm.weight"], p["group_norm.bias"], cfg["norm_eps"]))
    x = F.avg_pool2d(x, 2, stride=2, padding=1, count_include_pad=False)
    x = F.leaky_relu(F.conv2d(x, kernel(p["wide.weight"]), stride=(1, 2), dilation=(2, 1), padding=(1, 1), groups=2))
    x = F.conv_transpose2d(x, kernel(p["up.weight"]), p["up.bias"], stride=2, padding=1, output_padding=(1, 0), groups=2)
    x = F.elu(x).flatten(2)
    x = F.conv1d(x, kernel(p["line.weight"]), stride=2)
    x = F.max_pool1d(running.batch_norm(x, p, "batch_norm", cfg, cfg["group"]), 3, stride=2)
    x = F.conv_transpose1d(x, kernel(p["stretch.weight"]), p["stretch.bias"], stride=2)
    x = x.transpose(1, 2)
    h = F.gelu(F.linear(x, p["ffn.gate"])) * F.linear(x, p["ffn.up"])
    x = (x + F.linear(h, p["ffn.down"])).mean(1)
    return F.cross_entropy(F.linear(x, p["head.weight"], p["head.bias"]), labels)


def moe_shapes(cfg):
    dim, hidden, experts = cfg["dim"], cfg["hidden"], cfg["experts"]
    shapes = {"embed.weight": (cfg["vocab"], dim)}
    for n in range(3):
        shapes |= {f"norm{n + 1}.weight": (dim,), f"moe{n + 1}.router": (experts, dim),
                   f"moe{n + 1}.gate": (experts, hidden, dim), f"moe{n + 1}.up": (experts, hidden, dim),
                   f"moe{n + 1}.down": (experts, dim, hidden)}
    return shapes | {"norm.weight": (dim,)}


def experts_of(p, running, name, x, real, cfg, score, top_k, capacity, group, activation, balance, z_loss):
    """y, what it adds to the loss. x [b, t, dim]; real [b, t]: no padding; capacity: None or its factor."""
    experts, (batch, length, _) = cfg["experts"], x.shape
    logits = F.linear(x, p[name + ".router"])
    scores = torch.sigmoid(logits) if score == "sigmoid" else torch.softmax(logits, -1)
    bias = running.values.get(name + ".bias")
    ranked = scores.detach() + (0 if bias is None else bias)
    chosen = torch.sort(ranked, dim=-1, descending=True, stable=True).indices[..., :top_k]
    counts = torch.zeros(batch, experts, dtype=x.dtype)
    groups = [[(b, t) for t in range(length)] for b in range(batch)]
    if group == "batch":
        groups = [sum(groups, [])]
    rows = {}
    for places in groups:
        most = math.ceil(capacity * len(places) * top_k / experts) if capacity else len(places)
        taken = [0] * experts
        for j in range(top_k):
            for b, t in places:
                if not real[b, t]:
                    continue
                e = int(chosen[b, t, j])
                counts[b, e] += 1
                taken[e] += 1
                if taken[e] > most:
                    continue
                gate = scores[b, t, e]
                if top_k > 1:
                    gate = gate / scores[b, t, chosen[b, t]].sum()
                v = x[b, t]
                h = activation(p[name + ".gate"][e] @ v) * (p[name + ".up"][e] @ v)
                rows[b, t] = rows.get((b, t), 0) + gate * (p[name + ".down"][e] @ h)
    y = torch.stack([torch.stack([rows.get((b, t), torch.zeros_like(x[b, t])) for t in range(length)])
                     for b in range(batch)])
    even, held = 0, real.to(x.dtype)
    for places in groups:
        rows_of = sorted({b for b, _ in places})
        tokens = held[rows_of].sum()
        mean = (scores / scores.sum(-1, keepdim=True) * held[..., None])[rows_of].sum((0, 1)) / tokens
        even = even + experts * (counts[rows_of].sum(0) / (tokens * top_k) * mean).sum() / len(groups)
    extra = balance * even + z_loss * (torch.logsumexp(logits, -1).pow(2) * held).sum() / held.sum()
    if bias is not None:
        load = counts.sum(0)
        running.next[name + ".bias"] = bias + cfg["bias_rate"] * torch.sign(load.mean() - load)
    return y, extra


def moe_loss(p, running, tokens, targets, cfg):
    """Three layers: a capacity for each sequence, with padding and a bias; none; one for the batch."""
    eps, dim, real = cfg["norm_eps"], cfg["dim"], tokens % 5 != 2
    everywhere = torch.ones_like(real)
    x, extra = p["embed.weight"][tokens], 0
    forms = [(real, "softmax", 2, cfg["capacity"], "sequence", F.silu, cfg["balance"], cfg["z_loss"]),
             (everywhere, "sigmoid", 2, None, "sequence", curves.gelu_tanh, cfg["balance"], 0),
             (everywhere, "softmax", 1, cfg["capacity"], "batch", F.silu, cfg["balance"], cfg["z_loss"])]
    for n, (where, score, top_k, capacity, group, activation, balance, z_loss) in enumerate(forms):
        h = curves.rms_norm(x, p[f"norm{n + 1}.weight"], eps)
        y, more = experts_of(p, running, f"moe{n + 1}", h, where, cfg, score, top_k, capacity, group, activation,
                             balance, z_loss)
        x, extra = x + y, extra + more
    logits = curves.rms_norm(x, p["norm.weight"], eps) @ p["embed.weight"].T
    return curves.cross_entropy_sum(logits, targets) / (targets != curves.IGNORED).sum() + extra


def cell_shapes(name, gates, inputs, hidden, biases):
    shapes = {f"{name}.wx": (gates * hidden, inputs), f"{name}.wh": (gates * hidden, hidden)}
    return shapes | {f"{name}.{bias}": (gates * hidden,) for bias in biases}


def recurrent_shapes(cfg):
    dim, hidden = cfg["dim"], cfg["hidden"]
    return ({"embed.weight": (cfg["vocab"], dim), "norm.weight": (hidden,)} |
            cell_shapes("lstm", 4, dim, hidden, ["bx"]) | cell_shapes("back", 3, hidden, hidden, ["bx", "bh"]) |
            cell_shapes("gru", 3, hidden, hidden, ["bx", "bh"]) | {"head.weight": (cfg["vocab"], hidden)})


def weights_of(p, name):
    """As torch.lstm and torch.gru take them: wx, wh, bx, bh; the LSTM of ours has one bias alone."""
    bx = p[name + ".bx"]
    return [p[name + ".wx"], p[name + ".wh"], bx, p.get(name + ".bh", torch.zeros_like(bx))]


def recurrent_loss(p, running, tokens, targets, cfg):
    x = p["embed.weight"][tokens]
    zeros = torch.zeros(1, len(tokens), cfg["hidden"], dtype=x.dtype)
    x, last, _ = torch.lstm(x, (zeros, zeros), weights_of(p, "lstm"), True, 1, 0.0, True, False, True)
    y, _ = torch.gru(x.flip(1), zeros, weights_of(p, "back"), True, 1, 0.0, True, False, True)
    x = x + y.flip(1)
    y, _ = torch.gru(x, last, weights_of(p, "gru"), True, 1, 0.0, True, False, True)
    logits = curves.rms_norm(x + y, p["norm.weight"], cfg["norm_eps"]) @ p["head.weight"].T
    return curves.cross_entropy_sum(logits, targets) / (targets != curves.IGNORED).sum()


MODELS = {
    "convnet": (convnet_shapes, convnet_buffers, convnet_loss, images_of_step),
    "vit": (vit_shapes, lambda cfg: {}, vit_loss, images_of_step),
    "layers": (layers_shapes, lambda cfg: running_shapes("batch_norm", 8), layers_loss, images_of_step),
    "moe": (moe_shapes, lambda cfg: {"moe1.bias": (cfg["experts"],)}, moe_loss, curves.batch_of_step),
    "recurrent": (recurrent_shapes, lambda cfg: {}, recurrent_loss, curves.batch_of_step),
}

# --- Training ----------------------------------------------------------------------------------------------------


def train(model, dtype):
    cfg, (shapes, buffers, loss_of, batch_of) = CONFIGS[model], MODELS[model]
    params = {name: curves.initial_value(name, shape).to(dtype).requires_grad_() for name, shape in shapes(cfg).items()}
    running = Running({name: curves.initial_value(name, shape).to(dtype) for name, shape in buffers(cfg).items()})
    groups = [dict(params=[p for p in params.values() if p.dim() >= 2], weight_decay=curves.WEIGHT_DECAY),
              dict(params=[p for p in params.values() if p.dim() < 2], weight_decay=0.0)]
    adamw = torch.optim.AdamW(groups, lr=curves.PEAK_LR, betas=curves.BETAS, eps=curves.ADAM_EPS, foreach=False)
    curve = {"loss": [], "grad_norm": []}
    for step in range(curves.STEPS):
        inputs, targets = batch_of(step, cfg)
        adamw.zero_grad()
        loss = loss_of(params, running, inputs.to(dtype) if inputs.is_floating_point() else inputs, targets, cfg)
        loss.backward()
        running = Running({name: value.detach() for name, value in running.next.items()})
        if step == 0:
            curve["grad_norms_step0"] = {name: p.grad.norm().item() for name, p in params.items()}
        grad_norm = torch.nn.utils.clip_grad_norm_(params.values(), curves.CLIP, foreach=False)
        curve["loss"].append(loss.item())
        curve["grad_norm"].append(grad_norm.item())
        for group in adamw.param_groups:
            group["lr"] = curves.learning_rate(step)
        adamw.step()
    curve["buffers_last"] = {name: value.flatten().tolist() for name, value in running.values.items()}
    return curve


COMMENT = (
    "Made by make_models.py; README.md describes the fields and the formulas. Losses and gradient norms (before "
    "clipping) are those before the update of their step; buffers_last are those after the last step, in float64."
)


def golden(model):
    cfg, (shapes, buffers, _, batch_of) = CONFIGS[model], MODELS[model]
    float64, float32 = train(model, torch.float64), train(model, torch.float32)
    every = shapes(cfg) | buffers(cfg)
    ends = {name: curves.initial_value(name, shape).flatten() for name, shape in every.items()}
    return {
        "comment": COMMENT,
        "made_with": {"torch": torch.__version__, "numpy": np.__version__},
        "model": model,
        "config": cfg,
        "steps": curves.STEPS,
        "parameters": {name: dict(shape=shape, first=ends[name][0].item(), last=ends[name][-1].item())
                       for name, shape in every.items()},
        "lr": [curves.learning_rate(step) for step in range(curves.STEPS)],
        "float64": {field: float64[field] for field in ("loss", "grad_norm")},
        "float32": {field: float32[field] for field in ("loss", "grad_norm")},
        "float32_distance": curves.distance(float32, float64),
        "grad_norms_step0": float64["grad_norms_step0"],
        "buffers_last": float64["buffers_last"],
    }


def main():
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    torch.set_num_threads(1)
    for model in sys.argv[2:] or MODELS:
        content = golden(model)
        curves.write(directory / f"{model}.json", content)
        start, *_, last = content["float64"]["loss"]
        print(f"{model}: loss {start:.6f} to {last:.6f}; off by {content['float32_distance']['loss']:.2g} in float32")


if __name__ == "__main__":
    main()
