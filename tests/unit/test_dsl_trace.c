/* test_dsl_trace.c -- what a trace builds: nodes with their types, origins and scopes; numbers, attributes, operators; and
 * the errors, each with the script's line, the op and the shapes. */
#include "dsl_host.h"

#include "session/session.h"

/* ---- the graph as text ---------------------------------------------------------------------------------------- */

static char printed[65536];
static size_t printed_bytes;

static sgl_status keep_text(void *user, const char *data, size_t bytes)
{
    (void)user;
    assert_true(printed_bytes + bytes < sizeof printed);
    memcpy(printed + printed_bytes, data, bytes);
    printed_bytes += bytes;
    printed[printed_bytes] = '\0';
    return SGL_OK;
}

static int print_last(lua_State *L)
{
    lua_getglobal(L, "graph");
    sgldsl_graph *graph = sgldsl_to_graph(L, -1);
    assert_non_null(graph);
    printed_bytes = 0;
    assert_int_equal(sglir_verify(graph->graph->ir, SGLIR_LOGICAL), SGL_OK);
    assert_int_equal(sglir_print(graph->graph->ir, keep_text, NULL), SGL_OK);
    return 0;
}

/* Loads the text, which leaves a graph in the global `graph`, and prints it into `printed`. */
static void prints(const char *text)
{
    static char whole[8192];
    dsl_host host;
    sgl_job *job;
    snprintf(whole, sizeof whole, "%s\nreturn core.job {}", text);
    dsl_open(&host);
    if (dsl_load(&host, whole, &job) != SGL_OK) fail_msg("%s\n%s", sgl_error_message(host.vm), text);
    if (sgldsl_enter(job, print_last, NULL) != SGL_OK) fail_msg("%s", sgl_error_message(host.vm));
    dsl_close(&host);
}

static void holds(const char *part)
{
    if (strstr(printed, part) == NULL) fail_msg("'%s' is not in\n%s", part, printed);
}

/* A script around which a trace runs, with x f32[2,3], y f32[3], n i32[3], b bool[3] and the helper e = core.emit. */
#define TRACED(body)                                                                                                   \
    "local e = core.emit\n"                                                                                            \
    "graph = core.trace('g', function()\n"                                                                             \
    "local x, y = core.input('feed', 'x', 'f32', { 2, 3 }), core.input('feed', 'y', 'f32', { 3 })\n"                   \
    "local n, b = core.input('feed', 'n', 'i32', { 3 }), core.input('feed', 'b', 'bool', { 3 })\n" body "\nend)"

/* ---- what is built ------------------------------------------------------------------------------------------------ */

static void test_types(void **state)
{
    (void)state;
    dsl_runs(TRACED(
        "local function is(t, text) assert(tostring(t) == text, tostring(t)) end\n"
        "is(x, 'f32[2,3]') is(x + y, 'f32[2,3]') is(n + 1, 'i32[3]') is(n + 1.0, 'f32[3]') is(x + 1, 'f32[2,3]')\n"
        "is(2 - x, 'f32[2,3]') is(x * y, 'f32[2,3]') is(x / 2, 'f32[2,3]') is(x ^ 2, 'f32[2,3]') is(-x, 'f32[2,3]')\n"
        "is(n // 2, 'i32[3]') is(x // 2, 'f32[2,3]') is(n // 2.0, 'f32[3]') is(n % 2, 'i32[3]') is(n / 2, 'f32[3]')\n"
        "is(n / n, 'f32[3]') is(1 / n, 'f32[3]') is(n / 2.5, 'f32[3]') is(n * n, 'i32[3]')\n"
        "is(e('select', { b, 1, 0 }), 'i32[3]') is(e('select', { b, 1.5, 0 }), 'f32[3]') is(e('select', { b, x, 0 }), 'f32[2,3]')\n"
        "is(e('and', { b, true }), 'bool[3]') is(e('less', { x, 0 }), 'bool[2,3]')\n"
        "is(core.constant(1, 'f64'), 'f64[]') is(core.constant(1, 'f64') + 1, 'f64[]')\n"
        "is(core.constant(true, 'bool'), 'bool[]') is(core.constant(2 ^ 53, 'i64'), 'i64[]')\n"
        "assert(core.dtype(x) == 'f32' and core.rank(x) == 2 and core.dims(x)[1] == 2 and #core.dims(x) == 2)\n"
        "assert(core.is_tensor(x) and not core.is_tensor(1) and not core.is_tensor() and not core.is_tensor(graph))\n"
        "core.dims(x)[1] = 9 assert(core.dims(x)[1] == 2 and #core.dims(core.constant(1, 'f32')) == 0)\n"
        "assert(rawequal(core.input('feed', 'x', 'f32', { 2, 3 }), x))"));
}

