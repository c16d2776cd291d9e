--- nn.lstm: long short-term memory (Hochreiter, Schmidhuber, 1997; with a forget gate, Gers et al., 2000):
--- i, f, o = sigmoid, g = tanh of x Wx^T + h Wh^T + b; c = f * c + i * g; h = o * tanh(c).
--- Comes in: x [batch, t, input], and maybe a state { h =, c = } [batch, hidden] each to begin with. Goes out: h of all
--- places [batch, t, hidden], and the last state. Weights wx [4 * hidden, input], wh [4 * hidden, hidden], bias bx
--- [4 * hidden], in the order i, f, g, o; of PyTorch's two biases it is the sum. While generating the state stands in
--- caches under the module's path.

local initial = require "sgl.nn.initial"
local base = require "sgl.nn.module"
local ops = require "sgl.ops"
local recurrent = require "sgl.nn.recurrent"

local function cell(weights, projected, state)
  local i, f, g, o = ops.split(projected + ops.linear(state.h, weights.wh), 4, -1)
  local c = ops.sigmoid(f) * state.c + ops.sigmoid(i) * ops.tanh(g)
  return { h = ops.sigmoid(o) * ops.tanh(c), c = c }
end

-- Zeros, but ones for the forget gates: the state is kept at first (Jozefowicz et al., ICML 2015).
local function first_bias(dims, dtype)
  local hidden = dims[1] // 4
  return ops.concat({
    initial.zeros({ hidden }, dtype), initial.ones({ hidden }, dtype), initial.zeros({ 2 * hidden }, dtype),
  }, 0)
end

---@param input integer
---@param hidden integer
---@param options sgl.recurrent.options?
---@return sgl.module called as lstm(x, state): h of all places, and the last state
return function(input, hidden, options)
  local sizes = { input = input, hidden = hidden, gates = 4 }
  local function biases() return { bx = base.parameter { 4 * hidden, init = first_bias } } end
  return recurrent.new("lstm", sizes, options, biases, { "h", "c" }, cell)
end
