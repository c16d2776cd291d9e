"""bench_torch.py -- the peer of `scripts/bench cuda`: the same models in PyTorch, one process that trains in turns.

Comes in: options (which model, batch, what is narrow), and lines on stdin: "turn HEAT_S STEPS" trains HEAT_S seconds
unmeasured and STEPS measured steps, "end" ends. Goes out: one JSON object a line on stdout: first "ready" with the
seconds from the process's start to the end of the first step, then one per turn with the median step in ms, the losses
and the bytes allocated. The models are GPT-2 (Radford et al., 2019) and Llama (Touvron et al., 2023), as
examples/gpt2.lua and examples/llama.lua have them, with the best settings known: torch.compile, fused AdamW, one
product for q, k and v of GPT-2, scaled_dot_product_attention.
Odd invariant: with --weights the parameters are those of a checkpoint of sgl, by its names, so that losses compare.
"""

import argparse
import json
import os
import sys
import time

STARTED = float(os.environ.get("BENCH_STARTED", time.time()))

import torch  # noqa: E402: its import belongs to the start that is measured
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402


class GPT2Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, dim // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(dim, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(batch, length, dim))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embed, self.position = nn.Embedding(a.vocab, a.dim), nn.Embedding(a.seq, a.dim)
        self.blocks = nn.ModuleList(GPT2Block(a.dim, a.heads) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.dim)
        self.layers = a.layers

    def forward(self, tokens):
        x = self.embed(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.embed.weight)

    def names(self):
        """Of sgl's checkpoint, by the name here; a tuple is stacked."""
        yield "embed.weight", "wte.weight"
        yield "position.weight", "wpe.weight"
        for i in range(self.layers):
            here, there = f"blocks.{i}.", f"blocks.{i}."
            for norm in ("norm1", "norm2"):
                yield here + norm + ".weight", there + norm + ".weight"
                yield here + norm + ".bias", there + norm + ".bias"
            yield here + "qkv.weight", tuple(there + "attn.w" + part for part in "qkv")
            yield here + "qkv.bias", tuple(there + "attn.b" + part for part in "qkv")
            yield here + "out.weight", there + "attn.wo"
            yield here + "out.bias", there + "attn.bo"
            for part in ("up", "down"):
                yield here + part + ".weight", there + "mlp." + part + ".weight"
                yield here + part + ".bias", there + "mlp." + part + ".bias"
        yield "norm.weight", "norm.weight"
        yield "norm.bias", "norm.bias"


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


def turned(x, cos, sin):
    half = x.shape[-1] // 2
    wide = x.float()
    other = torch.cat((-wide[..., half:], wide[..., :half]), dim=-1)
    return (wide * cos + other * sin).type_as(x)