static void test_attributes(void **state)
{
    (void)state;
    dsl_runs(TRACED(
        "local function is(t, text) assert(tostring(t) == text, tostring(t)) end\n"
        "is(e('reduce_sum', { x }, { axes = { 1 } }), 'f32[2]') is(e('reduce_sum', { x }, { axes = 0, keep = true }), 'f32[1,3]')\n"
        "is(e('reduce_sum', { x }, { axes = { 0, 1 }, keep = 0 }), 'f32[]') is(e('transpose', { x }, { order = { 1, 0 } }), 'f32[3,2]')\n"
        "is(e('reshape', { x }, { dims = { 3, -1 } }), 'f32[3,2]') is(e('cast', { x }, { to = 'i64' }), 'i64[2,3]')\n"
        "is(e('slice', { x }, { axis = 1.0, start = 0, stop = 2 }), 'f32[2,2]')\n"
        "is(e('segments', {}, { counts = { 2, 3 }, values = { 0.5, 1 }, dtype = 'f32' }), 'f32[5]')\n"
        "is(e('iota', {}, { axis = 0, dims = { 4 }, dtype = 'i32' }), 'i32[4]') is(e('gelu', { x }, { exact = true }), 'f32[2,3]')\n"
        "local a, c = e('unpack', { e('pack', { x, y }) }, { ranks = { 2, 1 }, dims = { 2, 3, 3 } })\n"
        "is(a, 'f32[2,3]') is(c, 'f32[3]') is(e('neg', { x }, {}), 'f32[2,3]')\n"
        "local many, ranks, dims = {}, {}, {}\n"
        "for i = 1, 300 do many[i], ranks[i], dims[i] = y, 1, 3 end\n"
        "local parts = table.pack(e('unpack', { e('pack', many) }, { ranks = ranks, dims = dims }))\n"
        "assert(parts.n == 300) is(parts[300], 'f32[3]') is(e('concat', many, { axis = 0 }), 'f32[900]')"));
}

static void test_graph_text(void **state)
{
    (void)state;
    prints(TRACED("local w = core.input('parameter', 'w', 'f32', { 2, 3 })\n"
                  "local loss = e('reduce_sum', { (x * w + 1.5) ^ 2 }, { axes = { 0, 1 } })\n"
                  "local g = core.grad(loss, { w, x })\n"
                  "assert(#g == 2 and tostring(g[1]) == 'f32[2,3]' and #core.grad(loss, {}) == 0)\n"
                  "core.scope('blocks.0.attn', function() core.update('w', w - g[1] * 0.1) end)\n"
                  "core.fetch('loss', loss)"));
    holds("@\"case.lua\":6\n");
    holds("@\"case.lua\":9 scope \"blocks.0.attn\"");
    holds("value=1.5");
    holds("fetch \"loss\"");
    holds("update \"w\"");
    holds("grad");
}

