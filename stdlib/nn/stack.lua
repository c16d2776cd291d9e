--- nn.stack: the same kind of block several times, one after another.
--- Comes in: x. Goes out: block n-1 of ... of block 0 of x. Children "0", "1", ...
--- With recompute = true each block keeps its input alone, and its backward makes the rest again; with a number so many
--- of the first blocks do, whose values would be kept longest; with a name that child of each block does.

local core = require "sgl.core"
local check = require "sgl.check"
local base = require "sgl.nn.module"

local known = { recompute = "any?" }

-- The modules to mark, given the blocks.
local function marked(blocks, how)
  local list = {}
  if how == nil or how == false then return list end
  if type(how) == "string" then
    for i, block in ipairs(blocks) do
      list[i] = block.children[how]
      if not base.is_module(list[i]) then
        core.error(("stack: recompute: block %d has no module '%s'"):format(i - 1, how))
      end
    end
    return list
  end
  local first = how == true and #blocks or math.tointeger(how)
  if not first or first < 0 or first > #blocks then
    local what = "stack: recompute must be true, the name of a child or a number of blocks up to %d, not %s"
    core.error(what:format(#blocks, check.show(how)))
  end
  return table.move(blocks, 1, first, 1, list)
end

---@param count integer
---@param make fun(index: integer): sgl.module called for each block, index from 0
---@param options { recompute: boolean|integer|string|nil }? what the backward makes again instead of keeping it
---@return sgl.module
return function(count, make, options)
  check.value("stack", "count", "count", count)
  check.value("stack", "make", "call", make)
  options = check.options("stack", options or {}, known)
  local blocks = {}
  for i = 1, count do
    blocks[i] = make(i - 1)
    if not base.is_module(blocks[i]) then
      core.error("stack: make must return a module, it returned a " .. type(blocks[i]))
    end
  end
  for _, module in ipairs(marked(blocks, options.recompute)) do base.recompute(module) end
  return base.module(("stack(%d)"):format(count), blocks, function(x, ...)
    for i = 1, count do x = blocks[i](x, ...) end
    return x
  end)
end
