/* fuzz_lua.c -- any bytes as a list of calls: of every function of the Lua library, with arguments that bytes choose among
 * numbers, texts, tables, functions, tensors and whatever earlier calls gave. A call may raise what it likes; the host
 * neither ends nor hangs, no status is INTERNAL, and closing gives back every byte.
 *
 * The driver is the script below. Its bounds are small, so that a run takes milliseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dsl/dsl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { MOST_BYTES = 512 };

static const char driver[] =
    "local sgl = require 'sgl'\n"
    "local at, functions, names, seen = 0, {}, {}, {}\n"
    "local function byte() at = at + 1; return bytes:byte(at) or 0 end\n"
    "local function collect(path, value, depth)\n"
    "  if type(value) == 'function' then names[#names + 1] = path; functions[path] = value\n"
    "  elseif type(value) == 'table' and depth < 4 and not seen[value] then\n"
    "    seen[value] = true\n"
    "    local keys = {}\n"
    "    for key in pairs(value) do if type(key) == 'string' then keys[#keys + 1] = key end end\n"
    "    table.sort(keys)\n"
    "    for _, key in ipairs(keys) do collect(path .. '.' .. key, value[key], depth + 1) end\n"
    "  end\n"
    "end\n"
    "for _, part in ipairs { 'nn', 'optim', 'data', 'models', 'plan' } do pcall(function() return sgl[part] end) end\n"
    "collect('sgl', sgl, 0)\n"
    "table.sort(names)\n"
    "local words = { 'dim', 'heads', 'vocab', 'layers', 'dtype', 'axis', 'axes', 'keep', 'to', 'f32', 'i32', 'bool', 'x', '', 'lr',\n"
    "  'eps', 'size', 'start', 'stop', 'seq', 'batch', 'path', 'loss', 'model', 'optim', 'init' }\n"
    "local function run()\n"
    "  local pool = {}\n"
    "  local function argument(depth)\n"
    "    local kind = byte() % 12\n"
    "    if kind < 4 and #pool > 0 then return pool[byte() % #pool + 1] end\n"
    "    if kind == 4 then return byte() - 8 end\n"
    "    if kind == 5 then return (byte() - 128) / 7 end\n"
    "    if kind == 6 then return words[byte() % #words + 1] end\n"
    "    if kind == 7 then return ({ true, false, 1e300, -1, 0/0, math.maxinteger, math.mininteger })[byte() % 7 + 1] end\n"
    "    if kind == 8 and depth < 3 then\n"
    "      local list = {}\n"
    "      for i = 1, byte() % 4 do list[i] = argument(depth + 1) end\n"
    "      return list\n"
    "    end\n"
    "    if kind == 9 and depth < 3 then\n"
    "      local fields = {}\n"
    "      for _ = 1, byte() % 5 do fields[words[byte() % #words + 1]] = argument(depth + 1) end\n"
    "      return fields\n"
    "    end\n"
    "    if kind == 10 then local n = byte(); return function(...) return n % 2 == 0 and (...) or pool[n % (#pool + 1)] end end\n"
    "    return nil\n"
    "  end\n"
    "  for i = 1, 3 do\n"
    "    pool[i] = core.input('parameter', 'p' .. i, i == 3 and 'i32' or 'f32', ({ { 2, 3 }, { 3 }, { 2 } })[i])\n"
    "  end\n"
    "  while at < #bytes do\n"
    "    local name = names[byte() % #names + 1 + (byte() % 4) * 256 < #names and byte() % #names + 1 or 1]\n"
    "    local results = table.pack(pcall(functions[name], argument(0), argument(0), argument(0)))\n"
    "    for i = 2, math.min(results.n, 4) do if results[1] and results[i] ~= nil then pool[#pool + 1] = results[i] end end\n"
    "    if #pool > 64 then pool[1] = table.remove(pool) end\n"
    "  end\n"
    "end\n"
    "pcall(core.trace, 'calls', run)\n"
    "return core.job {}\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static char text[sizeof driver + 4 * MOST_BYTES + 256];
    if (bytes > MOST_BYTES) return 0;
    int length = snprintf(text, sizeof text, "local core = require 'sgl.core'\nlocal bytes = \"");
    for (size_t i = 0; i < bytes; i++)
        length += snprintf(text + length, sizeof text - (size_t)length, "\\%03d", data[i]);
    length += snprintf(text + length, sizeof text - (size_t)length, "\"\n%s", driver);

    sgl_vm *vm = NULL;
    sgl_job *job = NULL;
    const sgldsl_limits limits = {
        .instructions = 5000000, .cpu_ms = 2000, .memory_bytes = 64 << 20, .graph_units = 200000
    };
    const sgldsl_source source = { .name = "calls.lua", .text = text, .bytes = (size_t)length };
    if (sgl_open(NULL, &vm) != SGL_OK) abort();
    sgl_status status = sgldsl_load(vm, &source, NULL, 0, &limits, &job);
    if (status == SGL_INTERNAL || (status != SGL_OK && sgl_error_message(vm)[0] == '\0')) abort();
    sgl_close(vm);
    return 0;
}