static void test_scopes(void **state)
{
    (void)state;
    prints("graph = core.trace('g', function()\n"
           "  local x = core.input('feed', 'x', 'f32', {})\n"
           "  local a, b, c = core.scope('outer', function(p, q)\n"
           "    assert(p == 1 and q == nil)\n"
           "    pcall(core.scope, 'failing', function() error('x') end)\n"
           "    core.fetch('one', -x)\n"
           "    assert(select('#', core.scope('inner', function() end)) == 0)\n"
           "    pcall(core.trace, 'other', function() core.scope('deep', error) end)\n"
           "    core.fetch('two', x + 1)\n"
           "    return 4, nil, 6\n"
           "  end, 1, nil)\n"
           "  assert(a == 4 and b == nil and c == 6)\n"
           "  coroutine.wrap(function() core.fetch('three', x * x) end)()\n"
           "  coroutine.resume(coroutine.create(function() core.scope('lost', error) end))\n"
           "  core.fetch('four', x - 1)\n"
           "end)");
    holds("neg(%0) : f32[] @\"case.lua\":6 scope \"outer\"");
    holds("add(%0, %2) : f32[] @\"case.lua\":9 scope \"outer\"");
    holds("mul(%0, %0) : f32[] @\"case.lua\":13\n");
    if (strstr(printed, "lost") != NULL || strstr(printed, "failing") != NULL || strstr(printed, "deep") != NULL) {
        fail_msg("a scope was left open:\n%s", printed);
    }
}

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

#define FAILS(body, message) dsl_fails(TRACED(body), NULL, SGL_SCRIPT, "case.lua:5: " message)

static void test_errors_of_ops(void **state)
{
    (void)state;
    FAILS("e('matmul', { x, x })", "matmul: inner dimensions differ: [2,3] x [2,3]");
    FAILS("e('matmul', { x })", "matmul: ");
    FAILS("e('matmull', { x })", "there is no op 'matmull'; did you mean 'matmul'?");
    FAILS("e('neg', { 'x' })", "neg: argument 1 is a string value; it must be a tensor or a number");
    FAILS("e('add', { x, nil, y })", "add: argument 2 is a nil value");
    FAILS("e('add', { 1, 2 })", "add: one argument must be a tensor");
    FAILS("e('add', x)", "add: the arguments must be a list of tensors");
    FAILS("e('add', { x, y }, 5)", "add: the attributes must be a table");
    FAILS("return n + 3000000000", "add: the number 3000000000 is no i32");
    FAILS("return x + {}", "add: argument 2 is a table value");
    FAILS("return nil + x", "add: argument 1 is a nil value");
    FAILS("return core.constant(1.5, 'i32')", "constant: the number 1.5 is no i32");
    FAILS("return core.constant(2, 'bool')", "constant: the number 2 is no bool");
    FAILS("return core.constant(0/0, 'i8')", "constant: the number ");
    FAILS("return core.constant('1', 'i8')", "constant: the value is a string value");
    FAILS("return core.constant(1, 'f23')", "constant: there is no dtype 'f23'; did you mean 'f");
    FAILS("return core.constant(1)", "constant: the dtype is a nil value");
    FAILS("return core.dims(1)", "dims: number value where a tensor must be");
}

static void test_errors_of_attributes(void **state)
{
    (void)state;
    FAILS("e('slice', { x }, { axes = 1 })", "slice: there is no attribute 'axes'; did you mean 'axis'?");
    FAILS("e('slice', { x }, { zzzzzzz = 1 })",
          "slice: there is no attribute 'zzzzzzz'; there are: axis, start, stop, step");
    FAILS("e('neg', { x }, { axis = 1 })", "neg: takes no attributes, 'axis' was given");
    FAILS("e('slice', { x }, { 1 })", "slice: attributes have names");
    FAILS("e('slice', { x }, { axis = 1.5 })", "slice: attribute 'axis' must be an integer, not 1.5");
    FAILS("e('slice', { x }, { axis = '1' })", "slice: attribute 'axis' must be an integer, not '1'");
    FAILS("e('reduce_sum', { x }, { axes = { 0, {} } })",
          "reduce_sum: attribute 'axes' must be a list of integers, not a table value");
    FAILS("e('reduce_sum', { x }, { axes = 'all' })",
          "reduce_sum: attribute 'axes' must be a list of integers, not 'all'");
    FAILS("e('reduce_sum', { x }, { axes = {}, keep = 2 })",
          "reduce_sum: attribute 'keep' must be true or false, not 2");
    FAILS("e('pad', { x }, { axis = 0, before = 1, after = 1, value = x })",
          "pad: attribute 'value' must be a number, not a tensor value");
    FAILS("e('segments', {}, { counts = { 1 }, values = { true }, dtype = 'f32' })",
          "segments: attribute 'values' must be a list of numbers");
    FAILS("e('cast', { x }, { to = 'float' })", "cast: there is no dtype 'float'");
    FAILS("e('cast', { x }, { to = 1 })", "cast: the dtype is a number value");
}

