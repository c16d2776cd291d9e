--- nn.gru: gated recurrent units (Cho et al., arXiv:1406.1078), in PyTorch's form: with a = x Wx^T + bx and
--- b = h Wh^T + bh, r = sigmoid(a_r + b_r), z = sigmoid(a_z + b_z), n = tanh(a_n + r * b_n); h = (1 - z) * n + z * h.
--- Comes in: x [batch, t, input], and maybe a state { h = } [batch, hidden] to begin with. Goes out: h of all places
--- [batch, t, hidden], and the last state. Weights wx [3 * hidden, input], wh [3 * hidden, hidden], biases bx and bh
--- [3 * hidden], in the order r, z, n. While generating the state stands in a cache under the module's path.

local initial = require "sgl.nn.initial"
local base = require "sgl.nn.module"
local ops = require "sgl.ops"
local recurrent = require "sgl.nn.recurrent"

local function cell(weights, projected, state)
  local ar, az, an = ops.split(projected, 3, -1)
  local br, bz, bn = ops.split(ops.linear(state.h, weights.wh, weights.bh), 3, -1)
  local r, z = ops.sigmoid(ar + br), ops.sigmoid(az + bz)
  local n = ops.tanh(an + r * bn)
  return { h = n + z * (state.h - n) }
end

---@param input integer
---@param hidden integer
---@param options sgl.recurrent.options?
---@return sgl.module called as gru(x, state): h of all places, and the last state
return function(input, hidden, options)
  local sizes = { input = input, hidden = hidden, gates = 3 }
  local function biases()
    local bx = base.parameter { 3 * hidden, init = initial.zeros }
    local bh = base.parameter { 3 * hidden, init = initial.zeros }
    return { bx = bx, bh = bh }
  end
  return recurrent.new("gru", sizes, options, biases, { "h" }, cell)
end
