-- snippets.lua -- the blocks of code of a Markdown file, each as a file that a test can run.
-- In: the file, and a folder. Out, in the folder: one file per block, and `list`, a line "LINE KIND FILE TEXT" each.
-- What stands behind the three backticks says what a block is:
--   lua                     lines of the REPL, all of a file in one session; `--> TEXT` is what a line shows,
--                           `--> error: TEXT` how it fails
--   lua script NAME         a whole script, NAME.lua
--   lua frame               a script with a line `-- the piece`
--   lua piece               what stands in that line: a script of its own
--   lua piece error "TEXT"  one that must fail so
--   sh                      commands, run one after another where the scripts are
-- A frame that readers need not see stands in a comment, `<!-- frame` to `-->`. Odd invariant: a block of any other
-- kind is a failure, so none is left out unseen.

local path, folder = arg[1], arg[2]
local list, frame, repl, wanted, errors = {}, nil, {}, {}, {}

local function write(name, lines)
  local file = assert(io.open(folder .. "/" .. name, "w"))
  file:write(table.concat(lines, "\n"), "\n")
  file:close()
end

local function fail(line, ...)
  io.stderr:write(("%s:%d: %s\n"):format(path, line, string.format(...)))
  os.exit(1)
end

local function add_repl(lines)
  for _, line in ipairs(lines) do
    local shown = line:match "%-%->%s*(.*)$"
    local told = shown and shown:match "^error: (.*)$"
    if told then errors[#errors + 1] = told elseif shown then wanted[#wanted + 1] = shown end
    repl[#repl + 1] = line
  end
end

local function add_piece(line, lines, text)
  if not frame then fail(line, "there is no frame before this piece") end
  local whole, name = {}, ("piece%d.lua"):format(line)
  for _, of_frame in ipairs(frame) do
    if of_frame:match "^%s*%-%- the piece" then
      table.move(lines, 1, #lines, #whole + 1, whole)
    else
      whole[#whole + 1] = of_frame
    end
  end
  write(name, whole)
  list[#list + 1] = ("%d %s %s %s"):format(line, text and "refused" or "train", name, text or "")
end

local function add(line, info, lines)
  local script = info:match "^lua script (%w+)$"
  if info == "lua" then
    add_repl(lines)
  elseif script then
    write(script .. ".lua", lines)
    list[#list + 1] = ("%d train %s.lua"):format(line, script)
  elseif info == "lua frame" then
    frame = lines
  elseif info == "lua piece" then
    add_piece(line, lines)
  elseif info:match '^lua piece error ".*"$' then
    add_piece(line, lines, info:match '"(.*)"')
  elseif info == "sh" then
    write(("commands%d"):format(line), lines)
    list[#list + 1] = ("%d commands commands%d"):format(line, line)
  else
    fail(line, "a block of the kind '%s'", info)
  end
end

local info, lines, at, number
number = 0
for line in io.lines(path) do
  number = number + 1
  if info then
    if line == "```" or (info == "hidden" and line == "-->") then
      add(at, info == "hidden" and "lua frame" or info, lines)
      info = nil
    else
      lines[#lines + 1] = line
    end
  elseif line:match "^```" or line == "<!-- frame" then
    info, lines, at = line:match "^```(.*)$" or "hidden", {}, number
  end
end
if info then fail(at, "a block without end") end
if #repl > 0 then
  write("repl", repl)
  write("repl.wanted", wanted)
  write("repl.errors", errors)
  table.insert(list, 1, "0 repl repl")
end
write("list", list)