static void test_errors_of_operators(void **state)
{
    (void)state;
    FAILS("if x > 0 then end", "'<' and '>' of tensors have no answer while a graph is traced: use sgl.less");
    FAILS("if x >= y then end", "'<=' and '>=' of tensors have no answer");
    FAILS("if x == y then end", "'==' of tensors has no answer");
    FAILS("return x .. 'text'", "'..' joins texts, not tensors");
    FAILS("return #x", "'#' is not the size of a tensor");
    FAILS("return x(1)", "a tensor is not a function");
    FAILS("x.name = 1", "a tensor cannot be changed");
    FAILS("return x & 1", "attempt to perform bitwise operation on a tensor value");
}

static void test_errors_of_graphs(void **state)
{
    (void)state;
    FAILS("core.trace('other', function() return x + 1 end)",
          "add: a tensor of the graph 'g' cannot be used in the graph 'other'; make it anew in each trace");
    FAILS("core.input('feed', 'x', 'f32', { 2 })", "input 'x': it is there already as f32[2,3], not f32[2]");
    FAILS("core.input('state', 'x', 'f32', { 2, 3 })",
          "input 'x': a feed has this name already, no state can have it too");
    FAILS("core.input('fed', 'z', 'f32', {})", "input: the role must be parameter, state, feed or cache");
    FAILS("core.input('feed', '', 'f32', {})", "input: the name is empty");
    FAILS("core.input('feed', 'a\\0b', 'f32', {})", "input: the name 'a...' holds a zero byte");
    FAILS("core.input('feed', ('n'):rep(5000), 'f32', {})", "input: the name has 5000 bytes");
    FAILS("core.input('feed', 'z', 'f32', { -1 })", "input 'z': extent 1 is -1, it must be an integer of at least 0");
    FAILS("core.input('feed', 'z', 'f32', { 1.5 })", "input 'z': extent 1 is 1.5");
    FAILS("core.input('feed', 'z', 'f32', { 1, 1, 1, 1, 1, 1, 1, 1, 1 })", "input 'z': at most 8 dims are possible");
    FAILS("core.input('feed', 'z', 'f32', { 1 << 62, 1 << 62 })", "");
    FAILS("core.fetch('x', 5)", "fetch: number value where a tensor must be");
    FAILS("core.fetch('o', x) core.fetch('o', y)", "");
    FAILS("core.update('unknown', x)", "");
    FAILS("core.grad(x, { y })", "grad");
    FAILS("core.grad(x)", "grad: the second argument must be a list of tensors");
    FAILS("core.grad(5, { y })", "grad: number value where a tensor must be");
    FAILS("core.error('rows: 5 is too many')", "rows: 5 is too many");
    dsl_fails("return core.constant(1, 'f32')", NULL, SGL_SCRIPT,
              "case.lua:1: constant: only inside a traced function");
    dsl_fails("core.emit('neg', {})", NULL, SGL_SCRIPT, "case.lua:1: neg: only inside a traced function");
    dsl_fails(
        "local x core.trace('g', function() x = core.constant(1, 'f32') end)\n core.trace('h', function() return -x end)",
        NULL, SGL_SCRIPT, "case.lua:2: neg: a tensor of the graph 'g' cannot be used in the graph 'h'");
}

