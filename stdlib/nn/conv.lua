--- nn.conv1d, nn.conv2d, nn.conv_transpose1d, nn.conv_transpose2d: convolutions, channels last; nothing is flipped.
--- Comes in: x [n, s..., input] with one or two spatial dims s. Goes out: [n, o..., output], o as sgl.conv and
--- sgl.conv_transpose say. Weight [output, k..., input / groups], of the transposed ones [input, k..., output /
--- groups]; bias [output]. Size, stride, dilation and padding: a number, or a list of one for each spatial dim.

local core = require "sgl.core"
local check = require "sgl.check"
local base = require "sgl.nn.module"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"

local known = {
  stride = "any?", dilation = "any?", padding = "any?", groups = "size?", bias = "flag?", init = "call?",
}

-- What of a layer's options is for its op.
local function of_op(options)
  return { stride = options.stride, dilation = options.dilation, padding = options.padding, groups = options.groups }
end

-- The size in each spatial dim, as a list.
local function sizes_of(where, size, spatial)
  local sizes = {}
  if type(size) == "table" and #size ~= spatial then
    core.error(("%s: size has %d entries for %d spatial dimensions"):format(where, #size, spatial))
  end
  for i = 1, spatial do
    sizes[i] = type(size) == "table" and size[i] or size
    check.value(where, "size", "size", sizes[i])
  end
  return sizes
end

-- Weight [first, k..., second / groups], its number of inputs to one output, and the options checked.
local function read(where, spatial, fields, first, second, size, options)
  local sizes, taken = sizes_of(where, size, spatial), 1
  options = check.options(where, options, fields)
  local groups = options.groups or 1
  if first % groups ~= 0 or second % groups ~= 0 then
    core.error(("%s: %d and %d channels do not make %d groups"):format(where, first, second, groups))
  end
  for _, extent in ipairs(sizes) do taken = taken * extent end
  local dims = table.move(sizes, 1, spatial, 2, { first })
  dims[spatial + 2] = second // groups
  return dims, taken, options
end

local function make(where, spatial)
  ---@param input integer channels
  ---@param output integer channels
  ---@param size integer|integer[]
  ---@param options { stride: integer|integer[]|nil, dilation: integer|integer[]|nil, padding: integer|integer[]|integer[][]|"same"|nil, groups: integer?, bias: boolean?, init: function? }? bias: default true; init: normal with std 1 / sqrt(inputs of one output)
  ---@return sgl.module
  return function(input, output, size, options)
    check.value(where, "input", "size", input)
    check.value(where, "output", "size", output)
    local dims, taken
    dims, taken, options = read(where, spatial, known, output, input, size, options)
    dims.init = options.init or initial.normal((taken * dims[spatial + 2]) ^ -0.5)
    local weight = base.parameter(dims)
    weight.is_kernel = true
    local bias = options.bias ~= false and base.parameter { output, init = initial.zeros } or nil
    local kind = ("%s(%d, %d)"):format(where, input, output)
    return base.module(kind, { weight = weight, bias = bias }, function(x)
      local y = ops.conv(x, weight(), of_op(options))
      return bias and y + bias() or y
    end)
  end
end

local transposed = { output_padding = "any?" }
for name, kind in pairs(known) do transposed[name] = kind end

local function make_transposed(where, spatial)
  ---@param input integer channels
  ---@param output integer channels
  ---@param size integer|integer[]
  ---@param options { stride: integer|integer[]|nil, dilation: integer|integer[]|nil, padding: integer|integer[]|integer[][]|nil, output_padding: integer|integer[]|nil, groups: integer?, bias: boolean?, init: function? }? as of conv; output_padding: elements more at the end of each dim
  ---@return sgl.module
  return function(input, output, size, options)
    check.value(where, "input", "size", input)
    check.value(where, "output", "size", output)
    local dims
    dims, _, options = read(where, spatial, transposed, input, output, size, options)
    dims.init = options.init or initial.normal((input // (options.groups or 1)) ^ -0.5)
    local weight = base.parameter(dims)
    local bias = options.bias ~= false and base.parameter { output, init = initial.zeros } or nil
    local kind = ("%s(%d, %d)"):format(where, input, output)
    return base.module(kind, { weight = weight, bias = bias }, function(x)
      local y = ops.conv_transpose(x, weight(), of_op(options), options.output_padding)
      return bias and y + bias() or y
    end)
  end
end

return {
  conv1d = make("conv1d", 1), conv2d = make("conv2d", 2),
  conv_transpose1d = make_transposed("conv_transpose1d", 1), conv_transpose2d = make_transposed("conv_transpose2d", 2),
}
