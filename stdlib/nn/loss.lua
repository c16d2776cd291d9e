--- nn.cross_entropy, nn.tied_head, nn.head: the last product of a language model and its loss.
--- A head gives logits that are not multiplied out yet: hidden [..., dim] and weight [vocab, dim]. The loss takes them
--- so, in chunks of rows, and the whole logits never stand in memory; `:tensor()` multiplies them out.

local core = require "sgl.core"
local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

---@class sgl.logits
---@field hidden sgl.tensor [..., dim]
---@field weight sgl.tensor [vocab, dim]
local Logits = {}
Logits.__index = Logits

--- The logits as a tensor [..., vocab].
---@return sgl.tensor
function Logits:tensor() return ops.linear(self.hidden, self.weight) end
function Logits:__tostring() return ("logits of %s by %s"):format(tostring(self.hidden), tostring(self.weight)) end

local loss = {}

--- Logits by the embedding's own weight.
---@param embedding sgl.module an nn.embedding
---@param hidden sgl.tensor [..., dim]
---@return sgl.logits
function loss.tied_head(embedding, hidden)
  if not base.is_module(embedding) or not embedding.weight or #embedding.weight.dims ~= 2 then
    core.error("tied_head(embedding, hidden): the first argument must be an nn.embedding")
  end
  return setmetatable({ hidden = hidden, weight = embedding.weight() }, Logits)
end

--- A head with a weight of its own [vocab, dim].
---@param dim integer
---@param vocab integer
---@param options { init: function? }? default: normal with std 0.02
---@return sgl.module
function loss.head(dim, vocab, options)
  check.value("head", "dim", "size", dim)
  check.value("head", "vocab", "size", vocab)
  options = check.options("head", options, { init = "call?" })
  local weight = base.parameter { vocab, dim, init = options.init or initial.normal(0.02), tp = 0 }
  weight.is_table = true
  return base.module(("head(%d, %d)"):format(dim, vocab), { weight = weight }, function(hidden)
    return setmetatable({ hidden = hidden, weight = weight() }, Logits)
  end)
end

-- The losses, but infinite where a target is no class: a feed is looked at before the step, what a script has computed
-- (-100 for what is left out, where `ignore` is -1) would else be a loss among others. A division by 1 changes no bit.
local function within(losses, targets, vocab, ignore)
  local class = ops.cast(targets, "i64")
  local holds = ops.logical_or(ops.logical_and(ops.less(-1, class), ops.less(class, vocab)), ops.equal(class, ignore))
  return losses / ops.cast(holds, core.dtype(losses))
end

--- Mean loss in nats over the targets that are not `ignore`: a sum and a count. Returns both the mean and the count, so
--- that batches with different counts are weighted rightly. A target that is no class and not `ignore` is an error
--- where it is fed, and makes the loss infinite where the script has computed it.
---@param logits sgl.logits|sgl.tensor [..., vocab]
---@param targets sgl.tensor integer [...]
---@param options { ignore: integer? }? default -1
---@return sgl.tensor mean rank 0
---@return sgl.tensor count rank 0
function loss.cross_entropy(logits, targets, options)
  local ignore = check.options("cross_entropy", options, { ignore = "integer?" }).ignore or -1
  local losses
  if not core.is_tensor(targets) then
    core.error(("cross_entropy: the targets are a %s, they must be a tensor of integers"):format(type(targets)))
  end
  local vocab
  if getmetatable(logits) == Logits then
    losses = ops.linear_cross_entropy(logits.hidden, logits.weight, targets, ignore)
    vocab = ops.shape(logits.weight, 0)
  else
    losses = ops.cross_entropy(logits, targets, ignore)
    vocab = ops.shape(logits, -1)
  end
  if not trace.bound("cross_entropy", targets, vocab, ignore) then losses = within(losses, targets, vocab, ignore) end
  local count = ops.sum(ops.cast(ops.not_equal(targets, ignore), core.dtype(losses)))
  if trace.is_tracing() then trace.counted(targets, ignore, count) end
  return ops.sum(losses) / ops.maximum(count, 1), count
end

loss.Logits = Logits
return loss
