--- nn.auxiliary_loss: what layers want in the loss beside its own mean, such as the balance of nn.moe.
--- Comes in: nothing; the layers called so far in this trace. Goes out: the sum of what they owe while training, the
--- number 0 otherwise: an evaluation tells the mean alone.

local trace = require "sgl.trace"

---@return sgl.tensor|number rank 0
return function()
  local sum = 0
  for _, owed in ipairs(trace.settle()) do sum = owed.value + sum end
  return sum
end
