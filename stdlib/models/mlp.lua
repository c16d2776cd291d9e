--- models.mlp: layers of linear and activation, and a linear one at the end.
--- Comes in: x [n, ...], whose dimensions after the first become one of `inputs` numbers. Goes out: logits [n,
--- classes].

local activation_of = require "sgl.nn.activation"
local check = require "sgl.check"
local nn = require "sgl.nn"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

---@param cfg { inputs: integer, hidden: integer, layers: integer, classes: integer, activation: string?, dropout: number? } layers: those with an activation; activation: default relu
---@return sgl.module
return function(cfg)
  cfg = check.fields("models.mlp", cfg, {
    inputs = "size", hidden = "size", layers = "count", classes = "size", activation = "text?", dropout = "share?",
  })
  local activation = activation_of("models.mlp", cfg.activation or "relu")
  local drop, layers, width = nn.dropout(cfg.dropout or 0), {}, cfg.inputs
  for i = 1, cfg.layers do -- first values by He et al., arXiv:1502.01852
    layers[i] = nn.linear(width, cfg.hidden, { bias = true, init = nn.init.normal((2 / width) ^ 0.5) })
    width = cfg.hidden
  end
  local head = nn.linear(width, cfg.classes, { bias = true })
  return nn.module("mlp", { layers = layers, head = head, drop = drop }, function(x)
    x = ops.cast(x, trace.dtype())
    if ops.rank(x) > 2 then x = ops.flatten(x, 1) end
    for _, layer in ipairs(layers) do x = drop(activation(layer(x))) end
    return head(x)
  end)
end
