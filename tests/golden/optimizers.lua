-- The model of optimizers.json, as make_optimizers.py has it: a table, two hidden matrices, a vector, 20 steps by the
-- optimizer that `kind` names. Weights, inputs and targets are sines, which any language evaluates alike.
local sgl = require "sgl"
local nn, optim = sgl.nn, sgl.optim
local cfg = sgl.config { kind = "adamw" }

local function sines(phase)
  return function(dims, dtype)
    local count = 1
    for _, extent in ipairs(dims) do count = count * extent end
    return (sgl.sin(sgl.iota({ count }, 0, dtype) * 0.7 + phase) * 0.5):reshape(dims)
  end
end

local embed = nn.embedding(6, 5, { init = sines(0.1) })
local up, down = nn.parameter { 8, 5, init = sines(0.2) }, nn.parameter { 3, 8, init = sines(0.3) }
local bias = nn.parameter { 8, init = sines(0.4) }
local model = nn.module("model", { embed = embed, up = up, bias = bias, down = down }, function(tokens)
  return sgl.linear(sgl.tanh(sgl.linear(embed(tokens), up(), bias())), down())
end)

local kinds = {
  adamw = optim.adamw {
    lr = 1e-2, weight_decay = 0.1, clip = 0.5, lr_scale = { ["embed.*"] = 0.1, ["*"] = 1, bias = 2 }, ema = 0.9,
  },
  frozen = optim.adamw { lr = 1e-2, weight_decay = { ["*"] = 0.2, bias = 0 }, freeze = { "embed.*" } },
  sgd = optim.sgd { lr = 1e-1, momentum = 0.9, nesterov = true, weight_decay = { down = 0.1 } },
  lion = optim.lion { lr = 1e-3, weight_decay = 0.3 },
  adafactor = optim.adafactor { lr = 0.2, weight_decay = { ["*"] = 0.05 } },
  muon = optim.muon { lr = 1e-2, weight_decay = 0.1, clip = 1 },
  muon_original = optim.muon { lr = 1e-2, scale = "original", nesterov = false, match = "up" },
}

local function next_batch(cursor)
  local tokens, targets = {}, {}
  for i = 0, 3 do tokens[i + 1] = (cursor * 5 + i * 3) % 5 end
  for i = 0, 11 do targets[i + 1] = math.sin(cursor + 1.3 * i) end
  return { tokens = tokens, targets = targets }
end

return sgl.job {
  model = model,
  loss = function(batch)
    local squares = sgl.zeros({}, "f64")
    for _, p in ipairs { embed.weight, up, down, bias } do squares = squares + p():square():sum() end
    sgl.log("squares", squares)
    return (model(batch.tokens) - batch.targets):square():mean()
  end,
  data = sgl.data.batches {
    feeds = { tokens = { dtype = "i32", dims = { 4 } }, targets = { dtype = "f64", dims = { 4, 3 } } },
    next = next_batch,
  },
  optim = kinds[cfg.kind], plan = sgl.plan { precision = "fp64" },
  steps = 20, eval_every = 1, eval_batches = 2, ema = cfg.kind == "adamw",
}
