--- nn.stack: the same kind of block several times, one after another.
--- Comes in: x. Goes out: block n-1 of ... of block 0 of x. Children "0", "1", ...

local core = require "sgl.core"
local check = require "sgl.check"
local base = require "sgl.nn.module"

---@param count integer
---@param make fun(index: integer): sgl.module called for each block, index from 0
---@return sgl.module
return function(count, make)
  check.value("stack", "count", "count", count)
  check.value("stack", "make", "call", make)
  local blocks = {}
  for i = 1, count do
    blocks[i] = make(i - 1)
    if not base.is_module(blocks[i]) then
      core.error("stack: make must return a module, it returned a " .. type(blocks[i]))
    end
  end
  return base.module(("stack(%d)"):format(count), blocks, function(x, ...)
    for i = 1, count do x = blocks[i](x, ...) end
    return x
  end)
end
