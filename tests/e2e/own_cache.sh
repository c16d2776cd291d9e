#!/bin/sh
# Generation with layers of one's own: with nn.cache they go on token by token; without, each token reads the whole text
# again, the same text comes out, and the user is told; what sees later tokens is refused. Texts longer than the context.
. "$ROOT/tests/e2e/common.sh"
make_text 20000 text.txt
cat >own.lua <<'LUA'
-- A causal convolution over three places, and attention with a bias that falls with the distance.
local sgl = require "sgl"
local nn = sgl.nn
local cfg = sgl.config { kept = true, extra = "" }
local dim, heads = 32, 4
local cache = nn.cache
if not cfg.kept then
  cache = { position = function() return 0 end, along = function(_, x) return x end,
    state = function(_, x) return x, function() end end }
end
local qkv, out, conv = nn.linear(dim, 3 * dim, { bias = true }), nn.linear(dim, dim), nn.conv1d(dim, dim, 3)
local mix = nn.module("mix", { qkv = qkv, out = out, conv = conv }, function(x)
  local n, t = x:shape(0), x:shape(1)
  local before, keep = cache.state("before", sgl.zeros { n, 2, dim })
  local with_before = sgl.concat({ before, x }, 1)
  keep(with_before:slice(1, t))
  local q, k, v = qkv(x + conv(with_before)):reshape(n, t, 3 * heads, dim // heads):split(3, 2)
  k, v = cache.along("k", k):transpose(0, 2, 1, 3), cache.along("v", v):transpose(0, 2, 1, 3)
  local s = k:shape(2)
  local behind = sgl.iota({ t, s }, 0) + cache.position() - sgl.iota({ t, s }, 1)
  local slope = sgl.exp2((sgl.iota({ heads }, 0):cast("f32") + 1) * (-8 / heads)):reshape(heads, 1, 1)
  local scores = sgl.matmul(q:transpose(0, 2, 1, 3), k:transpose()) * (dim // heads) ^ -0.5 - slope * behind:cast("f32")
  local seen = sgl.select(sgl.less(behind, 0), -math.huge, scores):softmax()
  return out(sgl.matmul(seen, v):transpose(0, 2, 1, 3):reshape(n, t, dim))
end)
local attn = nn.attention { dim = dim, heads = heads }
local embed, norm1, norm2, norm3 = nn.embedding(256, dim), nn.rms_norm(dim), nn.rms_norm(dim), nn.rms_norm(dim)
local children = { embed = embed, norm1 = norm1, mix = mix, norm2 = norm2, attn = attn, norm3 = norm3 }
local model = nn.module("own", children, function(tokens)
  local x = embed(tokens)
  x = x + mix(norm1(x))
  x = x + attn(norm2(x))
  if cfg.extra == "mean" then x = x + x:mean(1, true) end
  if cfg.extra == "sum" then x = x + x:cumsum(1) * 0.1 end
  return nn.tied_head(embed, norm3(x))
end)
return sgl.job {
  model = model, loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.text { path = "text.txt", seq = 24, batch = 8 }, optim = sgl.optim.adamw { lr = 1e-2 }, steps = 60,
}
LUA
run 0 train own.lua --out kept --quiet
run 0 train own.lua --set kept=false --out fresh --quiet
for prompt in a 'the old king saw ' 'the grey cat remembered the long road and'; do
    for way in '--temperature 0' '--temperature 0.7 --seed 4'; do
        # shellcheck disable=SC2086
        run 0 generate kept --prompt "$prompt" --tokens 70 $way
        [ ! -s err ] || fail "it complained"
        mv out kept.txt
        # shellcheck disable=SC2086
        run 0 generate fresh --prompt "$prompt" --tokens 70 $way
        says err 'keeps nothing of them (nn.cache)' 'reads the whole text again'
        same out kept.txt
    done
done
run 0 generate fresh --prompt 'x' --tokens 0
[ "$(cat out)" = x ] || fail "--tokens 0"

# In bf16 and fp16 one token after another rounds otherwise than several at once: that is no disagreement, with caches or none.
cat >each.lua <<'LUA'
local sgl = require "sgl"
local nn = sgl.nn
local embed, mix, head = nn.embedding(256, 32), nn.linear(32, 32), nn.linear(32, 256)
local model = nn.module("each", { embed = embed, mix = mix, head = head }, function(tokens)
  local x = embed(tokens)
  return head(x + sgl.tanh(mix(x)) * x)
end)
return sgl.job {
  model = model, loss = function(batch) return nn.cross_entropy(model(batch.tokens), batch.targets) end,
  data = sgl.data.text { path = "text.txt", seq = 24, batch = 8 }, optim = sgl.optim.adamw { lr = 1e-2 }, steps = 30,
}
LUA
for precision in bf16 fp16; do
    for model in own each; do
        run 0 train $model.lua --set plan.precision=$precision --out $model.$precision --quiet
        run 0 generate $model.$precision --prompt 'the old ' --tokens 5
        [ ! -s err ] || fail "$model in $precision: it complained"
    done
done

# A part that nobody declares, beside others that are: told too.
run 0 train own.lua --set extra=sum --steps 5 --out sum --quiet
run 0 generate sum --prompt 'the old ' --tokens 5
says err 'reads the whole text again'
run 0 train own.lua --set extra=mean --steps 5 --out mean --quiet
refused 1 'changes with the tokens behind it' -- generate mean --prompt 'the old '

# Experts of a capacity drop tokens of a text, and none of a single one: that is no disagreement.
run 0 train "$ROOT/examples/moe.lua" $TINY --set capacity=0.5 --data text.txt --steps 5 --out moe --quiet
run 0 generate moe --prompt 'the old ' --tokens 5
[ ! -s err ] || fail "experts: it complained"

# A graph of it can be looked at; names and shapes of what is kept are checked.
run 0 graph own.lua --graph text
says out 'i32[1,24]'
bad() {
    sed "s|keep(with_before:slice(1, t))|$1|" own.lua >bad.lua
    shift
    refused 1 bad.lua:16: "$@" -- train bad.lua --steps 1 --out nothing --quiet
}
bad 'keep(x)' "cache.state: 'before' is f32[8,2,32], what is kept of it is f32[8,24,32]"
bad 'cache.along("k", 3)' "cache.along: 'k' must be a tensor [batch, t, ...], not 3"
bad 'cache.state("k")' "cache.state: what 'k' begins with must be a tensor, not nil"
bad 'cache.state(3, x)' 'cache.state: name must be'
