--- optim: optimizers and learning-rate schedules, one per file, loaded when first used.
--- Comes in: a name. Goes out: its constructor.
--- Every optimizer has these options beside its own. A pattern is a path in which '*' stands for any characters; where
--- several match a parameter the one with the most other characters holds.
---   lr            a number or a schedule
---   lr_scale      shares of the rate by patterns of paths: { ["embed.*"] = 0.1 }
---   weight_decay  a number, for parameters of 2 or more dimensions or those that decays(path, dims) chooses; or
---                 rates by patterns: { ["*.wq"] = 0.1 }, where what matches none does not decay
---   clip          the largest global norm of the gradients
---   freeze        patterns of what does not learn: no gradient is computed for it and no state kept
---   ema           averages ema * average + (1 - ema) * p of the parameters, kept as states "<name>.ema/<path>"; the
---                 job's ema = true evaluates with them
---   name          the prefix of its states

local core = require "sgl.core"
local names_of = require "sgl.names"

local where = {
  adamw = "sgl.optim.adamw", sgd = "sgl.optim.sgd", lion = "sgl.optim.lion", muon = "sgl.optim.muon",
  adafactor = "sgl.optim.adafactor",
  constant = "sgl.optim.schedule", linear = "sgl.optim.schedule", cosine = "sgl.optim.schedule",
  warmup_cosine = "sgl.optim.schedule", wsd = "sgl.optim.schedule",
}

---@class sgl.optim
local optim = {}

local names = names_of.sorted(where)

return setmetatable(optim, {
  names = names, -- for completion
  __index = function(self, name)
    local file = where[name]
    if not file then
      core.error(("optim has no '%s'%s"):format(tostring(name), names_of.hint(name, names)))
    end
    local found = require(file)
    if file == "sgl.optim.schedule" then found = found[name] end
    rawset(self, name, found)
    core.exact(self, "optim")
    return rawget(self, name)
  end,
  __tostring = function() return "sgl.optim" end,
})
