/* test_dsl_pattern.c -- string.find, match, gmatch and gsub against Lua's own: the same results, and errors in the same cases.
 *
 * The original library is opened a second time inside a job, under another name; a Lua loop with a seeded generator compares
 * the two on made-up patterns and subjects, and on a list of odd ones.
 * One thread: nothing for the thread sanitizer, whose memory and depth of calls it exceeds. ctest: not under tsan */
#include <lualib.h>

#include "dsl_host.h"

static const char compare[] =
    "local original, ours = ...\n"
    "local function show(ok, ...)\n"
    "  if not ok then return 'an error' end\n" /* its words differ from one Lua 5.4.x to the next */
    "  local parts = {}\n"
    "  for i = 1, select('#', ...) do parts[#parts + 1] = math.type((select(i, ...))) or type((select(i, ...)))"
    "    parts[#parts + 1] = tostring((select(i, ...))) end\n"
    "  return table.concat(parts, '|')\n"
    "end\n"
    "local function all(lib, s, p, init)\n"
    "  local results = {}\n"
    "  local function add(...) results[#results + 1] = show(...) end\n"
    "  add(pcall(lib.find, s, p, init)) add(pcall(lib.match, s, p, init)) add(pcall(lib.find, s, p, init, true))\n"
    "  add(pcall(lib.gsub, s, p, '<%0%1>')) add(pcall(lib.gsub, s, p, '%2%%', 2)) add(pcall(lib.gsub, s, p, { a = 'A', b = false }))\n"
    "  add(pcall(lib.gsub, s, p, function(...) if select('#', ...) > 1 then return select('#', ...) end end))\n"
    "  add(pcall(function()\n"
    "    local found, count = {}, 0\n"
    "    for a, b in lib.gmatch(s, p, init) do\n"
    "      found[#found + 1] = tostring(a) .. '/' .. tostring(b) count = count + 1 if count > 50 then break end\n"
    "    end\n"
    "    return table.concat(found, ' ')\n"
    "  end))\n"
    "  return results\n"
    "end\n"
    "local count, errors = 0, 0\n"
    "local function check(s, p, init)\n"
    "  local a, b = all(original, s, p, init), all(ours, s, p, init)\n"
    "  for i = 1, #a do\n"
    "    if a[i] ~= b[i] then error(('%q %q %s, way %d: %s instead of %s'):format(s, p, tostring(init), i, b[i], a[i]), 0) end\n"
    "    if a[i] == 'an error' then errors = errors + 1 end\n"
    "  end\n"
    "  count = count + 1\n"
    "end\n"
    "local subjects = { '', 'a', 'hello world', '  trim me  ', 'k1 = v1, k2 = v2', 'f(a(b)c)d)', 'THE (quick) fox', '\\0a\\0b',\n"
    "  'aaaaab', 'x=1;y=22;z=333', '[[nested]]', 'a.b.c', '%d', 'caf\\xc3\\xa9', '-12.5e3', 'aXbXc' }\n"
    "local patterns = { '', '.', '^', '$', '^$', '%a+', '(%w+)%s*=%s*(%w+)', '^%s*(.-)%s*$', '%b()', '%f[%w]%w+', '%f[%a]', '()', '()a()',\n"
    "  '(a*(.)%w(%s*))', '[%a_][%w_]*', '[^%s]+', '[]]', '[^]]', '[a-]', '[-a]', '[a%-c]', '[%]]', '%%', '(.)%1', '(a)(b)%2', '%1', '(', ')',\n"
    "  '(()', '[', '[a', '[^', '%', '%b', '%bx', '%f', '%fa', 'a-', 'a-b', 'a?b', 'a*', '.-%.', '\\0', '[\\0]', '%z', '[%z]', '(.-)%d', '^a', 'a$', 'a$b',\n"
    "  '%d+%.?%d*', '[+-]?%d', '((%w)(%w))', '(%w)(%w)(%w)(%w)(%w)(%w)(%w)(%w)(%w)', '%u%l', '%S', '%W', '%x+', '%c', '%g', '%p', '*', '+', '?', '-',\n"
    "  ('a?'):rep(40) .. ('a'):rep(3), ('(a)'):rep(33), ('(.)'):rep(32), '(a', 'a)', '%g+()', '[a-z]+[0-9]*', '[z-a]', '[%d-z]', '[a-%d]' }\n"
    "for _, s in ipairs(subjects) do\n"
    "  for _, p in ipairs(patterns) do\n"
    "    for _, init in ipairs { 1, 2, 5, 0, -1, -3, -100, 100, math.maxinteger, math.mininteger } do check(s, p, init) end\n"
    "  end\n"
    "end\n"
    "assert(count > 10000 and errors > 1000)\n"
    "math.randomseed(42)\n"
    "local letters = { 'a', 'b', 'c', ' ', '1', '.', '(', ')', '\\0' }\n"
    "local items = { 'a', 'b', '.', '%a', '%d', '%s', '[ab]', '[^a]', '[a-c1]', '(', ')', '()', '%1', '^', '$', '%b()', '%f[a]', '%.', '[%w.]', '%W' }\n"
    "local suffixes = { '', '', '', '', '*', '+', '-', '?' }\n"
    "local function made(from, most, with)\n"
    "  local parts = {}\n"
    "  for i = 1, math.random(0, most) do\n"
    "    parts[i] = from[math.random(#from)] .. (with and with[math.random(#with)] or '')\n"
    "  end\n"
    "  return table.concat(parts)\n"
    "end\n"
    "for i = 1, 15000 do check(made(letters, 12), made(items, 6, suffixes), math.random(-3, 14)) end\n";

