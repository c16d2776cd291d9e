--- names: what to say of a name that is not there: the nearest one, the one that other libraries' users mean, or all.
--- Comes in: the name and those that there are. Goes out: the end of a message, "; did you mean 'x'?" or the like.
--- Invariant: a name of another library is told only where what it stands for is there.

local core = require "sgl.core"

local names = {}

-- What PyTorch, JAX and the model cards of others call things, and what of it may be here.
local elsewhere = {
  betas = { "beta1" }, learning_rate = { "lr", "peak" }, wd = { "weight_decay" }, epsilon = { "eps" },
  max_grad_norm = { "clip" }, grad_clip = { "clip" }, clip_grad = { "clip" },
  max_lr = { "peak" }, peak_lr = { "peak" }, lr = { "peak" }, min_lr = { "final" }, eta_min = { "final" },
  warmup_steps = { "warmup" }, total_steps = { "steps" }, max_steps = { "steps" }, T_max = { "steps" },
  n_layer = { "layers" }, n_layers = { "layers" }, num_layers = { "layers" }, num_hidden_layers = { "layers" },
  n_head = { "heads" }, n_heads = { "heads" }, num_heads = { "heads" }, num_attention_heads = { "heads" },
  n_kv_heads = { "kv_heads" }, num_kv_heads = { "kv_heads" }, num_key_value_heads = { "kv_heads" },
  d_model = { "dim" }, n_embd = { "dim" }, embed_dim = { "dim" }, hidden_size = { "dim" }, embedding_dim = { "dim" },
  intermediate_size = { "ffn", "hidden" }, ffn_dim = { "ffn" }, d_ff = { "ffn" }, hidden_dim = { "ffn", "hidden" },
  vocab_size = { "vocab" }, num_embeddings = { "vocab" }, rope_theta = { "rope" }, is_causal = { "causal" },
  seq_len = { "seq" }, block_size = { "seq" }, context_length = { "seq" }, max_seq_len = { "seq" },
  batch_size = { "batch" }, val_split = { "held_out" }, validation_split = { "held_out" },
  gradient_accumulation_steps = { "micro" }, grad_accum = { "micro" }, optimizer = { "optim" }, loss_fn = { "loss" },
  randn = { "normal" }, rand = { "uniform" }, randn_like = { "normal" }, rand_like = { "uniform" },
  cat = { "concat" }, concatenate = { "concat" },
  clip = { "clamp" },
  view = { "reshape" }, permute = { "transpose" }, mm = { "matmul" }, bmm = { "matmul" }, arange = { "iota" },
  detach = { "stop_gradient" }, no_grad = { "stop_gradient" }, to = { "cast" }, type = { "cast" },
  float = { "cast" }, half = { "cast" }, double = { "cast" }, bfloat16 = { "cast" }, long = { "cast" },
  int = { "cast" }, astype = { "cast" }, tensor = { "constant" }, array = { "constant" },
  scatter = { "dynamic_update" }, T = { "transpose" },
  t = { "transpose" }, swapaxes = { "transpose" }, ndim = { "rank" }, dim = { "rank" }, numel = { "shape" },
  expand = { "broadcast" }, broadcast_to = { "broadcast" }, eq = { "equal" }, lt = { "less" },
  gt = { "greater" }, le = { "less_equal" }, ge = { "greater_equal" }, topk = { "top_k" }, amax = { "max" },
  amin = { "min" }, ne = { "not_equal" },
  size = { "shape" }, isnan = { "is_nan" }, isfinite = { "is_finite" },
  Linear = { "linear" }, Embedding = { "embedding" }, LayerNorm = { "layer_norm" }, RMSNorm = { "rms_norm" },
  Conv1d = { "conv1d" }, Conv2d = { "conv2d" }, ConvTranspose1d = { "conv_transpose1d" },
  ConvTranspose2d = { "conv_transpose2d" }, BatchNorm1d = { "batch_norm" }, BatchNorm2d = { "batch_norm" },
  GroupNorm = { "group_norm" }, MaxPool2d = { "max_pool" }, AvgPool2d = { "avg_pool" }, MLP = { "mlp" },
  MoE = { "moe" }, LSTM = { "lstm" }, GRU = { "gru" }, resnet = { "convnet" },
  masked_fill = { "select" }, chunk = { "split" }, narrow = { "slice" }, index_select = { "gather" },
  register_buffer = { "buffer" }, past_key_values = { "cache" }, kv_cache = { "cache" },
  Dropout = { "dropout" }, Module = { "module" }, Parameter = { "parameter" },
  CrossEntropyLoss = { "cross_entropy" }, MultiheadAttention = { "attention" }, Adam = { "adamw" }, adam = { "adamw" },
  AdamW = { "adamw" }, SGD = { "sgd" }, CosineAnnealingLR = { "cosine" },
}

local in_a_row = "nn.stack(count, make) repeats one kind of block; of different layers: "
  .. "nn.module(\"row\", { first = a, second = b }, function(x) return b(a(x)) end)"

-- What is another thing altogether here.
local elsewise = {
  sequential = in_a_row, Sequential = in_a_row,
  backward = "an optimizer's minimize, or sgl.grad(loss, parameters), derives a loss",
  item = "while a graph is traced a tensor has no number; sgl.log shows one at each step",
  numpy = "while a graph is traced a tensor has no numbers; sgl.log shows one at each step",
  zero_grad = "gradients are values of one step, there is nothing to clear",
  requires_grad = "sgl.grad says by what is derived, nn.freeze what does not learn",
  cuda = "sgl train --device says where a job runs", cpu = "sgl train --device says where a job runs",
  copy_ = "tensors do not change; sgl.update gives a parameter or state a new value",
  add_ = "tensors do not change: write x = x + y", mul_ = "tensors do not change: write x = x * y",
  norm = "it is (x * x):sum():sqrt()",
  mse_loss = "the mean square is (y - t):square():mean()", MSELoss = "the mean square is (y - t):square():mean()",
  BCEWithLogitsLoss = "of logits it is (y:softplus() - y * t):mean()",
  binary_cross_entropy_with_logits = "of logits it is (y:softplus() - y * t):mean()",
}

--- The keys of a table in their order, so that nothing depends on that of pairs.
---@param by_key table<string, any>
---@return string[]
function names.sorted(by_key)
  local keys = {}
  for key in pairs(by_key) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

--- The end of the message that there is no `name`.
---@param name any
---@param known string[] what there is, sorted; a short list is told whole where nothing is near
---@return string
function names.hint(name, known)
  if elsewise[name] then return "; " .. elsewise[name] end
  local has = {}
  for _, one in ipairs(known) do has[one] = true end
  for _, meant in ipairs(elsewhere[name] or {}) do
    if has[meant] then return ("; here it is '%s'"):format(meant) .. (name == "betas" and " and 'beta2'" or "") end
  end
  local near = core.hint(tostring(name), known)
  if near ~= "" or #known == 0 or #known > 40 then return near end
  return "; there are " .. table.concat(known, ", ")
end

return names
