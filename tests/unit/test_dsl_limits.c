/* test_dsl_limits.c -- scripts that would hang or exhaust the host end with an error that names their line.
 *
 * Each case is a way around a plain budget: loops around pcall, handlers, coroutines, things to be closed, functions that
 * run long inside C. The budgets are small, so that the whole takes seconds.
 * One thread: nothing for the thread sanitizer, whose memory and depth of calls it exceeds. ctest: not under tsan,
 * ctest: timeout 300 */
#include "dsl_host.h"

#include <time.h>

static const sgldsl_limits small = { .instructions = 300000,
                                     .cpu_ms = 1000,
                                     .memory_bytes = 16 << 20,
                                     .graph_units = 20000 };

/* Many instructions, little memory. */
static const sgldsl_limits lean = { .instructions = 100000000,
                                    .cpu_ms = 20000,
                                    .memory_bytes = 16 << 20,
                                    .graph_units = 20000 };

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void ends_within(const sgldsl_limits *limits, const char *text, const char *message)
{
    double begin = cpu_seconds();
    dsl_fails(text, limits, SGL_LIMIT, message);
    double took = cpu_seconds() - begin;
    if (took > 20) fail_msg("took %.1f s:\n%s", took, text);
}

static void ends(const char *text, const char *message) { ends_within(&small, text, message); }

static void exhausts(const char *text) { ends_within(&lean, text, "the script needs more than 16 MiB"); }

static void test_plain_loops(void **state)
{
    (void)state;
    ends("\nwhile true do end", "case.lua:2: the script does not end");
    ends("\n\nrepeat until false", "case.lua:3: the script does not end");
    ends("for i = 1, math.huge do end", "case.lua:1: the script does not end");
    ends("::again:: goto again", "case.lua:1: the script does not end");
}

static void test_around_pcall(void **state)
{
    (void)state;
    ends("while true do pcall(function() while true do end end) end", "case.lua:1: the script does not end");
    ends("local function f() while true do pcall(f) end end f()", "case.lua:1: the script does not end");
    ends("while true do xpcall(function() while true do end end, function() while true do end end) end",
         "case.lua:1: ");
    ends("while true do xpcall(error, function() while true do end end) end", "case.lua:1: ");
    ends("while true do coroutine.wrap(function() while true do end end)() end", "case.lua:1: ");
    ends("while true do pcall(coroutine.wrap(function() while true do end end)) end", "case.lua:1: ");
    ends(
        "while true do coroutine.resume(coroutine.create(function() pcall(function() while true do end end) while true do "
        "end end)) end",
        "case.lua:1: ");
    ends("local function nest() coroutine.wrap(nest)() end while true do pcall(nest) end", "case.lua:1: ");
    ends("local function nest() pcall(nest) while true do end end nest()", "case.lua:1: ");
    ends("while true do core.trace('g', function() pcall(core.trace, 'h', function() while true do end end) end) end",
         "case.lua:1: ");
    ends("while true do pcall(require, 'nothing') end", "case.lua:1: ");
    ends("while true do pcall(load, 'x = 1') end", "case.lua:1: ");
    ends("local s = ('x = 1 '):rep(100000) while true do load(s) end", "case.lua:1: ");
}

/* Where an error of a hook could leave Lua running with hooks off. */
static void test_closing(void **state)
{
    (void)state;
    ends("local x <close> = setmetatable({}, { __close = function() while true do end end }) while true do end",
         "case.lua:1: ");
    ends(
        "pcall(function() local x <close> = setmetatable({}, { __close = function() while true do end end }) while true do end "
        "end) while true do end",
        "case.lua:1: ");
    ends(
        "coroutine.wrap(function() local x <close> = setmetatable({}, { __close = function() while true do end end }) while true "
        "do end end)()",
        "case.lua:1: ");
    ends(
        "local co = coroutine.create(function() local x <close> = setmetatable({}, { __close = function() while true do end end "
        "}) coroutine.yield() end) coroutine.resume(co) while true do coroutine.close(co) end",
        "case.lua:1: ");
    ends("local mt = { __tostring = function() while true do end end } error(setmetatable({}, mt))", "case.lua:1: ");
    ends("local mt = { __index = function() while true do end end } local _ = setmetatable({}, mt).x", "case.lua:1: ");
    ends("for _ in setmetatable({}, { __call = function() return 1 end }) do end", "case.lua:1: ");
    ends("table.sort({ 3, 1, 2 }, function() while true do end end)", "case.lua:1: ");
    ends("('x'):gsub('x', function() while true do end end)", "case.lua:1: ");
    ends("local t = setmetatable({}, { __gc = nil }) t.x = 1 while t do collectgarbage() end", "case.lua:1: ");
}

