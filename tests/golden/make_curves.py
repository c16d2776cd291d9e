#!/usr/bin/env python3
"""Makes the golden training curves llama.json, gpt2.json and variants.json, with PyTorch as the independent judge.

Run:    python3 -m venv ../venv && ../venv/bin/pip install torch numpy
        ../venv/bin/python tests/golden/make_curves.py [DIRECTORY [MODEL...]]     (default: beside this file, all)
Writes: DIRECTORY/MODEL.json; their fields are listed in README.md.
In:     nothing. Weights and tokens come from splitmix64 and fnv1a64, which C and Lua can evaluate bit for bit alike.
Odd:    everything is written out plainly rather than taken from torch.nn, so that it can be read beside our own ops;
        before a file is written the pieces are compared with torch.nn.functional, and the whole curve with itself
        in micro-batches. One thread, so that a second run on the same machine writes the same bytes.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F

STEPS, WARMUP, PEAK_LR, MIN_LR_RATIO = 50, 10, 3e-3, 0.1
BETAS, ADAM_EPS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
IGNORED = -1

CONFIGS = {
    "llama": dict(vocab=67, dim=48, layers=3, heads=6, kv_heads=2, head_dim=8, ffn=80, seq=24, batch=4,
                  norm_eps=1e-5, rope_theta=10000.0),
    "gpt2": dict(vocab=61, dim=40, layers=3, heads=4, kv_heads=4, head_dim=10, ffn=160, seq=20, batch=5,
                 norm_eps=1e-5),
    # Attention's other forms: padding, packed documents, a window, normed queries and keys, scaled rope, a context.
    "variants": dict(vocab=61, dim=48, heads=6, kv_heads=2, head_dim=8, seq=24, batch=4, norm_eps=1e-5, window=7,
                     rope=dict(theta=10000.0, factor=8.0, original_context=64, low_freq_factor=1.0,
                               high_freq_factor=4.0)),
}

# --- Numbers by formula ------------------------------------------------------------------------------------------


def splitmix64(x):
    """One output of splitmix64 (Steele, Lea, Flood 2014) for the state x, elementwise on uint64 (which wraps)."""
    z = np.asarray(x, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def fnv1a64(name):
    """FNV-1a, 64 bits, over the bytes of name."""
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def initial_value(name, shape):
    """The float64 start of a parameter: 0.05 u for matrices and biases, 1 + 0.05 u for norm gains, u in [-1, 1)."""
    counter = np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(fnv1a64(name))
    fraction = (splitmix64(counter) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    value = 0.05 * (2.0 * fraction - 1.0)
    if len(shape) == 1 and name.endswith("weight"):  # the only vectors called weight are the gains of norms
        value = 1.0 + value
    return torch.from_numpy(value.reshape(shape))


def batch_of_step(step, cfg):
    """Inputs and targets [batch, seq] of a step; target t is token t + 1, or IGNORED for about one in seven."""
    row = np.uint64(1000003 * step) + np.uint64(1009) * np.arange(cfg["batch"], dtype=np.uint64)[:, None]
    place = row + np.arange(cfg["seq"] + 1, dtype=np.uint64)
    tokens = (splitmix64(place + np.uint64(12345)) % np.uint64(cfg["vocab"])).astype(np.int64)
    ignored = splitmix64(place[:, :-1] + np.uint64(777)) % np.uint64(7) == 0
    return torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(np.where(ignored, IGNORED, tokens[:, 1:]))


def learning_rate(step):
    """Linear warm-up to the peak, then a cosine down to a tenth of it at step STEPS (which is not run)."""
    if step < WARMUP:
        return PEAK_LR * (step + 1) / WARMUP
    min_lr, q = MIN_LR_RATIO * PEAK_LR, (step - WARMUP) / (STEPS - WARMUP)
    return min_lr + 0.5 * (PEAK_LR - min_lr) * (1.0 + math.cos(math.pi * q))


# --- Pieces of the models ----------------------------------------------------------------------------------------


def rms_norm(x, gain, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gain


def layer_norm(x, gain, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + eps) * gain + bias


def gelu_tanh(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3))))


def silu(x):
    return x * torch.sigmoid(x)


def rope(x, theta):
    """x [batch, heads, seq, head_dim]: element i turns with element i + head_dim/2, by position * theta^(-2i/head_dim)
    radians. Angles are computed in the dtype of x, as Hugging Face computes them."""
    seq, head_dim = x.shape[-2:]
    half = head_dim // 2
    frequency = theta ** (-2.0 * torch.arange(half, dtype=x.dtype) / head_dim)
    angle = torch.arange(seq, dtype=x.dtype)[:, None] * frequency
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def causal_attention(q, k, v):
    """q [batch, heads, seq, head_dim], k and v [batch, kv_heads, ...]: query head h reads h // (heads / kv_heads)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(future, -math.inf), -1) @ v


