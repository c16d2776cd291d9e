--- nn.max_pool, nn.avg_pool: the largest element, or the mean, of each window.
--- Comes in: x [n, s..., c] with one to three spatial dims. Goes out: [n, o..., c]. Size, stride (the size by default),
--- dilation and padding: a number, or a list of one for each spatial dim. Padding is never the largest; it counts as
--- zeros in a mean unless count_include_pad is false.

local check = require "sgl.check"
local base = require "sgl.nn.module"
local ops = require "sgl.ops"

local pool = {}

---@param size integer|integer[]
---@param options { stride: integer|integer[]|nil, dilation: integer|integer[]|nil, padding: integer|integer[]|integer[][]|"same"|nil }?
---@return sgl.module
function pool.max_pool(size, options)
  if type(size) ~= "table" then check.value("max_pool", "size", "size", size) end
  options = check.options("max_pool", options, { stride = "any?", dilation = "any?", padding = "any?" })
  return base.module("max_pool", {}, function(x) return ops.max_pool(x, size, options) end)
end

---@param size integer|integer[]
---@param options { stride: integer|integer[]|nil, dilation: integer|integer[]|nil, padding: integer|integer[]|integer[][]|"same"|nil, count_include_pad: boolean? }?
---@return sgl.module
function pool.avg_pool(size, options)
  if type(size) ~= "table" then check.value("avg_pool", "size", "size", size) end
  options = check.options("avg_pool", options, {
    stride = "any?", dilation = "any?", padding = "any?", count_include_pad = "flag?",
  })
  local of_op = { stride = options.stride, dilation = options.dilation, padding = options.padding }
  return base.module("avg_pool", {}, function(x) return ops.avg_pool(x, size, of_op, options.count_include_pad) end)
end

return pool
