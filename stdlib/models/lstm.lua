--- models.lstm: layers of nn.lstm or nn.gru over an embedding, and a head of its own (Graves, arXiv:1308.0850).
--- Comes in: integer tokens [batch, t]. Goes out: logits [batch, t, vocab], not multiplied out.

local check = require "sgl.check"
local core = require "sgl.core"
local nn = require "sgl.nn"

---@param cfg { vocab: integer, dim: integer, hidden: integer, layers: integer, cell: "lstm"|"gru"|nil, dropout: number? } cell: default lstm
---@return sgl.module
return function(cfg)
  cfg = check.fields("models.lstm", cfg, {
    vocab = "size", dim = "size", hidden = "size", layers = "size", cell = "text?", dropout = "share?",
  })
  local cell = cfg.cell or "lstm"
  if cell ~= "lstm" and cell ~= "gru" then
    core.error(("models.lstm: cell must be 'lstm' or 'gru', not '%s'"):format(cell))
  end
  -- no norm follows the embedding, and gates want numbers of about 1
  local embed = nn.embedding(cfg.vocab, cfg.dim, { init = nn.init.normal(1) })
  local layers, drop = {}, nn.dropout(cfg.dropout or 0)
  for i = 1, cfg.layers do layers[i] = nn[cell](i == 1 and cfg.dim or cfg.hidden, cfg.hidden) end
  local head = nn.head(cfg.hidden, cfg.vocab, { init = nn.init.normal(cfg.hidden ^ -0.5) })
  return nn.module("lstm", { embed = embed, layers = layers, drop = drop, head = head }, function(tokens)
    local x = embed(tokens)
    for _, layer in ipairs(layers) do x = drop((layer(x))) end
    return head(x)
  end)
end
