-- Small grey images drawn from a seed, for examples that need some: no file is read and nothing is fetched.
--   local shapes = require "shapes"
--   data = shapes.data { image = 16, batch = 64, seed = 1 }
-- It feeds images f32 [batch, image, image, 1] and labels i32 [batch]. One of ten shapes stands at a place, of a size,
-- of a brightness by chance, in noise. Images of an evaluation come from other seeds than those of the training, which
-- never sees them.

local sgl = require "sgl"
local shapes = { classes = 10 }

-- Whether a shape has the point (x, y), both in -1 .. 1.
local holds = {
  function(x, y) return x * x + y * y < 1 end,                                  -- disc
  function(x, y) local r = x * x + y * y return r < 1 and r > 0.4 end,          -- ring
  function(x, y) return math.max(math.abs(x), math.abs(y)) < 0.85 end,          -- square
  function(x, y) local r = math.max(math.abs(x), math.abs(y)) return r < 0.9 and r > 0.55 end, -- frame
  function(x, y) return math.abs(x) < 0.25 or math.abs(y) < 0.25 end,           -- plus
  function(x, y) return math.abs(x - y) < 0.35 or math.abs(x + y) < 0.35 end,   -- cross
  function(x, y) return math.abs(x) * 1.4 < (1 + y) / 2 + 0.1 end,              -- triangle
  function(x, _) return x // 0.4 % 2 == 0 end,                                  -- upright bars
  function(_, y) return y // 0.4 % 2 == 0 end,                                  -- level bars
  function(x, y) return (x // 0.5 + y // 0.5) % 2 == 0 end,                     -- chessboard
}

-- Numbers in 0 .. 1 from splitmix64 (Steele, Lea, Flood, 2014).
local function chance(seed)
  local state = seed
  return function()
    state = state + 0x9E3779B97F4A7C15
    local z = state
    z = (z ~ z >> 30) * 0xBF58476D1CE4E5B9
    z = (z ~ z >> 27) * 0x94D049BB133111EB
    return ((z ~ z >> 31) >> 11) * 2.0 ^ -53
  end
end

local function draw(random, image, into, at)
  local label = math.tointeger(random() * shapes.classes // 1)
  local size = image * (0.25 + 0.15 * random())
  local left, top = size + random() * (image - 2 * size), size + random() * (image - 2 * size)
  local light, has = 0.6 + 0.4 * random(), holds[label + 1]
  for row = 0, image - 1 do
    local y = (row + 0.5 - top) / size
    for column = 0, image - 1 do
      local x = (column + 0.5 - left) / size
      local inside = x > -1 and x < 1 and y > -1 and y < 1 and has(x, y)
      into[at] = (inside and light or 0) + 0.3 * (random() - 0.5)
      at = at + 1
    end
  end
  return label, at
end

function shapes.data(options)
  local image, batch = options.image, options.batch
  return sgl.data.batches {
    feeds = {
      images = { dtype = "f32", dims = { batch, image, image, 1 } }, labels = { dtype = "i32", dims = { batch } },
    },
    next = function(cursor, is_eval)
      local random = chance((options.seed << 40) + (is_eval and 1 << 39 or 0) + (cursor << 8))
      local images, labels, at = {}, {}, 1
      for i = 1, batch do labels[i], at = draw(random, image, images, at) end
      return { images = images, labels = labels }
    end,
  }
end

return shapes
