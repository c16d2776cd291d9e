--- models: whole models, one per file, loaded when first used.
--- Comes in: a name. Goes out: a function from a configuration to a module.

local core = require "sgl.core"
local names_of = require "sgl.names"

local names = { "convnet", "gpt2", "llama", "lstm", "mlp", "moe", "vit" }

---@class sgl.models
local models = {}

return setmetatable(models, {
  names = names, -- for completion
  __index = function(self, name)
    for _, known in ipairs(names) do
      if known == name then
        local found = require("sgl.models." .. name)
        rawset(self, name, found)
        core.exact(self, "models")
        return rawget(self, name)
      end
    end
    core.error(("models has no '%s'%s"):format(tostring(name), names_of.hint(name, names)))
  end,
  __tostring = function() return "sgl.models" end,
})
