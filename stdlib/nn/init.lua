--- nn: layers and losses, one per file, loaded when first used.
--- Comes in: a name. Goes out: its constructor. `nn.init` holds the ways to make first values.

local core = require "sgl.core"
local base = require "sgl.nn.module"

local layers = {
  "linear", "embedding", "rms_norm", "layer_norm", "attention", "swiglu", "mlp", "dropout", "stack", "position",
  "rope",
}
local losses = { "cross_entropy", "tied_head", "head" }

---@class sgl.nn
local nn = { module = base.module, parameter = base.parameter, init = require "sgl.nn.initial" }

local where = {}
for _, name in ipairs(layers) do where[name] = "sgl.nn." .. name end
for _, name in ipairs(losses) do where[name] = "sgl.nn.loss" end

return setmetatable(nn, {
  __index = function(self, name)
    local file = where[name]
    if not file then
      local names = { "module", "parameter", "init" }
      for known in pairs(where) do names[#names + 1] = known end
      table.sort(names)
      core.error(("nn has no '%s'%s"):format(tostring(name), core.hint(tostring(name), names)))
    end
    local found = require(file)
    if where[name] == "sgl.nn.loss" then found = found[name] end
    rawset(self, name, found)
    return found
  end,
  __tostring = function() return "sgl.nn" end,
})
