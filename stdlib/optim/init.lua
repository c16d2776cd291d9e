--- optim: optimizers and learning-rate schedules, one per file, loaded when first used.
--- Comes in: a name. Goes out: its constructor.

local core = require "sgl.core"
local names_of = require "sgl.names"

local where = {
  adamw = "sgl.optim.adamw", sgd = "sgl.optim.sgd",
  constant = "sgl.optim.schedule", linear = "sgl.optim.schedule", cosine = "sgl.optim.schedule",
  warmup_cosine = "sgl.optim.schedule", wsd = "sgl.optim.schedule",
}

---@class sgl.optim
local optim = {}

local names = {}
for known in pairs(where) do names[#names + 1] = known end
table.sort(names)

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
    return found
  end,
  __tostring = function() return "sgl.optim" end,
})