class LlamaBlock(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = a.heads, a.kv_heads, a.dim // a.heads
        kv = a.kv_heads * self.head_dim
        self.norm1, self.norm2 = RMSNorm(a.dim), RMSNorm(a.dim)
        self.wq, self.wo = nn.Linear(a.dim, a.dim, bias=False), nn.Linear(a.dim, a.dim, bias=False)
        self.wk, self.wv = nn.Linear(a.dim, kv, bias=False), nn.Linear(a.dim, kv, bias=False)
        self.gate, self.up = nn.Linear(a.dim, a.ffn, bias=False), nn.Linear(a.dim, a.ffn, bias=False)
        self.down = nn.Linear(a.ffn, a.dim, bias=False)

    def split(self, x, heads):
        return x.view(x.shape[0], x.shape[1], heads, self.head_dim).transpose(1, 2)

    def forward(self, x, cos, sin):
        y = self.norm1(x)
        q, k = self.split(self.wq(y), self.heads), self.split(self.wk(y), self.kv_heads)
        v = self.split(self.wv(y), self.kv_heads)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.wo(y.transpose(1, 2).contiguous().view(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embed = nn.Embedding(a.vocab, a.dim)
        self.blocks = nn.ModuleList(LlamaBlock(a) for _ in range(a.layers))
        self.norm = RMSNorm(a.dim)
        self.layers = a.layers
        head_dim = a.dim // a.heads
        frequency = 1.0 / (1e4 ** (torch.arange(0, head_dim, 2).float() / head_dim))
        angle = torch.outer(torch.arange(a.seq).float(), frequency)
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.linear(self.norm(x), self.embed.weight)

    def names(self):
        yield "embed.weight", "embed.weight"
        for i in range(self.layers):
            at = f"blocks.{i}."
            for norm in ("norm1", "norm2"):
                yield at + norm + ".weight", at + norm + ".weight"
            for part in ("wq", "wk", "wv", "wo"):
                yield at + part + ".weight", at + "attn." + part
            for part in ("gate", "up", "down"):
                yield at + part + ".weight", at + "ffn." + part
        yield "norm.weight", "norm.weight"


def read_safetensors(path):
    """Every f32 tensor of the file, by name (https://github.com/huggingface/safetensors, its format)."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        head = json.loads(file.read(length))
        body = bytearray(file.read())
    tensors = {}
    for name, told in head.items():
        if name == "__metadata__":
            continue
        if told["dtype"] != "F32":
            raise SystemExit(f"{path}: {name} is {told['dtype']}, not F32")
        begin, end = told["data_offsets"]
        tensors[name] = torch.frombuffer(body, dtype=torch.float32, count=(end - begin) // 4, offset=begin).view(told["shape"])
    return tensors


def take_weights(model, path):
    there, own = read_safetensors(path), dict(model.named_parameters())
    with torch.no_grad():
        for here, name in model.names():
            value = torch.cat([there[part] for part in name]) if isinstance(name, tuple) else there[name]
            if own[here].shape != value.shape:
                raise SystemExit(f"{path}: {name} is {list(value.shape)}, the model has {list(own[here].shape)}")
            own.pop(here).copy_(value)
    if own:
        raise SystemExit(f"{path}: nothing was found for {', '.join(own)}")


def begin_weights(model):
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            nn.init.normal_(parameter, 0.0, 0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)


class Run:
    def __init__(self, a):
        self.a = a
        torch.manual_seed(1337)
        torch.set_float32_matmul_precision("high")
        with torch.device("cuda"):
            self.model = (GPT2 if a.model == "gpt2" else Llama)(a)
        if a.weights:
            take_weights(self.model, a.weights)
        else:
            begin_weights(self.model)
        if a.params == "bf16":
            for parameter in self.model.parameters():
                parameter.data = parameter.data.bfloat16()
        self.parameters = list(self.model.parameters())
        groups = [
            {"params": [p for p in self.parameters if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in self.parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=a.lr, betas=(0.9, 0.95), eps=1e-8, fused=True)
        mode = None if a.compile in ("none", "default") else a.compile
        self.forward = self.loss_of if a.compile == "none" else torch.compile(self.loss_of, mode=mode)
        self.batches = self.read_tokens() if a.tokens else self.draw_tokens()
        self.taken = 0

    def draw_tokens(self):
        a, generator = self.a, torch.Generator().manual_seed(0)
        return [
            torch.randint(0, a.vocab, (a.batch, a.seq + 1), generator=generator).pin_memory() for _ in range(8)
        ]

    def read_tokens(self):
        """The one batch of a file: window i begins at token i * seq."""
        a = self.a
        with open(a.tokens, "rb") as file:
            data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint16 if a.vocab <= 65536 else torch.int32)
        rows = [data[i * a.seq : i * a.seq + a.seq + 1].long() for i in range(a.batch)]
        return [torch.stack(rows).pin_memory()]

    def loss_of(self, tokens, targets):
        logits = self.model(tokens)
        if self.a.params == "bf16":
            logits = logits.float()
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    def step(self):
        if self.a.compile == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        batch = self.batches[self.taken % len(self.batches)].to("cuda", non_blocking=True)
        self.taken += 1
        for group in self.optimizer.param_groups:
            if self.a.warmup:  # as optim.warmup_cosine within its warm-up
                group["lr"] = self.a.lr * min(1.0, self.taken / self.a.warmup)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.a.params == "fp32"):
            loss = self.forward(batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach().clone()

    def turn(self, heat_s, steps):
        losses, until = [], time.time() + heat_s
        while time.time() < until:
            losses.append(self.step())
            torch.cuda.synchronize()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
        marks[0].record()
        for i in range(steps):
            losses.append(self.step())
            marks[i + 1].record()
        torch.cuda.synchronize()
        times = sorted(marks[i].elapsed_time(marks[i + 1]) for i in range(steps))
        return {"ms": times[len(times) // 2], "losses": [loss.item() for loss in losses]}


def tell(**fields):
    fields["allocated"] = torch.cuda.max_memory_allocated()
    print(json.dumps(fields), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("gpt2", "llama"), required=True)
    for name in ("vocab", "dim", "layers", "heads", "kv-heads", "ffn", "seq", "batch", "warmup"):
        parser.add_argument("--" + name, type=int, default=0)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--params", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", default="default", help="none, default, reduce-overhead, ...")
    parser.add_argument("--weights", help="parameters.safetensors of a checkpoint of sgl")
    parser.add_argument("--tokens", help="a file whose windows are the one batch")
    run = Run(parser.parse_args())
    first = run.step().item()
    torch.cuda.synchronize()
    tell(ready=True, first_step_s=time.time() - STARTED, loss=first, version=torch.__version__)
    for line in sys.stdin:
        words = line.split()
        if not words or words[0] == "end":
            break
        tell(**run.turn(float(words[1]), int(words[2])))


main()
