-- Rows of many lengths: which of eight letters stands most often in a row of 3 to 60 of them. A batch is padded to the
-- smallest of four buckets that holds it; each has a program of its own, and the padding changes no number
-- (docs/dims.md).
--     sgl train examples/majority.lua
--     sgl memory examples/majority.lua
local sgl = require "sgl"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data

local cfg = sgl.config {
  letters = 8, dim = 32, heads = 4, layers = 1, batch = 32, lr = 3e-3, warmup = 20, steps = 300, micro = 1,
  longest = 60,
}
local seq = sgl.dim("seq", { buckets = { 8, 16, 32, 64 } })

local function block()
  local attn = nn.attention { dim = cfg.dim, heads = cfg.heads, causal = false } -- takes the dim's mask by itself
  local ffn, norm1, norm2 = nn.swiglu(cfg.dim, 2 * cfg.dim), nn.rms_norm(cfg.dim), nn.rms_norm(cfg.dim)
  return nn.module("block", { attn = attn, ffn = ffn, norm1 = norm1, norm2 = norm2 }, function(x)
    x = x + attn(norm1(x))
    return x + ffn(norm2(x))
  end)
end

local embed, blocks = nn.embedding(cfg.letters, cfg.dim), nn.stack(cfg.layers, block)
local norm, head = nn.rms_norm(cfg.dim), nn.linear(cfg.dim, cfg.letters, { bias = true })

local model = nn.module("majority", { embed = embed, blocks = blocks, norm = norm, head = head }, function(letters)
  local x = norm(blocks(embed(letters)))
  local sum = sgl.select(seq:mask():unsqueeze(-1), x, 0):sum(1) -- x:mean(1) would count the padding: an error
  return head(sum / sgl.cast(seq:lengths(), x:dtype()):unsqueeze(1))
end)

-- One letter is drawn as often as all others together; all by the cursor alone, so that a run can be resumed.
local function rows(cursor)
  local x = cursor * 48271 + 11
  local function below(n)
    x = (x * 48271 + 7) % 2147483647
    return x // 64 % n
  end
  local letters, answers, most = {}, {}, 3 + below(cfg.longest - 2)
  for r = 1, cfg.batch do
    local often, counts, best = below(cfg.letters), {}, 0
    letters[r] = {}
    for i = 1, 3 + below(most - 2) do
      letters[r][i] = below(2) == 0 and often or below(cfg.letters)
      counts[letters[r][i]] = (counts[letters[r][i]] or 0) + 1
    end
    for letter = 1, cfg.letters - 1 do
      if (counts[letter] or 0) > (counts[best] or 0) then best = letter end
    end
    answers[r] = best
  end
  return { letters = letters, answer = answers }
end

return sgl.job {
  model = model, steps = cfg.steps, eval_batches = 8,
  loss = function(batch)
    local logits = model(batch.letters)
    sgl.log("accuracy", sgl.equal(logits:argmax(-1), batch.answer):cast("f32"):mean())
    return nn.cross_entropy(logits, batch.answer)
  end,
  data = data.batches {
    feeds = {
      letters = { dtype = "i32", dims = { cfg.batch, seq } },
      answer = { dtype = "i32", dims = { cfg.batch } },
    },
    next = function(cursor, is_eval) return rows(cursor + (is_eval and 1000000 or 0)) end,
  },
  optim = optim.adamw { lr = optim.warmup_cosine { peak = cfg.lr, warmup = cfg.warmup }, clip = 1.0 },
  plan = sgl.plan { micro = cfg.micro },
}
