--- models.vit: a transformer over the patches of images (Dosovitskiy et al., arXiv:2010.11929), with the mean over all
--- patches in place of a class token (Beyer et al., arXiv:2205.01580).
--- Comes in: images [n, image, image, channels]. Goes out: logits [n, classes].

local check = require "sgl.check"
local core = require "sgl.core"
local nn = require "sgl.nn"
local ops = require "sgl.ops"
local trace = require "sgl.trace"

---@param cfg { image: integer, patch: integer, channels: integer, classes: integer, dim: integer, layers: integer, heads: integer, hidden: integer?, dropout: number? } image, patch: sides in pixels; hidden: of the feed-forward blocks, default 4 * dim
---@return sgl.module
return function(cfg)
  cfg = check.fields("models.vit", cfg, {
    image = "size", patch = "size", channels = "size", classes = "size", dim = "size", layers = "size", heads = "size",
    hidden = "size?", dropout = "share?",
  })
  if cfg.image % cfg.patch ~= 0 then
    core.error(("models.vit: image (%d) is no multiple of patch (%d)"):format(cfg.image, cfg.patch))
  end
  local side, depth, hidden = cfg.image // cfg.patch, (2 * cfg.layers) ^ -0.5, cfg.hidden or 4 * cfg.dim
  local function block()
    local attn = nn.attention {
      dim = cfg.dim, heads = cfg.heads, causal = false, bias = true, init_out = nn.init.normal(depth * cfg.dim ^ -0.5),
    }
    local mlp = nn.mlp(cfg.dim, hidden, {
      init = nn.init.normal(cfg.dim ^ -0.5), init_out = nn.init.normal(depth * hidden ^ -0.5),
    })
    local norm1, norm2, drop = nn.layer_norm(cfg.dim), nn.layer_norm(cfg.dim), nn.dropout(cfg.dropout or 0)
    return nn.module("block", { norm1 = norm1, attn = attn, norm2 = norm2, mlp = mlp, drop = drop }, function(x)
      x = x + drop(attn(norm1(x)))
      return x + drop(mlp(norm2(x)))
    end)
  end

  local patches = nn.conv2d(cfg.channels, cfg.dim, cfg.patch, { stride = cfg.patch })
  local position, blocks, norm = nn.position(side * side, cfg.dim), nn.stack(cfg.layers, block), nn.layer_norm(cfg.dim)
  local head = nn.linear(cfg.dim, cfg.classes, { bias = true })
  local children = { patches = patches, position = position, blocks = blocks, norm = norm, head = head }
  return nn.module("vit", children, function(images)
    local x = ops.reshape(patches(ops.cast(images, trace.dtype())), ops.shape(images, 0), side * side, cfg.dim)
    return head(ops.mean(norm(blocks(position(x))), 1))
  end)
end