/* Functions that run long inside C, where no hook looks. */
static void test_inside_c(void **state)
{
    (void)state;
    ends("local a = ('a'):rep(1000) while true do a:find(('.-'):rep(20) .. 'b') end",
         "case.lua:1: the script does not end");
    ends("('a'):rep(30000):match(('a*'):rep(30) .. 'b')", "case.lua:1: the script does not end");
    ends("('a'):rep(30000):gsub(('a?'):rep(60) .. ('.-'):rep(60) .. 'b', '')", "case.lua:1: the script does not end");
    ends("for _ in ('('):rep(30000):gmatch('%b()%b()') do end while true do ('('):rep(30000):find('%b()') end",
         "case.lua:1: ");
    ends("local s, t = ('x'):rep(4000000), 'y' while true do local u = s .. t end", "case.lua:1: ");
    ends("local s, t = ('x'):rep(4000000), ('x'):rep(4000000) while s == t do end", "case.lua:1: ");
    ends("local s = ('x'):rep(4000000) while true do s:upper() end", "case.lua:1: ");
    ends("local s = ('x'):rep(4000000) while true do s:find('y', 1, true) end", "case.lua:1: ");
    ends("local t = {} for i = 1, 10000 do t[i] = i % 97 end while true do table.sort(t) end", "case.lua:1: ");
    ends("local t = {} for i = 1, 10000 do t['k' .. i] = i end while true do pairs(t) end", "case.lua:1: ");
    ends("local t = {} for i = 1, 20000 do t[i] = i end while true do table.insert(t, 1, 0) table.remove(t, 1) end",
         "case.lua:1: ");
    ends("local t = { 'a', 'b' } while true do core.hint(('n'):rep(60), t) end", "case.lua:1: ");
    ends("while true do print('x') end", "case.lua:1: ");
    ends("while true do core.hash(('x'):rep(1000000)) end", "case.lua:1: ");
}

static void test_memory(void **state)
{
    (void)state;
    exhausts("local t = {} for i = 1, 1e9 do t[i] = {} end");
    exhausts("local s = 'x' while true do s = s .. s end");
    exhausts("local s = ('x'):rep(1 << 24)");
    exhausts("local t = {} t[1] = ('x'):rep(15 << 20) t[2] = ('y'):rep(15 << 20)");
    exhausts("local s = ('x'):rep(9 << 20) s = s:upper() .. s");
    exhausts("return string.pack('c1000000000', '')");
    exhausts("local t = {} for i = 1, 1e9 do t[i] = coroutine.create(print) end");
    /* Caught, memory is there again. */
    dsl_runs("for i = 1, 20 do assert(not pcall(string.rep, ('x'):rep(1 << 20), 1 << 10)) end");
}

static void test_recursion(void **state)
{
    (void)state;
    dsl_fails("\nlocal function f() return 1 + f() end\nf()", NULL, SGL_SCRIPT, "case.lua:2: stack overflow");
    dsl_fails("\nlocal function f() return f() end\nf()", NULL, SGL_SCRIPT, "case.lua:2: stack overflow"); /* chunk.c */
    dsl_fails("local s = ('('):rep(1000) .. '1' .. (')'):rep(1000) assert(load('return ' .. s))", NULL, SGL_SCRIPT, "");
    dsl_fails("local t = {} setmetatable(t, { __index = t }) t.__index = t return t.x.y", NULL, SGL_SCRIPT,
              "case.lua:1: ");
    dsl_fails("local t = setmetatable({}, { __tostring = function(s) return tostring(s) end }) tostring(t)", NULL,
              SGL_SCRIPT, "");
    dsl_fails("local t = setmetatable({}, { __tostring = function(s) error(s) end }) error(t)", NULL, SGL_SCRIPT, "");
    dsl_fails("local function f() core.trace('g', f) end f()", NULL, SGL_SCRIPT, "");
    dsl_fails("local function f() core.scope('s', f) end f()", NULL, SGL_SCRIPT, "");
    dsl_fails("local function f() ('x'):gsub('x', f) end f()", NULL, SGL_SCRIPT, "");
    dsl_fails("local function f() load('return ...')(f()) end f()", NULL, SGL_SCRIPT, "case.lua:1: stack overflow");
}