def split_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x):
    return x.transpose(1, 2).flatten(-2)


def cross_entropy_sum(logits, targets):
    """The sum of the losses of the valid targets."""
    loss = torch.logsumexp(logits, -1) - logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return loss[targets != IGNORED].sum()


# --- The two models: the shapes of their parameters by path name, and their logits ---------------------------------


def llama_shapes(cfg):
    dim, ffn, wide, narrow = cfg["dim"], cfg["ffn"], cfg["heads"] * cfg["head_dim"], cfg["kv_heads"] * cfg["head_dim"]
    shapes = {"embed.weight": (cfg["vocab"], dim)}
    for n in range(cfg["layers"]):
        block = f"blocks.{n}."
        shapes |= {block + "norm1.weight": (dim,), block + "attn.wq": (wide, dim), block + "attn.wk": (narrow, dim),
                   block + "attn.wv": (narrow, dim), block + "attn.wo": (dim, wide), block + "norm2.weight": (dim,),
                   block + "ffn.gate": (ffn, dim), block + "ffn.up": (ffn, dim), block + "ffn.down": (dim, ffn)}
    return shapes | {"norm.weight": (dim,)}


def llama_logits(p, tokens, cfg):
    eps, theta = cfg["norm_eps"], cfg["rope_theta"]
    x = p["embed.weight"][tokens]
    for n in range(cfg["layers"]):
        block = f"blocks.{n}."
        h = rms_norm(x, p[block + "norm1.weight"], eps)
        q = rope(split_heads(h @ p[block + "attn.wq"].T, cfg["heads"]), theta)
        k = rope(split_heads(h @ p[block + "attn.wk"].T, cfg["kv_heads"]), theta)
        v = split_heads(h @ p[block + "attn.wv"].T, cfg["kv_heads"])
        x = x + merge_heads(causal_attention(q, k, v)) @ p[block + "attn.wo"].T
        h = rms_norm(x, p[block + "norm2.weight"], eps)
        h = silu(h @ p[block + "ffn.gate"].T) * (h @ p[block + "ffn.up"].T)
        x = x + h @ p[block + "ffn.down"].T
    return rms_norm(x, p["norm.weight"], eps) @ p["embed.weight"].T


def gpt2_shapes(cfg):
    dim, ffn = cfg["dim"], cfg["ffn"]
    shapes = {"wte.weight": (cfg["vocab"], dim), "wpe.weight": (cfg["seq"], dim)}
    for n in range(cfg["layers"]):
        block = f"blocks.{n}."
        shapes |= {block + "norm1.weight": (dim,), block + "norm1.bias": (dim,)}
        for part in "qkvo":
            shapes |= {block + "attn.w" + part: (dim, dim), block + "attn.b" + part: (dim,)}
        shapes |= {block + "norm2.weight": (dim,), block + "norm2.bias": (dim,),
                   block + "mlp.up.weight": (ffn, dim), block + "mlp.up.bias": (ffn,),
                   block + "mlp.down.weight": (dim, ffn), block + "mlp.down.bias": (dim,)}
    return shapes | {"norm.weight": (dim,), "norm.bias": (dim,)}


