--- nn.embedding: a row of numbers for each token.
--- Comes in: integer tokens [...]. Goes out: [..., dim]. Weight [vocab, dim]; nn.tied_head uses the same weight as
--- the head.

local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

---@param vocab integer
---@param dim integer
---@param options { init: function? }? default: normal with std 0.02
---@return sgl.module
return function(vocab, dim, options)
  check.value("embedding", "vocab", "size", vocab)
  check.value("embedding", "dim", "size", dim)
  options = check.options("embedding", options, { init = "call?" })
  local weight = base.parameter { vocab, dim, init = options.init or initial.normal(0.02), tp = 0 }
  weight.is_table = true
  return base.module(("embedding(%d, %d)"):format(vocab, dim), { weight = weight }, function(tokens)
    trace.bound("embedding", tokens, vocab)
    return ops.gather(weight(), tokens)
  end)
end