static void test_graphs(void **state)
{
    (void)state;
    const char *nodes = "case.lua:1: the script does not end: its graphs have as many nodes as they may";
    ends("core.trace('g', function() local x = core.constant(1, 'f32') while true do x = x + 1 end end)", nodes);
    ends(
        "core.trace('g', function() local x = core.constant(1, 'f32') while true do pcall(function() x = x + 1 end) end end)",
        nodes);
    ends(
        "local keep = {} while true do keep[#keep + 1] = core.trace('g', function() for i = 1, 100 do core.constant(1, 'f32') end "
        "end) end",
        nodes);
    ends(
        "core.trace('g', function() while true do core.emit('iota', {}, { dims = { 1, 2, 3 }, axis = 0, dtype = 'i32' }) end end)",
        nodes);
    ends(
        "core.trace('g', function() local x = core.constant(1, 'f32') for i = 1, 1e9 do core.fetch(('n'):rep(1000) .. i, x) end end)",
        nodes);
    /* Graphs that nothing holds make room. */
    sgl_job *job;
    dsl_host host;
    dsl_open(&host);
    sgldsl_limits limits = {
        .instructions = 100000000, .cpu_ms = 60000, .memory_bytes = 16 << 20, .graph_units = 20000
    };
    sgl_status status =
        dsl_load_limited(&host,
                         "for i = 1, 100 do core.trace('g', function() for i = 1, 1000 do core.constant(1, 'f32') end "
                         "end) end return core.job {}",
                         &limits, &job);
    assert_int_equal(status, SGL_OK);
    dsl_close(&host);
}

/* The next entry starts with fresh budgets. */
static int loop_for_ever(lua_State *L)
{
    if (luaL_dostring(L, "while true do end")) lua_error(L);
    return 0;
}

static int add_up(lua_State *L)
{
    if (luaL_dostring(L, "local n = 0 for i = 1, 10000 do n = n + i end sum = n")) lua_error(L);
    lua_getglobal(L, "sum");
    *(lua_Integer *)sgldsl_argument(L) = lua_tointeger(L, -1);
    return 0;
}

static void test_afterwards(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job;
    dsl_open(&host);
    assert_int_equal(dsl_load_limited(&host, "return core.job {}", &small, &job), SGL_OK);
    for (int i = 0; i < 5; i++) {
        lua_Integer sum = 0;
        assert_int_equal(sgldsl_enter(job, loop_for_ever, NULL), SGL_LIMIT);
        assert_int_equal(sgldsl_enter(job, add_up, &sum), SGL_OK);
        assert_int_equal(sum, 50005000);
    }
    dsl_close(&host);
}

static int interrupt_self(lua_State *L)
{
    sgldsl_job(L)->interrupted = 1; /* as a signal handler does by sgldsl_interrupt */
    if (luaL_dostring(L, "while true do pcall(function() while true do end end) end")) lua_error(L);
    return 0;
}

static void test_interrupt(void **state)
{
    (void)state;
    dsl_host host;
    sgl_job *job;
    dsl_open(&host);
    assert_int_equal(dsl_load(&host, "return core.job {}", &job), SGL_OK);
    assert_int_equal(sgldsl_enter(job, interrupt_self, NULL), SGL_INTERRUPTED);
    lua_Integer sum = 0;
    assert_int_equal(sgldsl_enter(job, add_up, &sum), SGL_OK);
    dsl_close(&host);
}

/* What is computed while a graph is traced counts like Lua's own memory and time, and leaves nothing behind it. */
static void test_eval(void **state)
{
    (void)state;
    static const sgldsl_limits limits = {
        .instructions = 300000, .cpu_ms = 1000, .memory_bytes = 64 << 20, .graph_units = 20000
    };
    static const char script[] =
        "local function sum(x) return core.eval(core.emit('reduce_sum', { x }, { axes = { 0 } })) end\n"
        "local function product(n)\n"
        "  core.trace('t', function()\n"
        "    local x = core.emit('broadcast', { core.constant(1, 'f32') }, { dims = { n, n } })\n"
        "    core.eval(core.emit('reduce_sum', { core.emit('matmul', { x, x }) }, { axes = { 0, 1 } }))\n"
        "  end)\n"
        "end\n"
        "local large, why = pcall(product, 3000)\n"
        "assert(not large and why:find('eval: the graph needs more than the 64 MiB that a script has', 1, true), why)\n"
        "local long, why = pcall(product, 2000)\n"
        "assert(not long and why:find('eval: the products of the graph take 1.6e+10 flops', 1, true), why)\n"
        "local kept, why = pcall(core.trace, 's', function() sum(core.input('state', 's', 'f32', { 20 << 20 })) end)\n"
        "assert(not kept and why:find('eval: the graph needs more than', 1, true), why)\n"
        "core.trace('u', function() assert(sum(core.input('state', 'u', 'f32', { 8 })) == 0) end)\n"
        "return core.job {}\n";
    dsl_host host;
    sgl_job *job;
    dsl_open(&host);
    sgl_status status = dsl_load_limited(&host, script, &limits, &job);
    if (status != SGL_OK) fail_msg("%s", sgl_error_message(host.vm));
    dsl_close(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_loops), cmocka_unit_test(test_around_pcall), cmocka_unit_test(test_closing),
        cmocka_unit_test(test_inside_c),    cmocka_unit_test(test_memory),       cmocka_unit_test(test_recursion),
        cmocka_unit_test(test_graphs),      cmocka_unit_test(test_afterwards),   cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_eval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