static int run_comparison(lua_State *L)
{
    lua_getglobal(L, "string");
    if (luaL_loadstring(L, compare) != LUA_OK) lua_error(L);
    luaopen_string(L);
    lua_pushvalue(L, -3);
    /* Opening it made it the strings' own library: give that back. */
    lua_pushliteral(L, "");
    lua_getmetatable(L, -1);
    lua_pushvalue(L, -3);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 2);
    lua_call(L, 2, 0);
    return 0;
}

static void test_against_the_original(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job;
    sgldsl_limits limits = sgldsl_default_limits;
    limits.cpu_ms = 200000;
    limits.instructions *= 10;
    dsl_open(&host);
    assert_int_equal(dsl_load_limited(&host, "return core.job {}", &limits, &job), SGL_OK);
    sgl_status status = sgldsl_enter(job, run_comparison, NULL);
    if (status != SGL_OK) fail_msg("%s", sgl_error_message(host.vm));
    dsl_close(&host);
}

static void test_replacements(void **state)
{
    (void)state;
    dsl_runs("assert(('hello world'):gsub('o', '0') == 'hell0 w0rld' and select(2, ('abc'):gsub('%w', '%0%0')) == 3)\n"
             "assert(('abc'):gsub('', '-') == '-a-b-c-' and ('abc'):gsub('b*', 'x') == 'xaxcx')\n"
             "assert(('$name is $age'):gsub('%$(%w+)', { name = 'Ann', age = 7 }) == 'Ann is 7')\n"
             "assert(('x'):gsub('x', 1.5) == '1.5' and ('abc'):gsub('()', '%1') == '1a2b3c4')\n"
             "assert(not pcall(string.gsub, 'x', 'x', '%') and not pcall(string.gsub, 'x', 'x', '%y'))\n"
             "assert(not pcall(string.gsub, 'x', 'x') and not pcall(string.gsub, 'x', 'x', function() return {} end))\n"
             "local s = ('ab'):rep(5000) assert(#s:gsub('a', 'xyz') == 20000)\n"
             "local ok, e = pcall(string.find, 'a', ('()'):rep(40)) assert(e:find('too many captures'))\n"
             "ok, e = pcall(string.find, ('a'):rep(300), ('a?'):rep(250)) assert(ok or e:find('too complex'))");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_original),
        cmocka_unit_test(test_replacements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
