/* test_dsl_sandbox.c -- what a script finds and does not find, and that what was made anew behaves as Lua's own. */
#include "dsl_host.h"

static void test_left_out(void **state)
{
    (void)state;
    dsl_runs("for _, name in ipairs { 'io', 'debug', 'package', 'dofile', 'loadfile', 'warn', 'loadstring' } do\n"
             "  assert(_G[name] == nil, name)\n"
             "end\n"
             "for _, name in ipairs { 'execute', 'exit', 'getenv', 'remove', 'rename', 'setlocale', 'tmpname' } do\n"
             "  assert(os[name] == nil, name)\n"
             "end\n"
             "assert(string.dump == nil and math.type(os.time()) == 'integer' and os.clock() >= 0 and os.date('%Y'))\n"
             "assert(collectgarbage('count') > 0 and collectgarbage() == 0 and not pcall(collectgarbage, 'stop'))");
}

static void test_load(void **state)
{
    (void)state;
    dsl_runs("local f = load('return 1 + 1') assert(f() == 2)\n"
             "local g, message = load('\\27Lua') assert(g == nil and message:find('binary'))\n"
             "g, message = load('\\27Lua', 'x', 'b') assert(g == nil and message:find('binary'))\n"
             "g, message = load('return +', '=name') assert(g == nil and message:find('^name:1:'))\n"
             "assert(load('return x', 'x', 't', { x = 5 })() == 5)\n"
             "assert(not pcall(load, function() return 'return 1' end))\n"
             /* No text may call itself a part of the stdlib. */
             "local ok, err = pcall(load('error(1, 1) error(\"here\")', '=stdlib/nn.lua')) assert(not ok)\n"
             "ok, err = pcall(load('error(\"here\")', '=stdlib/nn.lua')) assert(err:find('^%(load%):1: here'))");
}

static void test_metatables(void **state)
{
    (void)state;
    dsl_runs(
        "assert(not pcall(setmetatable, {}, { __gc = function() end }))\n"
        "assert(not pcall(setmetatable, {}, { __gc = true }))\n"
        "local t = setmetatable({}, { __metatable = 'mine' })\n"
        "assert(getmetatable(t) == 'mine' and not pcall(setmetatable, t, {}))\n"
        "assert(setmetatable(t == nil and t or {}, nil) and not pcall(setmetatable, {}) and not pcall(setmetatable, 1, {}))\n"
        "core.trace('g', function()\n"
        "  local x = core.constant(1, 'f32')\n"
        "  assert(getmetatable(x) == 'tensor' and not pcall(setmetatable, x, {}))\n"
        "  assert(not pcall(function() x.field = 1 end) and not pcall(function() return x.field end))\n"
        "  assert(not pcall(rawset, x, 1, 1) and not pcall(rawget, x, 1) and not pcall(next, x) and not pcall(pairs, x))\n"
        "end)\n"
        "assert(getmetatable('').__index == string)");
}

static void test_pairs(void **state)
{
    (void)state;
    dsl_runs(
        "local function order(t)\n"
        "  local keys = {}\n"
        "  for k, v in pairs(t) do keys[#keys + 1] = tostring(k) assert(rawequal(t[k], v)) end\n"
        "  return table.concat(keys, ' ')\n"
        "end\n"
        "assert(order {} == '' and order { 5, 6, 7 } == '1 2 3')\n"
        "assert(order { norm2 = 1, attn = 2, ffn = 3, norm1 = 4 } == 'attn ffn norm1 norm2')\n"
        "assert(order { b = 1, [2.5] = 1, [-1] = 1, a = 1, [true] = 1, [false] = 1, [3] = 1, ['a\\0b'] = 1 }\n"
        "  == '-1 2.5 3 a a\\0b b false true')\n"
        "local many = {}\n"
        "for i = 1, 500 do many[('k%03d'):format(i * 7919 % 1000)] = i end\n"
        "local last, count = '', 0\n"
        "for k in pairs(many) do assert(last < k) last = k count = count + 1 end assert(count == 500)\n"
        /* A key that goes away while the table is walked is passed over. */
        "local t, seen = { x = 1, a = 2, m = 3 }, {}\n"
        "for k in pairs(t) do seen[#seen + 1] = k t.m = nil end assert(table.concat(seen) == 'ax')\n"
        "local other = setmetatable({}, { __pairs = function(s) return function(_, k) return not k or nil end, s, nil end })\n"
        "for k in pairs(other) do assert(k == true) end\n"
        "assert(not pcall(pairs) and not pcall(pairs, nil) and not pcall(pairs, 5))");
}