def gpt2_logits(p, tokens, cfg):
    eps = cfg["norm_eps"]
    x = p["wte.weight"][tokens] + p["wpe.weight"][: tokens.shape[1]]
    for n in range(cfg["layers"]):
        block = f"blocks.{n}."
        h = layer_norm(x, p[block + "norm1.weight"], p[block + "norm1.bias"], eps)
        q, k, v = (split_heads(h @ p[block + "attn.w" + part].T + p[block + "attn.b" + part], cfg["heads"])
                   for part in "qkv")
        x = x + merge_heads(causal_attention(q, k, v)) @ p[block + "attn.wo"].T + p[block + "attn.bo"]
        h = layer_norm(x, p[block + "norm2.weight"], p[block + "norm2.bias"], eps)
        h = gelu_tanh(h @ p[block + "mlp.up.weight"].T + p[block + "mlp.up.bias"])
        x = x + h @ p[block + "mlp.down.weight"].T + p[block + "mlp.down.bias"]
    return layer_norm(x, p["norm.weight"], p["norm.bias"], eps) @ p["wte.weight"].T


def variants_shapes(cfg):
    dim, wide, narrow = cfg["dim"], cfg["heads"] * cfg["head_dim"], cfg["kv_heads"] * cfg["head_dim"]
    shapes = {"embed.weight": (cfg["vocab"], dim)}
    for part in "qkvo":
        shapes |= {"encoder.w" + part: (wide, dim), "encoder.b" + part: (wide,)}
    for name in ("own", "cross"):
        shapes |= {name + ".wq": (wide, dim), name + ".wk": (narrow, dim), name + ".wv": (narrow, dim),
                   name + ".wo": (dim, wide)}
    shapes |= {"own.q_norm.weight": (cfg["head_dim"],), "own.k_norm.weight": (cfg["head_dim"],)}
    return shapes | {name + ".weight": (dim,) for name in ("norm1", "norm2", "norm3", "norm")}