/* A tensor may outlive its trace, and a graph its failure. */
static void test_outliving(void **state)
{
    (void)state;
    dsl_runs(
        "local x, graph\n"
        "pcall(core.trace, 'g', function() x = core.constant(1, 'f32') error('stop') end)\n"
        "collectgarbage()\n"
        "assert(tostring(x) == 'f32[]' and core.dtype(x) == 'f32' and not pcall(core.fetch, 'x', x))\n"
        "graph = core.trace('h', function() end)\n"
        "assert(tostring(graph) == \"graph 'h'\" and getmetatable(graph) == 'graph')\n"
        "assert(not pcall(function() return graph.x end) and not pcall(core.fetch, 'x', graph) and not pcall(core.dims, graph))\n"
        /* An op that fails leaves the trace usable. */
        "core.trace('g', function()\n"
        "  local a = core.input('feed', 'a', 'f32', { 2, 3 })\n"
        "  for i = 1, 10 do assert(not pcall(core.emit, 'matmul', { a, a })) assert(tostring(-a) == 'f32[2,3]') end\n"
        "end)\n"
        /* A coroutine may make a tensor and be resumed in another trace. */
        "local co = coroutine.wrap(function() local t = core.constant(1, 'f32') coroutine.yield() return -t end)\n"
        "core.trace('a', function() co() end)\n"
        "core.trace('b', function() local ok, e = pcall(co) assert(not ok and e:find(\"graph 'a' cannot be used\"), e) end)\n"
        "local t = coroutine.wrap(function() core.trace('t', function() coroutine.yield() end) end)\n"
        "local ok, e = pcall(t) assert(not ok and e:find('yield'))");
}

/* What is to be closed after an error runs before the traces and scopes of the failure are left. */
static void test_closing_after_an_error(void **state)
{
    (void)state;
    dsl_runs(
        "local seen = {}\n"
        "local function closing(what)\n"
        "  return setmetatable({}, { __close = function()\n"
        "    for i = 1, 3 do collectgarbage() end\n"
        "    local ok, x = pcall(function() return core.constant(1, 'f32') + 1 end)\n"
        "    seen[#seen + 1] = what .. ':' .. tostring(ok)\n"
        "    pcall(core.scope, ('s'):rep(100), core.trace, 'within', function() core.constant(2, 'f32') error('again') end)\n"
        "    collectgarbage()\n"
        "  end })\n"
        "end\n"
        "local function fail() core.scope(('x'):rep(50), function() core.constant(1, 'f32') error('stop') end) end\n"
        "assert(not pcall(function() local c <close> = closing 'pcall' core.trace('lost', fail) end))\n"
        "assert(not pcall(core.constant, 1, 'f32'))\n"
        "coroutine.resume(coroutine.create(function() local c <close> = closing 'coroutine' core.trace('lost', fail) end))\n"
        "assert(not pcall(core.constant, 1, 'f32'))\n"
        "local co = coroutine.create(function() local c <close> = closing 'close' coroutine.yield() end)\n"
        "coroutine.resume(co) assert(coroutine.close(co))\n"
        "co = coroutine.create(function()\n"
        "  local c <close> = setmetatable({}, { __close = function() core.trace('lost', fail) end }) coroutine.yield()\n"
        "end)\n"
        "coroutine.resume(co) assert(not coroutine.close(co)) collectgarbage()\n"
        "assert(not pcall(core.constant, 1, 'f32'))\n"
        "co = coroutine.wrap(function()\n"
        "  pcall(function()\n"
        "    local c <close> = setmetatable({}, { __close = function() collectgarbage() coroutine.yield('closing') end })\n"
        "    core.trace('lost', fail)\n"
        "  end)\n"
        "  return pcall(core.constant, 1, 'f32')\n"
        "end)\n"
        "assert(co() == 'closing' and not pcall(core.constant, 1, 'f32') and co() == false)\n"
        "assert(#seen == 3)\n"
        "core.trace('good', function()\n"
        "  local x = core.constant(1, 'f32')\n"
        "  for _ in (function() return nil end), nil, nil, closing 'for' do end\n"
        "  pcall(function() local c <close> = closing 'inner' core.trace('lost', fail) end)\n"
        "  assert(tostring(x + 1) == 'f32[]')\n"
        "end)");
}