static void test_calls_in_protected_mode(void **state)
{
    (void)state;
    dsl_runs(
        "local function list(...) return table.concat({ ... }, ' ', 1, select('#', ...)) end\n"
        "assert(select('#', pcall(function() end)) == 1)\n"
        "local ok, a, b = pcall(function(...) return ... end, 1, 2) assert(ok and a == 1 and b == 2)\n"
        "local object = {}\n"
        "local ok, e = pcall(error, object) assert(not ok and e == object)\n"
        "ok, e = pcall(error) assert(not ok and e == nil)\n"
        "ok, e = xpcall(function(x) error(x, 0) end, function(m) return m .. '!' end, 'no') assert(not ok and e == 'no!')\n"
        "ok, e = xpcall(function(x) return x end, print, 7) assert(ok and e == 7)\n"
        "assert(not pcall(xpcall, print) and not pcall(pcall))\n"
        /* A pcall may be yielded across. */
        "local co = coroutine.wrap(function()\n"
        "  local ok, e = pcall(function() coroutine.yield(1) error('late', 0) end)\n"
        "  coroutine.yield(e)\n"
        "  return select(2, xpcall(function() coroutine.yield(3) error('later', 0) end, function(m) return m .. '?' end))\n"
        "end)\n"
        "assert(co() == 1 and co() == 'late' and co() == 3 and co() == 'later?')");
}

static void test_coroutines(void **state)
{
    (void)state;
    dsl_runs(
        "local co = coroutine.create(function(a, b)\n"
        "  local c = coroutine.yield(a + b)\n"
        "  return c, nil, 'end'\n"
        "end)\n"
        "assert(coroutine.status(co) == 'suspended')\n"
        "local ok, x = coroutine.resume(co, 1, 2) assert(ok and x == 3)\n"
        "local t = table.pack(coroutine.resume(co, 'c')) assert(t.n == 4 and t[1] and t[2] == 'c' and t[4] == 'end')\n"
        "assert(coroutine.status(co) == 'dead')\n"
        "local ok, e = coroutine.resume(co) assert(not ok and e == 'cannot resume dead coroutine')\n"
        "co = coroutine.create(function() error({ 'what' }) end)\n"
        "ok, e = coroutine.resume(co) assert(not ok and e[1] == 'what' and coroutine.status(co) == 'dead')\n"
        "co = coroutine.create(function() assert(not coroutine.resume(co)) assert(coroutine.running() == co) end)\n"
        "assert(coroutine.resume(co))\n"
        "ok, e = coroutine.resume(coroutine.running()) assert(not ok and e:find('non%-suspended'))\n"
        "local w = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end error('over', 0) end)\n"
        "assert(w() == 1 and w() == 2 and w() == 3)\n"
        "ok, e = pcall(w) assert(not ok and e == 'over')\n"
        "ok, e = pcall(w) assert(not ok and e == 'cannot resume dead coroutine')\n"
        "local closed\n"
        "co = coroutine.create(function()\n"
        "  local x <close> = setmetatable({}, { __close = function() closed = true end })\n"
        "  coroutine.yield()\n"
        "end)\n"
        "coroutine.resume(co) assert(coroutine.close(co) and closed)\n"
        "assert(not pcall(coroutine.create, 5) and not pcall(coroutine.wrap) and not pcall(coroutine.resume, 5))\n"
        "assert(select('#', coroutine.wrap(function() end)()) == 0)\n"
        "assert(not coroutine.isyieldable() and coroutine.wrap(function() return coroutine.isyieldable() end)())");
}

static void test_tables(void **state)
{
    (void)state;
    dsl_runs(
        "local t = { 3, 1, 2 } table.sort(t) assert(table.concat(t, ',') == '1,2,3')\n"
        "table.sort(t, function(a, b) return a > b end) assert(table.concat(t) == '321')\n"
        "table.insert(t, 9) table.insert(t, 1, 8) assert(table.concat(t, ' ') == '8 3 2 1 9')\n"
        "assert(table.remove(t) == 9 and table.remove(t, 1) == 8 and table.concat(t, '', 2, 3) == '21')\n"
        "assert(table.concat(table.move({ 1, 2, 3 }, 2, 3, 1)) == '233' and table.unpack({ 4, 5 }, 2) == 5)\n"
        "assert(table.concat({}) == '' and table.pack(1, nil).n == 2)\n"
        "local long = setmetatable({}, { __len = function() return 1 << 60 end })\n"
        "for _, name in ipairs { 'insert', 'remove', 'concat', 'sort' } do assert(not pcall(table[name], long, 1), name) end\n"
        "assert(not pcall(table.move, {}, 1, 1 << 60, 2) and not pcall(table.concat, {}, '', 1, 1 << 60))\n"
        "assert(not pcall(table.move, {}, -(1 << 62), 1 << 62, 2) and not pcall(table.sort) and not pcall(table.insert, {}))\n"
        "local ok, e = pcall(table.insert, {}, 'x', 1) assert(e:find('insert'), e)");
}

