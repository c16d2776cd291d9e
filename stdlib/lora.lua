--- sgl.lora: adapters of low rank in place of learning the weights themselves (Hu et al., arXiv:2106.09685).
---   W x  becomes  W x + alpha / rank * B (A x),  A normal, B zero: at first it computes what the model computed before
--- Comes in: the whole model of a job and patterns of the weights to adapt. Goes out: the same model, everything in it
--- frozen but for the adapters: "blocks.0.attn.wq.lora_a" [rank, in] and "blocks.0.attn.wq.lora_b" [out, rank].
--- Odd invariant: an adapter is a state of the session, no parameter, so that `--init-from` takes the parameters of a
--- run without adapters and leaves the adapters as they begin. `sgl export` merges them into the weights.

local base = require "sgl.nn.module"
local check = require "sgl.check"
local core = require "sgl.core"
local freeze = require "sgl.nn.freeze"
local initial = require "sgl.nn.initial"
local ops = require "sgl.ops"
local paths = require "sgl.paths"
local trace = require "sgl.trace"

local known = { rank = "size", alpha = "positive?", match = "any", also = "any?", init = "call?" }

local function factor(weight, letter, dims, init)
  local parameter = base.parameter { dims[1], dims[2], init = init }
  parameter.path, parameter.role = weight.path .. ".lora_" .. letter, "state"
  return parameter
end

-- Gives the weight its adapter and returns the two factors.
local function adapt(weight, options)
  local out, into = table.unpack(weight.dims)
  local rank = options.rank
  if rank > math.min(out, into) then
    core.error(("lora: rank (%d) is above the smaller extent of '%s' {%d, %d}"):format(rank, weight.path, out, into))
  end
  if weight.adapted then core.error(("lora: '%s' has an adapter already"):format(weight.path)) end
  local a = factor(weight, "a", { rank, into }, options.init or initial.normal(into ^ -0.5))
  local b = factor(weight, "b", { out, rank }, initial.zeros)
  local scale = (options.alpha or rank) / rank
  -- The whole weight, for whatever reads it; a product takes the factors instead (ops.linear).
  function weight.adapted(tensor)
    local low = { weight = tensor, a = a(), b = b(), scale = scale }
    local whole = tensor + ops.matmul(low.b, low.a) * scale
    trace.adapt(whole, low)
    return whole
  end
  return a, b
end

---@param model sgl.module the whole model of the job
---@param options { rank: integer, alpha: number?, match: string|string[], also: string|string[]|nil, init: function? } alpha: default rank; match: patterns of paths, what has two dimensions among them is adapted; also: patterns of what learns besides; init: of A
---@return sgl.module the same
return function(model, options)
  if not base.is_module(model) then core.error(("lora: give a model, not %s"):format(check.show(model))) end
  check.options("lora", options, known)
  local parameters = model:parameters()
  local matched = paths.read("lora", "match", paths.set("lora", "match", options.match), parameters)
  local also = paths.read("lora", "also", options.also and paths.set("lora", "also", options.also) or {}, parameters)
  freeze(model)
  local children, count = rawget(model, "children"), 0
  for _, parameter in ipairs(parameters) do
    if also(parameter) then parameter.frozen = nil end
    if matched(parameter) and #parameter.dims == 2 then
      local a, b = adapt(parameter, options)
      children[a.path], children[b.path] = a, b
      count = count + 1
    end
  end
  if count == 0 then core.error("lora: nothing that match names has two dimensions") end
  return model
end