static void test_traceback(void **state)
{
    (void)state;
    dsl_fails("\n"
              "local function inner(x)\n"
              "  return core.emit('matmul', { x, x })\n"
              "end\n"
              "local function outer(x) local y = inner(x) return y end\n"
              "core.trace('g', function()\n"
              "  local x = core.input('feed', 'x', 'f32', { 2, 3 })\n"
              "  core.scope('s', function() local y = outer(x) return y end)\n"
              "end)\n",
              NULL, SGL_SCRIPT,
              "case.lua:3: matmul: inner dimensions differ: [2,3] x [2,3]\n"
              "  at case.lua:3 in function 'inner'\n"
              "  at case.lua:5 in function 'outer'\n"
              "  at case.lua:8 in the function of line 8\n"
              "  at case.lua:8 in the function of line 6\n"
              "  at case.lua:6 in main chunk");
    dsl_fails("\nlocal function f() return 1 + f() end\nf()", NULL, SGL_SCRIPT, "case.lua:2: stack overflow");
    dsl_fails("error({})", NULL, SGL_SCRIPT, "(the error is a table, not a text)");
    dsl_fails("error(setmetatable({}, { __tostring = function() return 'words' end }))", NULL, SGL_SCRIPT, "words");
    dsl_fails("error()", NULL, SGL_SCRIPT, "(the error is a nil, not a text)");
    dsl_fails("error('no place', 0)", NULL, SGL_SCRIPT, "no place\n  at case.lua:1 in main chunk");
    dsl_fails("x = = 1", NULL, SGL_SCRIPT, "case.lua:1: ");
    /* An error inside the stdlib names the script's line first. */
    dsl_fails("\nlocal sgl = require 'sgl'\nsgl.exp(nil, nil)", NULL, SGL_SCRIPT, "case.lua:3: exp: ");
}

/* A call that a function ends in names its own line, as does one that the chunk ends in. */
static void test_last_calls(void **state)
{
    (void)state;
    prints("local e = core.emit\n"
           "local function square(x)\n"
           "  return e('mul', { x, x })\n"
           "end\n"
           "graph = core.trace('g', function()\n"
           "  local x = core.input('feed', 'x', 'f32', {})\n"
           "  return core.fetch('y', square(x))\n"
           "end)");
    holds("mul(%0, %0) : f32[] @\"case.lua\":3\n");
    dsl_fails(
        "\nlocal sgl = require 'sgl'\nlocal function f(x) return x:matmul(x) end\n"
        "return core.trace('g', function()\n  local x = core.input('feed', 'x', 'f32', { 2, 3 })\n  return f(x)\nend)",
        NULL, SGL_SCRIPT,
        "case.lua:3: matmul: inner dimensions differ: [2,3] x [2,3]\n"
        "  at case.lua:3 in function 'f'\n"
        "  at case.lua:6 in the function of line 4\n"
        "  at case.lua:4 in main chunk");
    dsl_fails("\n\nreturn require('sgl').job {}", NULL, SGL_SCRIPT, "case.lua:3: job: ");
}

