--- Convolutions and pooling over sliding windows, channels last: x [n, s..., c] with one to three spatial dims s.
--- Comes in: tensors, window sizes and options. Goes out: tensors [n, out..., channels]. A size, stride or dilation is
--- a number for all spatial dims or a list of one for each; padding is that too, or "same" (as many windows as
--- s / stride, rounded up), or a list of { low, high } pairs. Merged into sgl.ops.

local check = require "sgl.check"
local core = require "sgl.core"
local emit = core.emit

local windows = {}

---@class sgl.windows.options
---@field stride integer|integer[]? 1; pooling: the window's size
---@field dilation integer|integer[]? 1
---@field padding integer|integer[]|integer[][]|"same"? 0
---@field groups integer? 1: convolutions of as many groups of channels, side by side

local of_windows = { stride = "any?", dilation = "any?", padding = "any?" }
local of_conv = { stride = "any?", dilation = "any?", padding = "any?", groups = "size?" }

local function each(what, value, spatial)
  if type(value) ~= "table" then
    local list = {}
    for i = 1, spatial do list[i] = value end
    return list
  end
  if #value ~= spatial then
    core.error(("%s has %d entries for %d spatial dimensions"):format(what, #value, spatial))
  end
  return value
end

local function spatial_of(what, x)
  if not core.is_tensor(x) or core.rank(x) < 3 then
    core.error(("%s: x must be a tensor [n, s..., c] with at least one spatial dimension, not %s"):format(what,
      tostring(x)))
  end
  return core.rank(x) - 2
end

--- The attributes that all windows share, for windows of `size` over dims that are s[1], s[2], ...
local function geometry(what, s, size, options, default_stride)
  local spatial = #s
  local stride = each(what .. ": stride", options.stride or default_stride or 1, spatial)
  local dilation = each(what .. ": dilation", options.dilation or 1, spatial)
  local padding = options.padding or 0
  if type(padding) == "string" and padding ~= "same" then
    core.error(("%s: padding must be numbers or 'same', not '%s'; none is 0"):format(what, padding))
  end
  local low, high = {}, {}
  local list = padding ~= "same" and each(what .. ": padding", padding, spatial)
  for i = 1, spatial do
    if list then
      local pair = list[i]
      if type(pair) ~= "table" then pair = { pair, pair } end
      low[i], high[i] = pair[1], pair[2]
    else
      local span, count = dilation[i] * (size[i] - 1) + 1, -(-s[i] // stride[i])
      local missing = math.max((count - 1) * stride[i] + span - s[i], 0)
      low[i], high[i] = missing // 2, missing - missing // 2
    end
  end
  return { stride = stride, dilation = dilation, low = low, high = high }
end

local function spatial_dims(x)
  local dims = core.dims(x)
  return table.move(dims, 2, #dims - 1, 1, {})
end

--- The windows themselves: [n, out..., size..., c]; `value` stands in the padding (0 by default).
---@param options sgl.windows.options?
function windows.windows(x, size, options, value)
  local spatial = spatial_of("windows", x)
  options = check.options("windows", options, of_windows)
  size = each("windows: size", size, spatial)
  local attrs = geometry("windows", spatial_dims(x), size, options)
  attrs.size, attrs.value = size, value or 0
  return emit("windows", { x }, attrs)
end

--- x [n, s..., c], weight [out, k..., c / groups] -> [n, o..., out]; nothing is flipped.
---@param options sgl.windows.options?
function windows.conv(x, weight, options)
  options = check.options("conv", options, of_conv)
  spatial_of("conv", x)
  local attrs = geometry("conv", spatial_dims(x), spatial_dims(weight), options)
  attrs.groups = options.groups or 1
  return emit("conv", { x, weight }, attrs)
end

--- The transpose of conv: x [n, o..., out], weight [out, k..., c / groups] -> [n, s..., c], where s is
--- (o - 1) * stride + dilation * (k - 1) + 1 - padding + output_padding.
---@param options sgl.windows.options?
---@param output_padding integer|integer[]? 0: elements more at the end of each dimension
function windows.conv_transpose(x, weight, options, output_padding)
  options = check.options("conv_transpose", options, of_conv)
  local spatial, size = spatial_of("conv_transpose", x), spatial_dims(weight)
  if options.padding == "same" then core.error("conv_transpose: padding must be numbers") end
  local attrs, extent, o = geometry("conv_transpose", spatial_dims(x), size, options), {}, spatial_dims(x)
  local more = each("conv_transpose: output_padding", output_padding or 0, spatial)
  for i = 1, spatial do
    local span = attrs.dilation[i] * (size[i] - 1) + 1
    extent[i] = (o[i] - 1) * attrs.stride[i] + span - attrs.low[i] - attrs.high[i] + more[i]
  end
  attrs.extent, attrs.groups = extent, options.groups or 1
  return emit("conv_input_grad", { x, weight }, attrs)
end

local lowest = {
  bool = 0, u8 = 0, u16 = 0, u32 = 0, i4 = -8, i8 = -0x80, i16 = -0x8000, i32 = -0x80000000, i64 = -0x1p63,
}

--- The windows of a pool, their elements along dims 1 + spatial ..; their number of elements; the axes to reduce.
local function pooled(what, x, size, options, value)
  local spatial = spatial_of(what, x)
  options = check.options(what, options, of_windows)
  size = each(what .. ": size", size, spatial)
  local attrs, axes, count = geometry(what, spatial_dims(x), size, options, size), {}, 1
  attrs.size, attrs.value = size, value
  for i = 1, spatial do
    axes[i], count = spatial + i, count * size[i]
  end
  return emit("windows", { x }, attrs), axes, count, attrs
end

--- The largest element of each window; padding never wins.
---@param options sgl.windows.options?
function windows.max_pool(x, size, options)
  local taken, axes = pooled("max_pool", x, size, options, core.is_tensor(x) and lowest[core.dtype(x)] or -math.huge)
  return emit("reduce_max", { taken }, { axes = axes, keep = 0 })
end

--- The mean of each window. Padding counts as zeros unless count_include_pad is false.
---@param options sgl.windows.options?
---@param count_include_pad boolean? true
function windows.avg_pool(x, size, options, count_include_pad)
  local taken, axes, count, attrs = pooled("avg_pool", x, size, options, 0)
  local sum = emit("reduce_sum", { taken }, { axes = axes, keep = 0 })
  if count_include_pad ~= false then return emit("div", { sum, count }) end
  local dims = core.dims(x)
  dims[1], dims[#dims] = 1, 1
  local ones = emit("broadcast", { core.constant(1, core.dtype(x)) }, { dims = dims })
  return emit("div", { sum, emit("reduce_sum", { emit("windows", { ones }, attrs) }, { axes = axes, keep = 0 }) })
end

return windows
