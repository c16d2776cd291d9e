--- nn.rope: rotary positions (Su et al., arXiv:2104.09864), for longer contexts with scaled frequencies.
--- Comes in: x [batch, t, heads, head_dim] and positions, i64 [] of the first row or i32 [batch, t]. Goes out: x with
--- each pair (i, i + head_dim / 2) turned by its position times its frequency, theta ^ (-2 i / head_dim).
--- With `factor` alone every frequency is divided by it (Chen et al., arXiv:2306.15595). With `original_context` only
--- those are whose wave is longer than original_context / low_freq_factor; waves shorter than original_context /
--- high_freq_factor stay, and between the two the share that is divided grows evenly with the frequency (Llama 3.1,
--- arXiv:2407.21783; the formula is `apply_scaling` of Meta's llama-models).

local check = require "sgl.check"
local core = require "sgl.core"
local ops = require "sgl.ops"

local known = {
  theta = "positive?", factor = "positive?", low_freq_factor = "positive?", high_freq_factor = "positive?",
  original_context = "size?",
}

local function scaled(frequency, options)
  local slow = frequency / options.factor
  if not options.original_context then return slow end
  local low, high = options.low_freq_factor or 1, options.high_freq_factor or 4
  local waves = options.original_context * frequency / (2 * math.pi) -- that fit into the original context
  if waves > high then return frequency end
  if waves < low then return slow end
  local kept = (waves - low) / (high - low)
  return (1 - kept) * slow + kept * frequency
end

local function check_scaling(options)
  local function needs(name, other)
    if options[name] and not options[other] then core.error(("rope: %s needs %s"):format(name, other)) end
  end
  needs("original_context", "factor")
  needs("low_freq_factor", "original_context")
  needs("high_freq_factor", "original_context")
  if options.original_context and (options.low_freq_factor or 1) >= (options.high_freq_factor or 4) then
    core.error(("rope: low_freq_factor (%g) must be below high_freq_factor (%g)"):format(
      options.low_freq_factor or 1, options.high_freq_factor or 4))
  end
end

---@param head_dim integer
---@param options { theta: number?, factor: number?, low_freq_factor: number?, high_freq_factor: number?, original_context: integer? }? theta: default 1e4; low_freq_factor, high_freq_factor: 1 and 4
---@return fun(x: sgl.tensor, positions: sgl.tensor): sgl.tensor
return function(head_dim, options)
  check.value("rope", "head_dim", "size", head_dim)
  options = check.options("rope", options, known)
  if head_dim % 2 ~= 0 then core.error(("rope: it turns pairs, head_dim is %d; it must be even"):format(head_dim)) end
  check_scaling(options)
  local theta, frequencies = options.theta or 1e4, nil
  if options.factor then
    frequencies = {}
    for i = 0, head_dim // 2 - 1 do frequencies[i + 1] = scaled(theta ^ (-2 * i / head_dim), options) end
  end
  return function(x, positions) return ops.rope(x, positions, theta, frequencies) end
end