/* Where the bodies of functions begin must be found in any text, and nothing else be changed. */
static void test_functions_of_any_form(void **state)
{
    (void)state;
    dsl_runs(
        "local t = { a = { b = {} } }\n"
        "function t.a.b:c(...) return select('#', ...) end assert(t.a.b:c(1, nil) == 2)\n"
        "function t . f ( x ) return (x) end assert(t.f(5) == 5)\n"
        "local function g(a --[[ ) ]], b -- ) end\n"
        "  ) return a, b end\n"
        "assert(select(2, g(1, 2)) == 2 and (function() return 3 end)() == 3 and (function(...) return ... end)(4) == 4)\n"
        "local s = 'function f()' .. \"function f('\\\")\" .. [[function f()\n]] .. [==[ function(]] ) ]==] -- function f()\n"
        "assert(s == 'function f()function f(\\'\")function f()\\n function(]] ) ')\n"
        "--[[ function f() ]] --[==[ ]] function f( ]==]\n"
        "local h = function() return function() return function() return 7 end end end assert(h()()() == 7)\n"
        "local functional, _function, function1 = 1, 2, 3 assert(functional + _function + function1 == 6)\n"
        "for i = 1, 3 do if i == 2 then goto continue end do local x = i end ::continue:: end\n"
        "local function loop(n) ::again:: n = n - 1 if n > 0 then goto again end return n end assert(loop(5) == 0)\n"
        "local x <close> = setmetatable({}, { __close = function() end }) local y <const> = 0x1p-3 assert(y == .125 and 3e-1 == .3)\n"
        "local deep = setmetatable({}, { __index = function(_, k) return k end }) assert(deep.name == 'name')\n"
        "assert(load('return (function(...) return ... end)(...)')(8) == 8 and load('local function f() end f() return 9')() == 9)\n"
        "local co = coroutine.wrap(function(a) return coroutine.yield(a) end) assert(co(1) == 1 and co(2) == 2)");
    static const char *const broken[] = { "function",
                                          "function(",
                                          "function f(",
                                          "function f(a b) end",
                                          "function f(1) end",
                                          "x = 'abc",
                                          "x = [[abc",
                                          "--[[ abc",
                                          "x = \"a\\",
                                          "function f.(",
                                          "--",
                                          "[",
                                          "[=",
                                          "--[=",
                                          "function f(a,)" };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        char text[64];
        snprintf(text, sizeof text, "\n%s", broken[i]);
        dsl_fails(text, NULL, SGL_SCRIPT, broken[i][0] == '-' ? "case.lua" : "case.lua:2:");
    }
}

static void test_hash(void **state)
{
    (void)state;
    dsl_runs(
        "local seen = {}\n"
        "for i = 0, 9999 do\n"
        "  local h = core.hash('blocks.' .. i .. '.attn#1') assert(h >= 0 and math.type(h) == 'integer' and not seen[h])\n"
        "  seen[h] = true\n"
        "end\n"
        "assert(core.hash('') == core.hash('') and core.hash('a') ~= core.hash('b') and core.hash('\\0') ~= core.hash(''))\n"
        "assert(core.hash('blocks.0.attn.wq') == 8147746296667627165)\n" /* must never change: checkpoints depend on it */
        "assert(core.hint('laers', { 'dim', 'layers' }) == \"; did you mean 'layers'?\" and core.hint('x', { 'layers' }) == '')\n"
        "assert(core.hint('dim', {}) == '' and core.hint('DIM', { 1, {}, 'dim' }) == \"; did you mean 'dim'?\")\n"
        "local ops = core.ops() assert(ops.matmul.minimum == 2 and ops.matmul.maximum == 2 and ops.pack.maximum == -1)\n"
        "assert(ops.slice.attrs:find('axis:i') and #ops.exp.help > 0)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_graph_text),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_errors_of_ops),
        cmocka_unit_test(test_errors_of_attributes),
        cmocka_unit_test(test_errors_of_operators),
        cmocka_unit_test(test_errors_of_graphs),
        cmocka_unit_test(test_outliving),
        cmocka_unit_test(test_closing_after_an_error),
        cmocka_unit_test(test_traceback),
        cmocka_unit_test(test_last_calls),
        cmocka_unit_test(test_functions_of_any_form),
        cmocka_unit_test(test_hash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
