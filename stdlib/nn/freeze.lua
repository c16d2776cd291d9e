--- nn.freeze: what an optimizer leaves as it is: no gradient is computed for it, and no state is kept.
--- Comes in: a module or a parameter. Goes out: the same, every parameter of it marked; a shared one is marked for all.

local base = require "sgl.nn.module"
local check = require "sgl.check"
local core = require "sgl.core"

local function mark(what)
  if base.is_parameter(what) then
    what.frozen = true
  elseif base.is_module(what) then
    mark(rawget(what, "children"))
  elseif type(what) == "table" and getmetatable(what) == nil then
    for _, child in pairs(what) do mark(child) end
  end
end

---@param what sgl.module|sgl.parameter
---@return sgl.module|sgl.parameter the same
return function(what)
  if not base.is_module(what) and not base.is_parameter(what) then
    core.error(("freeze: give a module or a parameter, not %s"):format(check.show(what)))
  end
  mark(what)
  return what
end
