#!/bin/sh
# Attention in its forms, as a script asks for them: packed documents learn what the same documents learn one by one,
# places of padding change nothing, generation agrees with the whole sequence; what does not fit is refused at its line.
. "$ROOT/tests/e2e/common.sh"

# ---- packed documents, and the same with a row of their own ------------------------------------------------------
cat >forms.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { form = "packed" }
local long, short, seq = 7, 5, 12
local rows = cfg.form == "packed" and 2 or 4

local embed, norm = nn.embedding(32, 16), nn.rms_norm(16)
local attn = nn.attention { dim = 16, heads = 4, kv_heads = 2, rope = 100, qk_norm = true, window = 4 }
local model = nn.module("m", { embed = embed, attn = attn, norm = norm }, function(batch)
  local x = embed(batch.tokens)
  local call = cfg.form == "packed" and { documents = batch.documents } or { mask = sgl.equal(batch.documents, 0) }
  return nn.tied_head(embed, norm(x + attn(x, call)))
end)

-- Two pairs of documents of 7 and 5 tokens. Packed: a pair is a row. Alone: each is a row, behind it padding.
local function next(cursor)
  local batch = { tokens = {}, targets = {}, documents = {} }
  local function put(token, target, document)
    for name, value in pairs { tokens = token, targets = target, documents = document } do
      table.insert(batch[name], value)
    end
  end
  for pair = 1, 2 do
    for number, length in ipairs { long, short } do
      for i = 1, length do
        local token = function(at) return (cursor * 7 + pair * 5 + number * 11 + at * at) % 32 end
        put(token(i), i < length and token(i + 1) or -1, cfg.form == "packed" and number - 1 or 0)
      end
      for _ = length + 1, cfg.form == "packed" and 0 or seq do put(3, -1, 1) end
    end
  end
  return batch
end

local feed = { dtype = "i32", dims = { rows, seq } }
return sgl.job {
  model = model, loss = function(batch) return nn.cross_entropy(model(batch), batch.targets) end,
  data = sgl.data.batches { feeds = { tokens = feed, targets = feed, documents = feed }, next = next },
  optim = sgl.optim.adamw { lr = 1e-2 }, steps = 20, plan = sgl.plan { precision = "fp64" },
}
LUA
for form in packed alone; do
    run 0 train forms.lua --set form=$form --out $form --log $form.log --quiet
done
for step in 1 7 20; do
    holds "($(log loss packed.log $step) - $(log loss alone.log $step))^2 < 1e-22"
    holds "($(log grad_norm packed.log $step) - $(log grad_norm alone.log $step))^2 < 1e-22"
done
holds "$(log loss packed.log 20) < $(log loss packed.log 1)"

