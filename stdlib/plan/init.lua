--- sgl.plan: how a job is laid out, apart from its mathematics.
--- Comes in: { mesh = { dp = 1 }, micro = 1, precision = "fp32" }. Goes out: the same, checked, with `--set
--- plan.KEY=value` applied. `micro` splits each batch into so many micro-batches, one after another: less memory, the
--- same numbers.
--- precision may be a table: { default = "bf16", ["head.*"] = "fp32" }: what these modules compute, and what is done
--- with parameters of these names, stays in f32.
--- `stream` = "fp32" leaves in f32 what blocks add to, as PyTorch's autocast does: a sum of a value in bf16 and one in
--- f32 is f32; "narrow" (default) rounds it.
--- `params` says by pattern which dimension (from 0) of a parameter, and of its states, is split over which axis, and
--- false which is not: { ["*.wq"] = { tp = 0 } }; over tp and ep layers say so themselves, over fsdp all is split:
--- `zero` = 1 or 2 the states alone, 3 (default) the parameters too, 0 nothing.
--- `activations` says by pattern of module paths (a "*" is any characters but dots) which dimension of what these
--- modules give each other is split over which axis: { ["blocks.*"] = { tp = 1 } }, or as text, "blocks.* tp:1".
--- `schedule` ("gpipe", "1f1b", "interleaved", "zero-bubble") makes the ranks along pp the stages of a pipeline, and
--- says in which order they take turns at micro-batches; without one ("none") each of them computes the same. `chunks`
--- is how many parts of the forward an interleaved stage has (2); `cut` names the modules with which parts begin,
--- { "blocks.5" } or "blocks.5"; else they are cut so that the most loaded has least to do.
--- `attention` says what attention over parts of the sequence (cp) takes: whole keys and values ("gather"), parts of
--- the heads of the whole sequence ("heads"), keys and values block by block round the ranks ("ring"), or what sends
--- least ("auto").
--- `compress` says by pattern of names which gradients are exchanged over dp and fsdp in fewer bytes, and how:
--- { ["*"] = "int8" }, "bf16", "none"; what that loses is kept, and sent with the next ones.
--- Entries without a name are recipes (recipes.lua): their fields are this plan's.
--- `memory` ("2GiB") bounds the bytes of each program: what does not fit is made again in the backward, not kept, and
--- where that is not enough goes to memory of the host while it is not used. `offload` says what goes there in any
--- case, as a list or as text, "moments,activations": "moments", the states of optimizers; "params", parameters;
--- "activations", what the backward needs of the forward.

local core = require "sgl.core"
local layouts = require "sgl.plan.layouts"
local names_of = require "sgl.names"
local recipes = require "sgl.plan.recipes"

local known = { "mesh", "micro", "precision", "scale", "scale_growth_interval", "max_skips", "bucket", "memory", "wide",
  "disable", "params", "zero", "activations", "schedule", "attention", "chunks", "cut", "compress", "offload",
  "stream" }
local words = {
  { "precision", { "fp32", "bf16", "fp16", "fp64" } },
  { "schedule", { "none", "gpipe", "1f1b", "interleaved", "zero-bubble" } },
  { "attention", { "auto", "gather", "heads", "ring" } },
  { "stream", { "narrow", "fp32" } },
}

local function count(name, value)
  local number = math.tointeger(tonumber(value))
  if not number or number < 1 then
    core.error(("plan: %s must be an integer of at least 1, not '%s'"):format(name, tostring(value)))
  end
  return number
end

local units = { [""] = 1, b = 1, k = 1e3, kb = 1e3, m = 1e6, mb = 1e6, g = 1e9, gb = 1e9, t = 1e12, tb = 1e12,
  kib = 2 ^ 10, mib = 2 ^ 20, gib = 2 ^ 30, tib = 2 ^ 40 }

-- Bytes of 2147483648, "2GiB", "512 MiB", "1.5e9"; 0: no bound.
local function bytes(name, value)
  local number, unit = tostring(value):match "^%s*([%d.]+[eE]?%+?%d*)%s*(%a*)%s*$"
  local count = tonumber(number) and units[unit:lower()] and tonumber(number) * units[unit:lower()]
  if not count or count >= 2 ^ 62 then
    core.error(("plan: %s must be a number of bytes, such as 2e9 or '2GiB', not '%s'"):format(name, tostring(value)))
  end
  return math.floor(count)
