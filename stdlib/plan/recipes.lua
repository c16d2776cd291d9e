--- Ready plans: each gives the fields of sgl.plan for one kind of parallelism over so many ranks; several are joined by
--- sgl.plan { sgl.plan.zero { ranks = 4 }, sgl.plan.tensor { ranks = 2 }, micro = 2 }, of 8 ranks.
--- Comes in: { ranks = N }, and `level` for zero; of a pipeline { stages, micro, schedule, chunks, cut }.
--- Goes out: a table of fields.

local check = require "sgl.check"

local recipes = {}

local function ranks_of(name, options, more)
  local known = { ranks = "size" }
  for key, kind in pairs(more or {}) do known[key] = kind end
  check.options("plan." .. name, options, known)
  return options.ranks
end

--- Data parallel: each rank has rows of the batch; gradients are summed once.
---@param options { ranks: integer }
function recipes.data(options) return { mesh = { dp = ranks_of("data", options) } } end

--- Data parallel in which what is kept is kept in parts (ZeRO; Rajbhandari et al., arXiv:1910.02054): level 1 and 2 the
--- optimizer's states (gradients are handed out in parts as they are made), 3 the parameters too, gathered for use.
---@param options { ranks: integer, level: integer? } level: 3
function recipes.zero(options)
  local ranks = ranks_of("zero", options, { level = "size?" })
  return { mesh = { fsdp = ranks }, zero = options.level or 3 }
end

--- Tensor parallel (Shoeybi et al., arXiv:1909.08053): heads, hidden units and vocabulary are split as layers say.
---@param options { ranks: integer }
function recipes.tensor(options) return { mesh = { tp = ranks_of("tensor", options) } } end

--- Tensor parallel in which what goes from block to block is split along the sequence (Korthikanti et al.,
--- arXiv:2205.05198): gathered before the products that are split, handed out in parts behind them, as many bytes as
--- sums of the whole; norms, dropout and what the backward keeps between blocks are a part on each rank. `blocks`
--- are the paths of the modules: "blocks.*".
---@param options { ranks: integer, blocks: string? }
function recipes.sequence(options)
  local ranks = ranks_of("sequence", options, { blocks = "text?" })
  return { mesh = { tp = ranks }, activations = { [options.blocks or "blocks.*"] = { tp = 1 } } }
end

--- Context parallel: each rank has a part of every sequence. `attention` takes whole keys and values ("gather"), parts
--- of the heads of the whole sequence ("heads"; Jacobs et al., arXiv:2309.14509), or keys and values block by block
--- ("ring"; Liu et al., arXiv:2310.01889), which keeps one rank's part of them alone; "auto" what sends least.
---@param options { ranks: integer, attention: "auto"|"gather"|"heads"|"ring"|nil } # auto
function recipes.context(options)
  return { mesh = { cp = ranks_of("context", options, { attention = "text?" }) }, attention = options.attention }
end

--- Expert parallel: each rank has rows of the batch and some of the experts.
---@param options { ranks: integer }
function recipes.expert(options) return { mesh = { ep = ranks_of("expert", options) } } end

--- Pipeline parallel: stages of the forward, cut between modules, take turns at micro-batches: schedule "gpipe" (Huang
--- et al., arXiv:1811.06965) all forward turns first, "1f1b" (Narayanan et al., arXiv:2006.09503) one of each as soon
--- as that can be, "interleaved" (arXiv:2104.04473) with `chunks` (2) of the forward on each stage, "zero-bubble" (Qi
--- et al., arXiv:2401.10241: ZB-H1) with gradients of weights where 1f1b would idle. `cut` says with which modules the
--- parts begin: { "blocks.5" }.
---@param options { stages: integer, micro: integer?, schedule: "gpipe"|"1f1b"|"interleaved"|"zero-bubble"|nil, chunks: integer?, cut: string|string[]|nil } # 1f1b
function recipes.pipeline(options)
  check.options("plan.pipeline", options,
    { stages = "size", micro = "size?", schedule = "text?", chunks = "size?", cut = "any?" })
  return { mesh = { pp = options.stages }, micro = options.micro, schedule = options.schedule or "1f1b",
    chunks = options.chunks, cut = options.cut }
end

return recipes