def scaled_rope(x, positions, rope):
    """x [batch, heads, seq, head_dim] turned by positions [batch, seq]; frequencies as `apply_scaling` of Meta's
    llama-models has them, written in wavelengths."""
    half = x.shape[-1] // 2
    frequency = rope["theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    wavelength = 2 * math.pi / frequency
    longest = rope["original_context"] / rope["low_freq_factor"]
    shortest = rope["original_context"] / rope["high_freq_factor"]
    smooth = (rope["original_context"] / wavelength - rope["low_freq_factor"]) / (
        rope["high_freq_factor"] - rope["low_freq_factor"])
    mixed = (1 - smooth) * frequency / rope["factor"] + smooth * frequency
    frequency = torch.where(wavelength < shortest, frequency,
                            torch.where(wavelength > longest, frequency / rope["factor"], mixed))
    angle = (positions[:, None, :, None].to(torch.float64) * frequency).to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


def attend(q, k, v, visible):
    """PyTorch's own attention under a mask bool [batch, 1, queries, keys] in which every query sees some key."""
    return merge_heads(F.scaled_dot_product_attention(q, k, v, attn_mask=visible, enable_gqa=True))


def variants_logits(p, tokens, cfg):
    eps, heads, kv_heads = cfg["norm_eps"], cfg["heads"], cfg["kv_heads"]
    place = torch.arange(tokens.shape[1])
    ends = (tokens < 6).long()
    documents = ends.cumsum(1) - ends
    is_real = tokens % 5 != 2
    x = p["embed.weight"][tokens]

    h = rms_norm(x, p["norm1.weight"], eps)
    q, k, v = (split_heads(h @ p["encoder.w" + part].T + p["encoder.b" + part], heads) for part in "qkv")
    seen = attend(q, k, v, is_real[:, None, None, :].expand(-1, 1, len(place), -1))
    seen = seen * is_real[:, :, None]  # padding sees nothing
    context = x + seen @ p["encoder.wo"].T + p["encoder.bo"]

    h = rms_norm(x, p["norm2.weight"], eps)
    q, k, v = (split_heads(h @ p["own.w" + part].T, n) for part, n in (("q", heads), ("k", kv_heads), ("v", kv_heads)))
    q, k = rms_norm(q, p["own.q_norm.weight"], eps), rms_norm(k, p["own.k_norm.weight"], eps)
    first = (documents[:, :, None] == documents[:, None, :]).int().argmax(-1)  # of each one's document
    q, k = scaled_rope(q, place - first, cfg["rope"]), scaled_rope(k, place - first, cfg["rope"])
    back = place[:, None] - place
    near = (back >= 0) & (back < cfg["window"])
    visible = near & (documents[:, :, None] == documents[:, None, :])
    x = x + attend(q, k, v, visible[:, None]) @ p["own.wo"].T

    h = rms_norm(x, p["norm3.weight"], eps)
    q = split_heads(h @ p["cross.wq"].T, heads)
    k, v = (split_heads(context @ p["cross.w" + part].T, kv_heads) for part in "kv")
    x = x + attend(q, k, v, is_real[:, None, None, :].expand(-1, 1, len(place), -1)) @ p["cross.wo"].T
    return rms_norm(x, p["norm.weight"], eps) @ p["embed.weight"].T


MODELS = {"llama": (llama_shapes, llama_logits), "gpt2": (gpt2_shapes, gpt2_logits),
          "variants": (variants_shapes, variants_logits)}

# --- Training ----------------------------------------------------------------------------------------------------


def train(model, dtype, micro=1):
    """Trains STEPS steps, each batch in `micro` micro-batches (rows in order, larger parts first). Returns the curve:
    per step the loss and the gradient norm before clipping, both before the update, and the parameters' gradient
    norms of step 0."""
    cfg, (shapes, logits) = CONFIGS[model], MODELS[model]
    params = {name: initial_value(name, shape).to(dtype).requires_grad_() for name, shape in shapes(cfg).items()}
    groups = [dict(params=[p for p in params.values() if p.dim() >= 2], weight_decay=WEIGHT_DECAY),
              dict(params=[p for p in params.values() if p.dim() < 2], weight_decay=0.0)]
    adamw = torch.optim.AdamW(groups, lr=PEAK_LR, betas=BETAS, eps=ADAM_EPS, foreach=False)
    curve = {"loss": [], "grad_norm": []}
    for step in range(STEPS):
        inputs, targets = batch_of_step(step, cfg)
        valid = int((targets != IGNORED).sum())
        adamw.zero_grad()
        loss = torch.zeros((), dtype=dtype)
        for some_inputs, some_targets in zip(inputs.tensor_split(micro), targets.tensor_split(micro)):
            part = cross_entropy_sum(logits(params, some_inputs, cfg), some_targets) / valid
            part.backward()
            loss += part.detach()
        if step == 0:
            curve["grad_norms_step0"] = {name: p.grad.norm().item() for name, p in params.items()}
        grad_norm = torch.nn.utils.clip_grad_norm_(params.values(), CLIP, foreach=False)
        curve["loss"].append(loss.item())
        curve["grad_norm"].append(grad_norm.item())
        for group in adamw.param_groups:
            group["lr"] = learning_rate(step)
        adamw.step()
    return curve


def distance(curve, reference):
    """The largest relative distance of a curve's losses and gradient norms from the reference, over all steps."""
    return {field: max(abs(a - b) / abs(b) for a, b in zip(curve[field], reference[field]))
            for field in ("loss", "grad_norm")}


def require(what, got, limit):
    if not got <= limit:
        sys.exit(f"make_curves: {what}: off by {got:.3g}, at most {limit:.3g} expected; nothing more is written")


def check_pieces():
    """Compares what is written out above with published values and with torch.nn.functional."""
    if splitmix64([0])[0] != 0xE220A8397B1DCDAF or fnv1a64("a") != 0xAF63DC4C8601EC8C:
        sys.exit("make_curves: splitmix64(0) or fnv1a64('a') is not its published value")
    generator = torch.Generator().manual_seed(1)

    def random(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    x, gain, bias = random(5, 48), random(48), random(48)
    q, k, v = random(2, 6, 9, 8), random(2, 2, 9, 8), random(2, 2, 9, 8)
    targets = torch.tensor([3, IGNORED, 0, 47, IGNORED])
    pairs = {
        "rms_norm": (rms_norm(x, gain, 1e-5), F.rms_norm(x, (48,), gain, 1e-5)),
        "layer_norm": (layer_norm(x, gain, bias, 1e-5), F.layer_norm(x, (48,), gain, bias, 1e-5)),
        "gelu_tanh": (gelu_tanh(x), F.gelu(x, approximate="tanh")),
        "silu": (silu(x), F.silu(x)),
        "causal_attention": (causal_attention(q, k, v),
                             F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)),
        "cross_entropy_sum": (cross_entropy_sum(x, targets),
                              F.cross_entropy(x, targets, ignore_index=IGNORED, reduction="sum")),
    }
    for name, (ours, theirs) in pairs.items():
        require(name, (ours - theirs).abs().max().item(), 1e-13)


# --- The file ----------------------------------------------------------------------------------------------------

COMMENT = (
    "Made by make_curves.py; README.md describes the fields and the formulas. Losses and gradient norms (before "
    "clipping) are those before the update of their step. The same batches seen as 2 micro-batches must give the same "
    "float64 numbers, because the loss is a sum over valid targets divided by their number in the whole batch: there "
    "is no second file for that, micro2_distance says how far PyTorch's own float64 curve moved."
)


def golden(model):
    cfg, (shapes, _) = CONFIGS[model], MODELS[model]
    float64, float32 = train(model, torch.float64), train(model, torch.float32)
    micro = distance(train(model, torch.float64, micro=2), float64)
    for field, moved in micro.items():
        require(f"{model}: {field} in 2 micro-batches", moved, 1e-11)
    inputs, targets = batch_of_step(0, cfg)
    first_last = {name: initial_value(name, shape).flatten() for name, shape in shapes(cfg).items()}
    return {
        "comment": COMMENT,
        "made_with": {"torch": torch.__version__, "numpy": np.__version__},
        "model": model,
        "config": cfg,
        "optimizer": dict(name="adamw", beta1=BETAS[0], beta2=BETAS[1], eps=ADAM_EPS, weight_decay=WEIGHT_DECAY,
                          clip=CLIP, peak_lr=PEAK_LR, min_lr=MIN_LR_RATIO * PEAK_LR, warmup=WARMUP),
        "steps": STEPS,
        "parameters": {name: dict(shape=shape, first=first_last[name][0].item(), last=first_last[name][-1].item())
                       for name, shape in shapes(cfg).items()},
        "step0_row0": {"tokens": inputs[0].tolist(), "targets": targets[0].tolist()},
        "lr": [learning_rate(step) for step in range(STEPS)],
        "valid": [int((batch_of_step(step, cfg)[1] != IGNORED).sum()) for step in range(STEPS)],
        "float64": {field: float64[field] for field in ("loss", "grad_norm")},
        "float32": {field: float32[field] for field in ("loss", "grad_norm")},
        "float32_distance": distance(float32, float64),
        "micro2_distance": micro,
        "grad_norms_step0": float64["grad_norms_step0"],
    }


def write(path, content):
    """One line per field and per entry of a table, so that a change shows as a short diff. Python prints a double with
    as many digits, 17 at most, as it takes to read the same double back."""
    lines = []
    for key, value in content.items():
        if isinstance(value, dict) and key in ("parameters", "grad_norms_step0", "float64", "float32"):
            entries = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in value.items())
            lines.append(f"{json.dumps(key)}: {{\n{entries}\n}}")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)}")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    directory = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parent
    torch.set_num_threads(1)
    check_pieces()
    for model in sys.argv[2:] or MODELS:
        content = golden(model)
        write(directory / f"{model}.json", content)
        first, *_, last = content["float64"]["loss"]
        float32, micro = content["float32_distance"]["loss"], content["micro2_distance"]["loss"]
        print(f"{model}: loss {first:.6f} to {last:.6f}; off by {float32:.2g} in float32, {micro:.2g} in micro-batches")


if __name__ == "__main__":
    main()