# ---- data that packs ---------------------------------------------------------------------------------------------
make_text 20000 text
cat >pack.lua <<'LUA'
local sgl = require "sgl"
local cfg = sgl.config { ends = 10, pack = true, check = "" }
local model = sgl.models.llama {
  vocab = 128, dim = 16, layers = 2, heads = 2, ffn = 32, qk_norm = true, window = 24,
  rope = { theta = 1e4, factor = 4, original_context = 32 },
}
-- What was generated, to be seen as one sequence: at how many places it is not what the model would have said.
local feed = { dtype = "i32", dims = { 1, math.max(#cfg.check - 1, 1) } }
local seen = sgl.data.batches {
  feeds = { tokens = feed, targets = feed },
  next = function() return { tokens = { cfg.check:byte(1, -2) }, targets = { cfg.check:byte(2, -1) } } end,
}
local function count_differing(batch, prompt)
  local said = sgl.cast(model(batch.tokens):tensor():argmax(-1), "i32")
  sgl.log("differing", sgl.sum(sgl.not_equal(said, batch.targets):slice(1, prompt - 1)))
end

return sgl.job {
  model = model,
  loss = function(batch)
    if cfg.check ~= "" then count_differing(batch, 4) end
    local documents = cfg.pack and batch.documents or nil
    if cfg.pack then
      sgl.log("crossed", sgl.sum(sgl.logical_and(sgl.equal(batch.tokens, cfg.ends), sgl.greater(batch.targets, -1))))
      sgl.log("last", sgl.max(batch.documents))
    end
    return sgl.nn.cross_entropy(model(batch.tokens, documents), batch.targets)
  end,
  data = cfg.check ~= "" and seen or sgl.data.text {
    path = "text", vocab = 128, seq = 64, batch = 4, pack = cfg.pack, document_end = cfg.ends >= 0 and cfg.ends or nil,
  },
  optim = sgl.optim.adamw { lr = 3e-3 }, steps = 30, eval_every = 30, eval_batches = 1,
}
LUA
run 0 train pack.lua --out model --log pack.log --quiet
holds "$(log crossed pack.log 9) == 0 && $(log last pack.log 9) >= 1"
holds "$(log loss pack.log 30) < $(log loss pack.log 1)"
run 0 generate model --prompt 'the ' --tokens 40 --temperature 0
said=$(cat out)
[ ${#said} -ge 40 ] || fail "it generated '$said'"
run 0 train pack.lua --set check="$said" --set pack=false --set ends=-1 --resume model --steps 31 --log seen.log --quiet
holds "$(log differing seen.log 31) == 0"
run 0 graph pack.lua
grep -q 'attention(%[0-9]*, %[0-9]*, %[0-9]*, %[0-9]*, %[0-9]*, %[0-9]*)' out || fail "attention is given no segments"
run 0 graph pack.lua --set pack=false --set ends=-1
grep -q 'attention(%[0-9]*, %[0-9]*, %[0-9]*, %[0-9]*)' out || fail "attention of one segment is given some"
refused 1 'pack.lua:' 'pack needs document_end' -- graph pack.lua --set ends=-1
refused 1 'pack.lua:' 'document_end (128) is not below vocab (128)' -- graph pack.lua --set ends=128
refused 1 'pack.lua:' 'document_end needs pack' -- graph pack.lua --set pack=false

# ---- what does not fit -------------------------------------------------------------------------------------------
cat >base.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local embed = nn.embedding(32, 8)
local attn = nn.attention { dim = 8, heads = 2 }
local model = nn.module("m", { embed = embed, attn = attn }, function(tokens)
  local x = embed(tokens)
  x = attn(x)
  return nn.tied_head(embed, x)
end)
local feed = { dtype = "i32", dims = { 2, 6 } }
return sgl.job {
  model = model, loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.batches { feeds = { tokens = feed, targets = feed }, next = function() return nil end },
  optim = sgl.optim.adamw { lr = 1e-2 },
}
LUA
# bad LINE CODE TEXT...: the base with CODE as that line is refused there, with each text.
bad() {
    line=$1
    code=$2
    shift 2
    awk -v line="$line" -v code="$code" 'NR == line { print code; next } { print }' base.lua >case.lua
    run 1 graph case.lua
    head -n 1 err | grep -q "case.lua:$line: " || fail "'$code': the first line names not case.lua:$line"
    for text in "$@"; do says err "$text"; done
}
run 0 graph base.lua
bad 7 'x = attn(x, { mask = tokens })' 'attention: mask must be bool [2, 6], not i32[2,6]'
bad 7 'x = attn(x, { documents = sgl.less(tokens, 3) })' 'attention: documents must be integers [2, 6], not bool[2,6]'
bad 7 'x = attn(x, { masks = tokens })' "no option 'masks'" "'mask'"
bad 7 'x = attn(x, { context_mask = sgl.less(tokens, 3) })' 'context_mask needs context'
bad 7 'x = attn(x, { context = tokens })' 'attention: context must be [2, s, context_dim], not i32[2,6]'
bad 7 'x = attn(x, { context = x, documents = tokens })' 'places of a context are not those of x'
bad 7 'x = attn(x, { context = sgl.concat({ x, x }, 2) })' 'keys are made of 8 numbers, context has 16'
# made OPTIONS TEXT...: attention made with these is refused, with each text.
made() {
    options=$1
    shift
    bad 4 "local attn = nn.attention { dim = 8, $options }" "$@"
}
made "heads = 2, rope = { factor = 0 }" 'rope: factor must be'
made "heads = 2, rope = { original_context = 8 }" 'original_context needs factor'
made "heads = 2, rope = { low_freq_factor = 8 }" 'needs original_context'
made "heads = 2, rope = { factor = 2, original_context = 8, low_freq_factor = 4 }" \
    'low_freq_factor (4) must be below high_freq_factor (4)'
made "heads = 2, rope = { base = 2 }" "no option 'base'"
made "heads = 8, rope = 10" 'rope turns pairs, head_dim is 1'