static void test_rep(void **state)
{
    (void)state;
    dsl_runs(
        "assert(('ab'):rep(3) == 'ababab' and ('ab'):rep(3, '-') == 'ab-ab-ab' and ('x'):rep(0) == '' and ('x'):rep(-1) == '')\n"
        "assert((''):rep(1 << 60) == '' and (''):rep(3, '.') == '..' and #('x'):rep(100000) == 100000)\n"
        "assert(not pcall(string.rep, 'x', 1 << 60) and not pcall(string.rep, 'x', math.maxinteger, 'y'))");
}

static void test_print(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job;
    dsl_open(&host);
    sgl_status status = dsl_load(&host,
                                 "print('a', 1, nil, true) print() print('two\\nlines')\n"
                                 "print(setmetatable({}, { __tostring = function() return 'object' end }))\n"
                                 "return core.job {}",
                                 &job);
    assert_int_equal(status, SGL_OK);
    assert_string_equal(host.log, "a\t1\tnil\ttrue\n\ntwo\nlines\nobject\n");
    host.log_bytes = 0;
    assert_int_equal(dsl_load(&host, "print(('\xC3\xA9'):rep(1000)) return core.job {}", &job), SGL_OK);
    assert_int_equal(host.log_bytes, 2000 + 3); /* in pieces that cut no character */
    for (size_t i = 0; i < host.log_bytes; i++) {
        if (host.log[i] == '\n') assert_int_equal((unsigned char)host.log[i - 1], 0xA9);
    }
    dsl_close(&host);
}

/* Two runs must see the same numbers and the same order. */
static void test_repeats(void **state)
{
    (void)state;
    char first[512] = "";
    for (int run = 0; run < 3; run++) {
        dsl_host host;
        sgl_job *job;
        dsl_open(&host);
        assert_int_equal(dsl_load(&host,
                                  "local t = {} for i = 1, 20 do t['k' .. math.random(1000)] = i end\n"
                                  "local keys = {} for k in pairs(t) do keys[#keys + 1] = k end\n"
                                  "print(table.concat(keys, ' ')) return core.job {}",
                                  &job),
                         SGL_OK);
        if (run == 0) strcpy(first, host.log);
        assert_string_equal(host.log, first);
        dsl_close(&host);
    }
    assert_true(strlen(first) > 60);
}

/* What a script does to its globals must not reach the library. */
static void test_globals_apart(void **state)
{
    (void)state;
    dsl_runs("local sgl = require 'sgl'\n"
             "local assert, pcall = assert, pcall\n"
             "for k in next, _G do if k ~= '_G' then _G[k] = nil end end\n"
             "assert(pcall(sgl.config, { rows = 4 }))\n"
             "_G.require = nil");
}

static void test_require(void **state)
{
    (void)state;
    dsl_runs("assert(require 'sgl' == require 'sgl' and require 'sgl.core' == core)\n"
             "local ok, e = pcall(require, 'sgl.nn.linaer') assert(e:find(\"did you mean 'sgl.nn.linear'\"), e)\n"
             "ok, e = pcall(require, 'other') assert(e:find('came as a text'), e)\n"
             "for _, name in ipairs { '../x', 'a/b', '.x', 'x.', 'a..b', '', '/etc/passwd', 'x\\0y' } do\n"
             "  local ok, e = pcall(require, name)\n"
             "  assert(not ok and (e:find('no module name') or e:find('came as a text')), e)\n"
             "end\n"
             "assert(not pcall(require) and not pcall(require, {}))");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_metatables),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_calls_in_protected_mode),
        cmocka_unit_test(test_coroutines),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_rep),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_repeats),
        cmocka_unit_test(test_globals_apart),
        cmocka_unit_test(test_require),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
