#!/bin/sh
# Dims with buckets: the same numbers in every bucket, to 1e-12 in f64, on a llama and on a script of one's own; what would
# count padding is refused at its line; training, evaluation, resuming, memory, micro-batches, recompute, generation.
. "$ROOT/tests/e2e/common.sh"
cat >near.lua <<'LUA'
-- near.lua A B: losses, norms and held-out losses of two logs agree to 1e-12.
local function read(path)
  local list = {}
  for line in io.lines(path) do
    for _, key in ipairs { "loss", "grad_norm", "eval_loss" } do
      local text = line:match('"' .. key .. '":([^,}]*)')
      if text then list[#list + 1] = assert(tonumber(text), line) end
    end
  end
  return list
end
local a, b = read(arg[1]), read(arg[2])
assert(#a == #b and #a > 8, #a .. " and " .. #b .. " numbers")
for i = 1, #a do assert(math.abs(a[i] - b[i]) <= 1e-12 * math.abs(a[i]), ("number %d: %.17g, %.17g"):format(i, a[i], b[i])) end
LUA
near() { lua5.4 near.lua "$1" "$2" || fail "$1 and $2 differ"; }

# Rows of 2 .. 18 tokens, in every third batch of 2 .. 6.
cat >rows.lua <<'LUA'
return function(cursor, batch, vocab)
  local tokens, targets, labels, x = {}, {}, {}, cursor * 7 + 3
  for r = 1, batch do
    local n = 2 + (cursor * 5 + r * 3) % (cursor % 3 == 0 and 5 or 17)
    tokens[r], targets[r], labels[r] = {}, {}, n % 4
    for i = 1, n do
      x = (x * 1103515245 + 12345) % 2147483648
      tokens[r][i] = x // 65536 % vocab
      targets[r][i] = (tokens[r][i] * 3 + 1) % vocab
    end
  end
  return tokens, targets, labels
end
LUA
cat >llama.lua <<'LUA'
local sgl = require "sgl"
local rows = require "rows"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data
local cfg = sgl.config { dim = 16, layers = 2, batch = 3, causal = true, drop = 0.0 }
local seq = sgl.dim("seq", { buckets = { 8, 16, 32 } })
local function block()
  local attn = nn.attention { dim = cfg.dim, heads = 2, kv_heads = 1, rope = 1e4, causal = cfg.causal }
  local ffn, drop = nn.swiglu(cfg.dim, 24), nn.dropout(cfg.drop)
  local norm1, norm2 = nn.rms_norm(cfg.dim), nn.rms_norm(cfg.dim)
  return nn.module("block", { norm1 = norm1, attn = attn, norm2 = norm2, ffn = ffn, drop = drop }, function(x)
    x = x + drop(attn(norm1(x)))
    return x + ffn(norm2(x))
  end)
end
local embed, blocks, norm = nn.embedding(40, cfg.dim), nn.stack(cfg.layers, block), nn.rms_norm(cfg.dim)
local model = nn.module("llama", { embed = embed, blocks = blocks, norm = norm }, function(tokens)
  return nn.tied_head(embed, norm(blocks(embed(tokens))))
end)
local ids = { dtype = "i32", dims = { cfg.batch, seq } }
return sgl.job {
  model = model, steps = 7, eval_every = 4, eval_batches = 3,
  loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = data.batches { feeds = { tokens = ids, targets = ids }, next = function(cursor, is_eval)
    local tokens, targets = rows(cursor + (is_eval and 100 or 0), cfg.batch, 40)
    return { tokens = tokens, targets = targets }
  end },
  optim = optim.adamw { lr = 1e-2, clip = 1.0 },
}
LUA
every=$(seq -s, 2 18)
train() { # LOG ARGUMENT...
    name=$1
    shift
    rm -rf run
    run 0 train "$@" --out run --log "$name.log"
}

# ---- a llama: padded in buckets, to the largest, and not at all
for how in 'causal=true' 'causal=false --set drop=0.2'; do
    with="llama.lua --set plan.precision=fp64 --set $how"
    train buckets $with
    says out 'seq=8' 'seq=16' 'seq=32'
    train largest $with --set dim.seq=32
    says_not out 'seq=8'
    near buckets.log largest.log
    train none $with --set batch=1 --set dim.seq="$every,32"
    train padded $with --set batch=1 --set dim.seq=32
    near none.log padded.log
    train whole $with --set batch=4
    train micro $with --set batch=4 --set plan.micro=2
    near whole.log micro.log
    # The longest step of the plan needs more than this: some of it is made again.
    run 0 memory llama.lua --set plan.precision=fp64 --set $how
    total=$(awk '$1 == "total" { gsub(",", "", $2); print $2 }' out)
    train again $with --memory $((total * 9 / 10))
    cmp -s again.log buckets.log || near again.log buckets.log
done

# ---- tokens are those of the data, the log names the bucket, a run that goes on is the same run
run 0 train llama.lua --set drop=0.2 --out whole --log whole.log
# 2 + (5 * cursor + 3 * row) % 17 or 5
want=$(lua5.4 -e 'local n = 0 for c = 0, 6 do for r = 1, 3 do n = n + 2 + (c * 5 + r * 3) % (c % 3 == 0 and 5 or 17) end end print(n)')
says whole.log "\"tokens\":$want," '"bucket":"seq=8"' '"bucket":"seq=16"' '"bucket":"seq=32"'
run 0 train llama.lua --set drop=0.2 --out parts --log parts.log --stop-at 3
run 0 train llama.lua --out parts --log parts.log --resume
for file in parameters states; do
    cmp whole/step-00000007/$file.safetensors parts/step-00000007/$file.safetensors || fail "$file differs after --resume"
done
strip() { sed 's/"tokens_per_s":[^,]*,"step_ms":[^,]*,//' "$1"; }
strip whole.log >a
strip parts.log >b
cmp a b || fail "the log of a resumed run differs"
run 0 eval whole
says out "held-out loss $(lua5.4 -e "print(('%.4f'):format($(log eval_loss whole.log 7)))")"
run 0 generate whole --prompt-ids 1,2,3 --tokens 4

# ---- seeing before running
run 0 memory llama.lua
says out 'seq=8 ' 'seq=16 ' 'seq=32 ' 'memory of program "train"'
run 0 graph llama.lua
says out 'i32[3,32]' '"dim.seq"'
run 0 graph llama.lua --set dim.seq=8,16
says out 'i32[3,16]'
run 0 train llama.lua --device null
run 0 train llama.lua --set plan.precision=fp16 --out half
run 0 train llama.lua --trace-nan --out traced
run 0 train llama.lua --profile 2 --out profiled

# ---- a script of one's own
cat >own.lua <<'LUA'
local sgl = require "sgl"
local rows = require "rows"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data
local cfg = sgl.config { way = "mean", batch = 3, dim = 8 }
local seq = sgl.dim("seq", { buckets = { 6, 12, 24 } })
local embed, head, proj = nn.embedding(20, cfg.dim), nn.linear(cfg.dim, 4), nn.linear(cfg.dim, cfg.dim)
local parts = {
  embed = embed, head = head, proj = proj, lstm = nn.lstm(cfg.dim, cfg.dim), back = nn.gru(cfg.dim, cfg.dim, { reverse = true }),
  moe = nn.moe { dim = cfg.dim, hidden = 12, experts = 4, top_k = 2, balance = 0.01, z_loss = 0.01, bias_rate = 0.001 },
  moe_capacity = nn.moe { dim = cfg.dim, hidden = 12, experts = 4, top_k = 2, capacity = 1 },
  attn = nn.attention { dim = cfg.dim, heads = 2, causal = false }, drop = nn.dropout(0.2),
  conv = nn.conv1d(cfg.dim, cfg.dim, 3, { padding = "same" }), bn = nn.batch_norm(cfg.dim),
}
local function mask() return seq:mask():unsqueeze(-1) end
local function held(x, number) return sgl.select(mask(), x, number or 0) end
local function mean(x) return held(x):sum(1) / sgl.cast(seq:lengths(), x:dtype()):unsqueeze(1) end
local function along(x) return x:transpose(1, 0, 2) end
local function zeros(x) return sgl.zeros({ cfg.batch, cfg.dim }, x:dtype()) end
local function decay(c, x) local new = c * 0.9 + x return new, new end
local ways = {
  mean = mean,
  mean_by_product = function(x)
    local m = sgl.cast(mask(), x:dtype())
    return (x * m):sum(1) / m:sum(1)
  end,
  max = function(x) return held(x, -math.huge):max(1) end,
  first = function(x) return parts.attn(x):slice(1, 0, 1):reshape(cfg.batch, cfg.dim) end,
  lstm = function(x) local y, s = parts.lstm(x) return s.h + mean(y) end,
  gru_reverse = function(x) local y, s = parts.back(x) return s.h + mean(y) end,
  conv = function(x) return mean(parts.conv(held(x))) end,
  moe = function(x) return mean(parts.moe(x)) end,
  dropout = function(x) return mean(parts.drop(x)) end,
  batch_norm = function(x) return mean(parts.bn(x)) end,
  softmax = function(x)
    local scores = sgl.einsum("btd,bsd->bts", proj(x), x)
    local weights = sgl.select(seq:mask():unsqueeze(1), scores, -math.huge):softmax()
    return mean(sgl.einsum("bts,bsd->btd", weights, x))
  end,
  scan = function(x)
    return (sgl.scan(function(c, x) return sgl.select(x.m, c * 0.9 + x.x, c) end, zeros(x),
      { x = along(x), m = along(mask()) }))
  end,
  scan_places = function(x) local _, ys = sgl.scan(decay, zeros(x), along(x)) return mean(along(ys)) end,
  layers = function(x) return mean((sgl.scan(function(c) return sgl.tanh(proj(c)) end, x, nil, { length = 3 }))) end,
  running = function(x) return mean(x:cumsum(1) + held(x):cumsum(1, { reverse = true })) end,
  shifted = function(x) return mean(x:pad(1, 1, 0, 0):slice(1, 0, -1) * x) end,
  flat = function(x) return mean(proj(x:reshape(-1, cfg.dim)):reshape(cfg.batch, seq:extent(), cfg.dim)) end,
  gradient = function(x) return mean(sgl.grad(mean(x * x):sum(), x)) * 3 end,
  over_rows = function(x) return held(x):sum(0):sum(0):broadcast(cfg.batch, cfg.dim) end,
  merged_heads = function(x) -- [b, t, h, d] to [b * h, t, d] and back
    local t, b, h = seq:extent(), cfg.batch, 2
    local q = x:reshape(b, t, h, 4):transpose(0, 2, 1, 3):reshape(b * h, t, 4)
    local m = seq:mask():reshape(b, 1, 1, t):broadcast(b, h, 1, t):reshape(b * h, 1, t)
    local w = sgl.select(m, q:matmul(q:transpose(0, 2, 1)), -math.huge):softmax()
    return mean(w:matmul(q):reshape(b, h, t, 4):transpose(0, 2, 1, 3):reshape(b, t, cfg.dim))
  end,
  sorted = function(x) return held(x, math.huge):sort(1):slice(1, 0, 1):reshape(cfg.batch, cfg.dim) end,
  -- what must be refused
  bad_mean = function(x) return x:mean(1) end,
  bad_sum = function(x) return x:sum(1) end,
  bad_number = function(x) return held(x):sum(1) / x:shape(1) end,
  bad_choice = function(x) if x:shape(1) > 10 then return mean(x) * 2 end return mean(x) end,
  bad_max = function(x) return held(x):max(1) end,
  bad_flip = function(x) return mean(x:flip(1)) end,
  bad_conv = function(x) return mean(parts.conv(x)) end,
  bad_softmax = function(x)
    return mean(sgl.einsum("bts,bsd->btd", sgl.einsum("btd,bsd->bts", proj(x), x):softmax(), x))
  end,
  bad_scan = function(x) return (sgl.scan(decay, zeros(x), along(x))) end,
  bad_scan_reverse = function(x)
    local _, ys = sgl.scan(decay, zeros(x), along(x), { reverse = true })
    return mean(along(ys))
  end,
  bad_rows = function(x) return mean(x - x:sum(0, true)) end,
  bad_one_mask = function(x) return sgl.select(mask():slice(0, 0, 1), x, 0):sum(1) end,
  bad_any_mask = function(x) return sgl.select(seq:mask():any(0):unsqueeze(-1), x, 0):sum(1) end,
  bad_pairs = function(x)
    local own = x:reshape(cfg.batch, 1, seq:extent(), cfg.dim)
    local other = seq:mask():reshape(1, cfg.batch, seq:extent(), 1)
    return sgl.select(other, own, 0):sum(2):sum(1)
  end,
  bad_merged = function(x) -- the mask by heads and rows, x by rows and heads
    local t, b, h = seq:extent(), cfg.batch, 2
    local q = x:reshape(b, t, h, 4):transpose(0, 2, 1, 3):reshape(b * h, t, 4)
    local m = seq:mask():reshape(1, b, t):broadcast(h, b, t):reshape(b * h, t, 1)
    return sgl.select(m, q, 0):sum(1):reshape(b, cfg.dim)
  end,
  bad_attention = function(x)
    local heads = x:reshape(cfg.batch, seq:extent(), 2, cfg.dim // 2)
    local y = sgl.attention(heads, heads, heads, sgl.constant(0, "i64"), { scale = 1, causal = false })
    return mean(y:reshape(cfg.batch, seq:extent(), cfg.dim))
  end,
  bad_random = function(x)
    local zero = sgl.constant(0, "i64")
    return mean(x * sgl.random_uniform(zero, zero, zero, 1, x:shape(), x:dtype()))
  end,
  bad_iota = function(x) return mean(x) * sgl.iota({ seq:extent() }, 0, x:dtype()):sum() end,
  bad_capacity = function(x) return mean(parts.moe_capacity(x)) end,
  bad_loop = function(x)
    return (sgl.while_loop { init = { y = zeros(x) }, limit = 2,
      condition = function(c) return sgl.less(c.y:sum(), 1) end,
      body = function(c) return { y = c.y + x:sum(1) } end }).y
  end,
}
local model = nn.module("own", parts, function(tokens) return head(ways[cfg.way](embed(tokens))) end)
return sgl.job {
  model = model, steps = 4, eval_every = 2, eval_batches = 1,
  loss = function(batch)
    local loss, count = nn.cross_entropy(model(batch.tokens), batch.label)
    return cfg.way == "moe" and loss + nn.auxiliary_loss() or loss, count
  end,
  data = data.batches {
    feeds = { tokens = { dtype = "i32", dims = { cfg.batch, seq } }, label = { dtype = "i32", dims = { cfg.batch } } },
    next = function(cursor, is_eval)
      local tokens, _, labels = rows(cursor + (is_eval and 100 or 0), cfg.batch, 20)
      return { tokens = tokens, label = labels }
    end,
  },
  optim = optim.adamw { lr = 1e-2, clip = 1.0 },
}
LUA
for way in $(sed -n 's/^  \([a-z_]*\) = \(function(x)\|mean,\).*/\1/p' own.lua); do
    with="own.lua --set plan.precision=fp64 --set way=$way"
    case $way in
    bad_*) continue ;;
    esac
    train buckets $with
    train largest $with --set dim.seq=24
    near buckets.log largest.log
    train none $with --set batch=1 --set dim.seq="$every,24"
    train padded $with --set batch=1 --set dim.seq=24
    near none.log padded.log
done

# ---- two dims, each with buckets of its own: a decoder that looks at an encoder
cat >two.lua <<'LUA'
local sgl = require "sgl"
local rows = require "rows"
local nn, optim, data = sgl.nn, sgl.optim, sgl.data
local src, tgt = sgl.dim("src", { buckets = { 8, 24 } }), sgl.dim("tgt", { buckets = { 8, 24 } })
local embed, norm = nn.embedding(20, 8), nn.rms_norm(8)
local encode = nn.attention { dim = 8, heads = 2, causal = false }
local decode = nn.attention { dim = 8, heads = 2, rope = 1e4 }
local cross = nn.attention { dim = 8, heads = 2, context_dim = 8 }
local parts = { embed = embed, encode = encode, decode = decode, cross = cross, norm = norm }
local model = nn.module("two", parts, function(from, to)
  local context, x = encode(embed(from)), embed(to)
  x = x + decode(norm(x))
  return nn.tied_head(embed, x + cross(norm(x), { context = context }))
end)
local function ids(dim) return { dtype = "i32", dims = { 2, dim } } end
return sgl.job {
  model = model, steps = 5, eval_every = 3, eval_batches = 2,
  loss = function(batch) return nn.cross_entropy(model(batch.from, batch.tokens), batch.targets, { ignore = -7 }) end,
  data = data.batches { feeds = { from = ids(src), tokens = ids(tgt), targets = ids(tgt) }, next = function(cursor)
    local tokens, targets = rows(cursor, 2, 20)
    return { from = rows(cursor + 1, 2, 20), tokens = tokens, targets = targets }
  end },
  optim = optim.adamw { lr = 1e-2 },
}
LUA
train buckets two.lua --set plan.precision=fp64
says out 'src=24,tgt=8' 'src=8,tgt=24'
train largest two.lua --set plan.precision=fp64 --set dim.src=24 --set dim.tgt=24
near buckets.log largest.log
run 0 memory two.lua
says out 'src=8,tgt=8 ' 'src=8,tgt=24 ' 'src=24,tgt=8 ' 'src=24,tgt=24 '

# ---- what would count padding
line() { grep -n "^  $1 = " own.lua | cut -d: -f1; }
bad() { # WAY LINES-BELOW TEXT...
    way=$1
    at=$(($(line "$1") + $2))
    shift 2
    refused 1 "own.lua:$at: " "$@" -- train own.lua --set way="$way" --out nothing
    [ ! -e nothing/step-00000001 ] || fail "$way: a step was made"
}
counts="padding of the dim 'seq' in"
bad bad_mean 0 mean "$counts f32[3,6,8]" 'a mean divides by all entries' ':lengths()'
bad bad_sum 0 reduce_sum "$counts f32[3,6,8]" 'sgl.select(seq:mask(), x, 0)'
bad bad_number 0 'comes from an extent' ':lengths()'
refused 1 "$counts" 'the trace does something else here' "own.lua:$(line bad_choice)" -- \
    train own.lua --set way=bad_choice --set dim.seq=6,24 --out nothing
bad bad_max 0 reduce_max
bad bad_flip 0 'padding would come first'
bad bad_conv 0 'its windows read it'
bad bad_softmax 1 softmax
bad bad_scan 0 'the loop goes on with it where a row is over'
bad bad_scan_reverse 1 'the loop goes on with it where a row is over'
bad bad_rows 0 reduce_sum
bad bad_one_mask 0 'the op moves rows'
bad bad_any_mask 0 'in different places'
bad bad_pairs 3 reduce_sum
bad bad_merged 4 'in different places'
bad bad_attention 2 'queries see these keys' "the dim's :mask()"
bad bad_random 2 'a place is given another number'
bad bad_iota 0 reduce_sum 'as long as the bucket'
bad bad_capacity 0 'leave capacity out'
bad bad_loop 3 reduce_sum
# With one bucket too what depends on the extent is found.
refused 1 'comes from an extent' -- train own.lua --set way=bad_number --set dim.seq=24 --out nothing

# ---- rows, lengths, names
case_of() { awk -v line="$1" -v code="$2" 'NR == line { print code; next } { print }' llama.lua >case.lua; }
next_line=$(grep -n 'return { tokens = tokens' llama.lua | cut -d: -f1)
bad_batch() {
    case_of "$next_line" "$1"
    shift
    refused 1 "$@" -- train case.lua --out nothing
    [ ! -e nothing/step-00000001 ] || fail "a step was made"
}
refused 1 "llama.lua:5: dim 'seq': row 3 of the batch is 18 long, and the largest bucket is 16" -- \
    train llama.lua --set dim.seq=8,16 --out late
bad_batch 'targets[2][1] = nil return { tokens = tokens, targets = { targets[1], {}, targets[3] } }' "row 2 of 'targets' is empty"
bad_batch 'targets[2][#targets[2] + 1] = 1 return { tokens = tokens, targets = targets }' \
    "row 2 of 'tokens' is" "long, but" "in another feed of 'seq'"
bad_batch 'return { tokens = { tokens[1] }, targets = targets }' "'tokens' must be a list of 3 rows" 'one of 1'
bad_batch 'return { tokens = 3, targets = targets }' "'tokens' must be a list of 3 rows" 'a number'
bad_batch 'tokens[1] = 7 return { tokens = tokens, targets = targets }' "row 1 of 'tokens' is a number"
bad_batch 'tokens[1][1] = 40 return { tokens = tokens, targets = targets }' "is 40; the model takes 0 .. 39 there"
bad_batch 'tokens[1][1] = "x" return { tokens = tokens, targets = targets }' "'tokens' is x, which is no i32"
bad_batch 'return nil' 'gives no batch'
# Rows as strings of bytes, and what stands behind them by name.
case_of "$next_line" 'for r = 1, 3 do tokens[r] = ("i4"):rep(#tokens[r]):pack(table.unpack(tokens[r])) end return { tokens = tokens, targets = targets }'
train strings case.lua --set plan.precision=fp64 --set causal=true
train numbers llama.lua --set plan.precision=fp64 --set causal=true
near strings.log numbers.log
refused 1 "job: there is no dim 'seqs'; did you mean 'seq'?" -- train llama.lua --set dim.seqs=8 --out nothing
refused 1 "dim 'seq': bucket 1 must be an integer of at least 1, not 0" -- graph llama.lua --set dim.seq=0
refused 1 "dim 'seq': buckets must increase, and 8 comes behind 16" -- graph llama.lua --set dim.seq=16,8
bad_dim() {
    case_of 5 "$1"
    shift
    refused 1 "case.lua:5: $1" -- graph case.lua
}
bad_dim 'local seq = sgl.dim("seq", { buckets = {} })' "dim 'seq': give the extents that it may have"
bad_dim 'local seq = sgl.dim("seq", { bucket = { 8 } })' "dim 'seq': there is no option 'bucket'; did you mean 'buckets'?"
bad_dim 'local seq = sgl.dim("a b", { buckets = { 8 } })' "dim: 'a b' is no name"
bad_dim 'local seq = sgl.dim("seq", { buckets = { 8 } }) sgl.dim("seq", { buckets = { 8 } })' "dim: there is one with the name 'seq' already"