end

-- kept: by name the fields that a checkpoint has given, which `plan.kept` lists; whoever made it was warned of them.
local function apply(plan, kept, key, value)
  local axis = key:match("^mesh%.(%w+)$")
  if axis then
    plan.mesh[axis] = value
  elseif key == "kept" then
    for name in value:gmatch "[^,]+" do kept[name] = true end
  elseif key == "mesh" then
    core.error("plan: mesh is set by its axes, as in --set plan.mesh.dp=2, or by --mesh dp=2,tp=2")
  else
    plan[key] = value
  end
end

local function check_names(given, names, what)
  for key in pairs(given) do
    local found = false
    for _, name in ipairs(names) do found = found or name == key end
    if not found then
      core.error(("plan: there is no %s '%s'%s"):format(what, tostring(key), names_of.hint(key, names)))
    end
  end
end

-- The patterns of a table by patterns, as the field `wide`, and its default.
local function exceptions(by_pattern)
  local patterns = {}
  for pattern, name in pairs(by_pattern) do
    if type(pattern) ~= "string" or pattern:find "[ ,]" then
      core.error(("plan: precision: its keys are `default` and patterns such as \"head.*\", not '%s'"):format(
        tostring(pattern)))
    end
    if pattern ~= "default" then
      if name ~= "fp32" then
        core.error(("plan: precision['%s'] must be fp32, not '%s': the others have the default"):format(pattern,
          tostring(name)))
      end
      patterns[#patterns + 1] = pattern
    end
  end
  table.sort(patterns)
  local narrow = by_pattern.default
  if narrow ~= "bf16" and narrow ~= "fp16" then
    core.error(("plan: precision.default must be bf16 or fp16 where patterns are excepted, not '%s'"):format(
      tostring(narrow)))
  end
  return narrow, table.concat(patterns, ", ")
end

-- A table by patterns, or one codec for all, as the field `compress`.
local function codecs(given)
  local patterns, entries = {}, {}
  if type(given) == "string" then given = { ["*"] = given } end
  if type(given) ~= "table" then
    core.error "plan: compress must be a table by patterns, such as { [\"*\"] = \"int8\" }"
  end
  for pattern, codec in pairs(given) do
    if type(pattern) ~= "string" or pattern == "" or pattern:find "[ ,]" then
      core.error(("plan: compress: its keys are patterns of names such as \"*.wq\", not '%s'"):format(
        tostring(pattern)))
    end
    if type(codec) ~= "string" or codec == "" or codec:find "[ ,]" then
      core.error(("plan: compress['%s'] must be a codec such as \"int8\", not '%s'"):format(pattern, tostring(codec)))
    end
    patterns[#patterns + 1] = pattern
  end
  table.sort(patterns)
  for _, pattern in ipairs(patterns) do entries[#entries + 1] = pattern .. " " .. given[pattern] end
  return table.concat(entries, ", ")
end

-- A list of patterns, or text with commas, as the field `cut`.
local function modules(field, given)
  if type(given) == "string" then return given end
  if type(given) ~= "table" then
    core.error(("plan: %s must be a list of modules, such as { \"blocks.5\" }, not '%s'"):format(field,
      tostring(given)))
  end
  for key, pattern in pairs(given) do
    local listed = math.type(key) == "integer" and key >= 1 and key <= #given
    if not listed or type(pattern) ~= "string" or pattern == "" or pattern:find "[ ,]" then
      core.error(("plan: %s[%s] must be a module such as \"blocks.5\", or a pattern, not '%s'"):format(field,
        tostring(key), tostring(pattern)))
    end
  end
  return table.concat(given, ", ")
end

-- What goes to memory of the host, as text.
local function offloads(given)
  local kinds, list = { "moments", "params", "activations" }, given
  if type(given) == "string" then
    list = {}
    for word in given:gmatch "[^%s,]+" do list[#list + 1] = word end
  elseif type(given) ~= "table" then
    core.error(("plan: offload must be a list of moments, params, activations, not '%s'"):format(tostring(given)))
  end
  for key, word in pairs(list) do
    local listed = math.type(key) == "integer" and key >= 1 and key <= #list
    if not listed or not (word == kinds[1] or word == kinds[2] or word == kinds[3]) then
      local wrong = tostring(listed and word or key)
      core.error(("plan: offload: '%s' is none of moments, params, activations%s"):format(wrong,
        names_of.hint(wrong, kinds)))
    end
  end
  return table.concat(list, ", ")
end

-- Fields of recipes, and those given by name; no field twice.
local function join(options)
  local joined = { mesh = {} }
  local function take(field, value, into, name)
    if into[field] ~= nil then core.error(("plan: %s is given twice"):format(name)) end
    into[field] = value
  end
  local function take_all(given)
    for key, value in pairs(given) do
      if key == "mesh" then
        if type(value) ~= "table" then core.error("plan: mesh must be a table of its axes, such as { dp = 1 }") end
        for axis, extent in pairs(value) do take(axis, extent, joined.mesh, "the axis " .. tostring(axis)) end
      elseif math.type(key) ~= "integer" then
        take(key, value, joined, tostring(key))
      elseif type(value) ~= "table" then
        core.error("plan: a recipe is what sgl.plan.data, zero, tensor, sequence, context, expert or pipeline give")
      end
    end
  end
  for _, recipe in ipairs(options or {}) do
    if type(recipe) == "table" then take_all(recipe) end
  end
  take_all(options or {})
  return joined
end

local Plan = {}
Plan.__index = Plan

--- A flat table, as sgl_plan_set takes it: { ["mesh.dp"] = 1, micro = 1, precision = "fp32" }, for a model of these
--- parameters.
---@param parameters sgl.parameter[]
---@param buffers sgl.parameter[]?
function Plan:fields(parameters, buffers)
  layouts.check_named(self, parameters, buffers)
  local flat = {
    micro = self.micro, precision = self.precision, scale = self.scale,
    scale_growth_interval = self.scale_growth_interval, max_skips = self.max_skips, memory = self.memory,
    bucket = self.bucket, schedule = self.schedule, attention = self.attention, chunks = self.chunks, cut = self.cut,
    offload = self.offload, wide = self.wide, stream = self.stream, compress = self.compress,
    disable = self.disable,
    layouts = layouts.text(self, parameters),
    activations = type(self.activations) == "table" and layouts.own(self.activations) or self.activations,
  }
  for axis, extent in pairs(self.mesh) do flat["mesh." .. axis] = extent end
  return flat
end

function Plan:__tostring()
  local parts = {}
  for _, axis in ipairs(layouts.axes) do
    if self.mesh[axis] then parts[#parts + 1] = axis .. "=" .. self.mesh[axis] end
  end
  return ("plan{mesh={%s}, micro=%d, precision=%s}"):format(table.concat(parts, ", "), self.micro, self.precision)
end

local function check_word(field, value, list)
  for _, word in ipairs(list) do
    if word == value then return end
  end
  core.error(("plan: %s must be %s or %s, not '%s'%s"):format(field, table.concat(list, ", ", 1, #list - 1),
    list[#list], tostring(value), names_of.hint(tostring(value), list)))
end

-- Whether a plan compresses anything, of the field's text.
local function compresses(text)
  for codec in (text or ""):gmatch "%S+ ([^%s,]+)" do
    if codec ~= "none" then return true end
  end
  return false
end

-- What a plan says and its mesh makes nothing of: the run is right, and costs what one rank's does.
local function warn_of_idle(plan, kept, zero_given)
  local function extent(axis) return plan.mesh[axis] or 1 end
  local ranks = 1
  for _, axis in ipairs(layouts.axes) do ranks = ranks * extent(axis) end
  if zero_given and not kept.zero and plan.zero > 0 and extent "dp" > 1 and extent "fsdp" == 1 then
    core.warn(("plan: zero = %d splits over fsdp, and the mesh has none: fsdp = %d in the place of dp = %d"):format(
      plan.zero, extent "dp", extent "dp"))
  end
  local scheduled = (plan.schedule or "none") ~= "none"
  if extent "pp" > 1 and not scheduled and not kept.schedule then
    core.warn(("plan: pp = %d has no schedule, so each rank along pp computes the same; schedule = \"1f1b\" makes them "
      .. "stages"):format(extent "pp"))
  end
  if ranks > 1 and extent "pp" == 1 and scheduled and not kept.schedule then
    core.warn(("plan: schedule = \"%s\" is that of stages along pp, and the mesh has none"):format(plan.schedule))
  end
  if ranks > 1 and extent "dp" == 1 and extent "fsdp" == 1 and compresses(plan.compress) and not kept.compress then
    core.warn "plan: compress is of what ranks along dp and fsdp exchange, and the mesh has neither"
  end
end

--- bf16, fp16: products in that dtype, parameters and sums in f32. fp16 scales the loss, first by `scale` (65536), by
--- twice that after `scale_growth_interval` (2000) good steps, by half after a step that is skipped because a gradient
--- is not finite; `max_skips` (20) of these in a row are an error. Ranks sum gradients in exchanges of at least
--- `bucket` bytes ("4MiB"), as the backward makes them.
---@param options { mesh: table<string, integer>?, micro: integer?, precision: "fp32"|"bf16"|"fp16"|"fp64"|table<string, string>|nil, wide: string?, stream: "narrow"|"fp32"|nil, scale: integer?, scale_growth_interval: integer?, max_skips: integer?, memory: integer|string|nil, bucket: integer|string|nil, params: table<string, table<string, integer|false>>?, activations: string|table<string, table<string, integer|false>>|nil, zero: integer?, schedule: "none"|"gpipe"|"1f1b"|"interleaved"|"zero-bubble"|nil, attention: "auto"|"gather"|"heads"|"ring"|nil, chunks: integer?, cut: string|string[]|nil, compress: string|table<string, string>|nil, offload: string|string[]|nil, disable: string? }?
local function make(options)
  if options ~= nil and type(options) ~= "table" then core.error("plan: give a table, such as { micro = 2 }") end
  local plan = join(options)
  if plan.micro == nil then plan.micro = 1 end
  if plan.precision == nil then plan.precision = "fp32" end
  local kept = {}
  for key, value in pairs(core.settings()) do
    local field = key:match("^plan%.(.*)$")
    if field then apply(plan, kept, field, value) end
  end
  check_names(plan, known, "field")
  check_names(plan.mesh, layouts.axes, "mesh axis")
  for axis, extent in pairs(plan.mesh) do plan.mesh[axis] = count("mesh." .. axis, extent) end
  if type(plan.precision) == "table" then plan.precision, plan.wide = exceptions(plan.precision) end
  plan.micro = count("micro", plan.micro)
  if plan.memory ~= nil then plan.memory = bytes("memory", plan.memory) end
  if plan.bucket ~= nil then plan.bucket = bytes("bucket", plan.bucket) end
  if plan.offload ~= nil then plan.offload = offloads(plan.offload) end
  if plan.params ~= nil then layouts.check("params", plan.params) end
  if type(plan.activations) == "table" then layouts.check("activations", plan.activations) end
  if plan.compress ~= nil then plan.compress = codecs(plan.compress) end
  local zero_given = plan.zero ~= nil
  plan.zero = zero_given and math.tointeger(tonumber(plan.zero)) or not zero_given and 3
  if not plan.zero or plan.zero < 0 or plan.zero > 3 then core.error "plan: zero is a level from 0 to 3" end
  if plan.cut ~= nil then plan.cut = modules("cut", plan.cut) end
  for _, name in ipairs { "scale", "scale_growth_interval", "max_skips", "chunks" } do
    if plan[name] ~= nil then plan[name] = count(name, plan[name]) end
  end
  for _, one in ipairs(words) do
    local field, list = one[1], one[2]
    if plan[field] ~= nil then check_word(field, plan[field], list) end
  end
  warn_of_idle(plan, kept, zero_given)
  plan.here = core.here()
  return setmetatable(plan, Plan)
end

return setmetatable({
  data = recipes.data, zero = recipes.zero, tensor = recipes.tensor, sequence = recipes.sequence,
  context = recipes.context, expert = recipes.expert, pipeline = recipes.pipeline,
}, { __call = function(_, options) return make(options) end, __name = "plan" })
