--- custom: a function with a derivative of its own, as JAX's custom_vjp.
--- Comes in: forward(x...) -> value, residuals, and backward(residuals, dy) -> a gradient of each x. Goes out: a
--- function of x... that gives the value. A value may be a list of tensors, then dy is a list too. Only what is handed
--- over as an argument has a gradient: parameters that forward merely sees have none.
--- Odd invariant: backward is traced once, over stand-ins of the gradients; autodiff makes its formulas anew.

local core = require "sgl.core"
local emit = core.emit

local is_float = { f64 = true, f32 = true, bf16 = true, f16 = true, f8e4m3 = true, f8e5m2 = true }

local function is_input(x) return core.is_tensor(x) and is_float[core.dtype(x)] end

--- The gradient that backward gave for x: a tensor, a number for all elements, or nil for none.
local function gradient(dx, x, number)
  if core.is_tensor(dx) then return dx end
  if dx ~= nil and type(dx) ~= "number" then
    core.error(("custom: gradient %d is a %s value; it must be a tensor, a number or nil"):format(number, type(dx)))
  end
  return emit("broadcast", { core.constant(dx or 0, core.dtype(x)) }, { dims = core.dims(x) })
end

---@param forward fun(...): sgl.tensor|sgl.tensor[], any
---@param backward fun(residuals: any, dy: sgl.tensor|sgl.tensor[]): sgl.tensor|table
---@return fun(...): sgl.tensor|sgl.tensor[]
return function(forward, backward)
  if type(forward) ~= "function" or type(backward) ~= "function" then
    core.error("custom(forward, backward): two functions are needed")
  end
  return function(...)
    local value, residuals = forward(...)
    local single = core.is_tensor(value)
    local values, seeds, args = single and { value } or value, {}, {}
    if type(values) ~= "table" or #values == 0 then
      core.error("custom: forward must return a tensor, or a list of tensors, and what backward needs")
    end
    for i, y in ipairs(values) do
      args[i], seeds[i] = emit("stop_gradient", { y }), emit("custom_seed", { y })
    end
    local gradients = backward(residuals, single and seeds[1] or table.move(seeds, 1, #seeds, 1, {}))
    if type(gradients) ~= "table" then gradients = { gradients } end
    local count, inputs = select("#", ...), { ... }
    for i = 1, count do
      if is_input(inputs[i]) then args[#args + 1] = inputs[i] end
    end
    if #args == #values then core.error("custom: none of the arguments is a tensor of floats") end
    for i = 1, count do
      if is_input(inputs[i]) then args[#args + 1] = gradient(gradients[i], inputs[i], i) end
    end
    table.move(seeds, 1, #seeds, #args + 1, args)
    local results = { emit("custom", args, { results = #values }) }
    return single and results[1] or results
  end
end
