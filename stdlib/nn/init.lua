--- nn: layers and losses, one per file, loaded when first used.
--- Comes in: a name. Goes out: its constructor. `nn.init` holds the ways to make first values.

local core = require "sgl.core"
local names_of = require "sgl.names"
local base = require "sgl.nn.module"

local layers = {
  "linear", "embedding", "rms_norm", "layer_norm", "attention", "swiglu", "mlp", "dropout", "stack", "position",
  "rope", "geglu", "group_norm", "batch_norm", "moe", "auxiliary_loss", "lstm", "gru",
  "freeze", "cache",
}
local several = { -- files with more than one layer
  loss = { "cross_entropy", "tied_head", "head" },
  conv = { "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d" },
  pool = { "max_pool", "avg_pool" },
}

---@class sgl.nn
local nn = { module = base.module, parameter = base.parameter, buffer = base.buffer, init = require "sgl.nn.initial",
  recompute = base.recompute }

local where = {}
for _, name in ipairs(layers) do where[name] = "sgl.nn." .. name end
for file, names in pairs(several) do
  for _, name in ipairs(names) do where[name] = "sgl.nn." .. file end
end

local names = { "module", "parameter", "buffer", "init", "recompute" }
for known in pairs(where) do names[#names + 1] = known end
table.sort(names)

return setmetatable(nn, {
  names = names, -- for completion
  __index = function(self, name)
    local file = where[name]
    if not file then
      local op = type(name) == "string" and name:lower()
      if op and not where[op] and rawget(require "sgl.ops", op) then
        core.error(("nn has no '%s'; it is a function of tensors, sgl.%s"):format(name, op))
      end
      core.error(("nn has no '%s'%s"):format(tostring(name), names_of.hint(name, names)))
    end
    local found = require(file)
    if several[file:match "[^.]+$"] then found = found[name] end
    rawset(self, name, found)
    core.exact(self, "nn")
    return rawget(self, name)
  end,
  __tostring = function() return "sgl.nn" end,
})
