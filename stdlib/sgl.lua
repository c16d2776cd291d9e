--- sgl: what `require "sgl"` gives a script.
--- Comes in: nothing. Goes out: one table with every op (`sgl.exp(x)`, also `x:exp()`), the libraries `nn`, `optim`,
--- `data`, `models`, loaded when first used, and `config`, `plan`, `job`, `grad`, `log`, `state`, `update`, `custom`,
--- `scan`, `while_loop`, `cond`, `lora`. docs/language.md teaches all of it.
--- Axes and slices count from 0 and slices leave out their end, as in PyTorch; Lua lists count from 1, as in Lua.

local core = require "sgl.core"
local ops = require "sgl.ops"
local names_of = require "sgl.names"
local step = require "sgl.step"
local trace = require "sgl.trace"

---@class sgl: sgl.tensor every op is here too
---@field nn sgl.nn layers and losses
---@field optim sgl.optim optimizers and learning-rate schedules
---@field data sgl.data training data
---@field models sgl.models whole models
local sgl = {}

local libraries = { nn = true, optim = true, data = true, models = true }

local names = {
  "nn", "optim", "data", "models", "config", "plan", "job", "grad", "log", "state", "update", "custom", "scan",
  "while_loop", "cond", "lora", "dim",
}
for op in pairs(ops) do names[#names + 1] = op end
table.sort(names)

setmetatable(sgl, {
  names = names, -- for completion
  __index = function(self, name)
    local value = rawget(ops, name)
    if value == nil and libraries[name] then value = require("sgl." .. name) end
    if value == nil then
      for _, of_nn in ipairs(getmetatable(require "sgl.nn").names) do
        if name == of_nn then core.error(("sgl has no '%s'; here it is sgl.nn.%s"):format(name, name)) end
      end
      core.error(("sgl has no '%s'%s"):format(tostring(name), names_of.hint(name, names)))
    end
    rawset(self, name, value)
    return value
  end,
  __tostring = function() return "sgl" end,
})

sgl.config = require "sgl.config"
sgl.plan = require "sgl.plan"
sgl.job = require("sgl.job").new

sgl.custom = require "sgl.custom"
sgl.lora = require "sgl.lora"
sgl.dim = require("sgl.dim").new
sgl.grad, sgl.state, sgl.update = step.grad, step.state, step.update

local control = require "sgl.control"
sgl.scan, sgl.while_loop, sgl.cond = control.scan, control.while_loop, control.cond

--- Shows a number beside the loss at every step, and in the log file; in the log alone where the name has a slash. An
--- evaluation tells the mean over its batches.
---@param name string
---@param value sgl.tensor rank 0
function sgl.log(name, value) trace.log(name, value) end

core.exact(sgl, "sgl")

return sgl
