-- The model of the golden curve recurrent.json, as make_models.py has it: an LSTM, a GRU that runs backwards, and a GRU
-- that begins with the last state of the LSTM. Batches come from the test.
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { micro = 1, precision = "fp64", steps = 50 }

local embed, norm = nn.embedding(61, 12), nn.rms_norm(16)
local lstm, back, gru = nn.lstm(12, 16), nn.gru(16, 16, { reverse = true }), nn.gru(16, 16)
local head = nn.head(16, 61)

local children = { embed = embed, lstm = lstm, back = back, gru = gru, norm = norm, head = head }
local model = nn.module("recurrent", children, function(tokens)
  local x, last = lstm(embed(tokens))
  x = x + back(x)
  x = x + gru(x, { h = last.h })
  return head(norm(x))
end)

local feed = { dtype = "i32", dims = { 4, 12 } }
return sgl.job {
  model = model,
  loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.batches { feeds = { tokens = feed, targets = feed }, next = function() return nil end },
  optim = sgl.optim.adamw {
    lr = sgl.optim.warmup_cosine { peak = 3e-3, warmup = 10, final = 3e-4 }, weight_decay = 0.1, clip = 1.0,
  },
  plan = sgl.plan { micro = cfg.micro, precision = cfg.precision },
  steps = cfg.steps,
}
