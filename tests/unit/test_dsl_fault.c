/* test_dsl_fault.c -- memory that runs out at every place, and calls of sgl.core with arguments made at random: neither
 * crashes, leaks or leaves a job unusable.
 * One thread: nothing for the thread sanitizer, whose memory and depth of calls it exceeds. ctest: not under tsan,
 * ctest: timeout 300 */
#include "dsl_host.h"

/* ---- each allocation fails ---------------------------------------------------------------------------------------- */

static const char script[] =
    "local core = require 'sgl.core'\n"
    "core.declare('rows', 'integer', 2)\n"
    "local graph = core.trace('train', function()\n"
    "  local x = core.input('feed', 'x', 'f32', { 2, 3 })\n"
    "  local w = core.input('parameter', 'w', 'f32', { 2, 3 })\n"
    "  local y = core.scope('layer', function() return core.emit('reduce_sum', { x * w + 1.5 }, { axes = { 0, 1 } }) end)\n"
    "  local many = {}\n"
    "  for i = 1, 20 do many[i] = x end\n"
    "  core.emit('pack', many)\n"
    "  local g = core.grad(y, { w })\n"
    "  core.update('w', w - g[1])\n"
    "  core.fetch('loss', y)\n"
    "end)\n"
    "local order = {}\n"
    "for k in pairs { b = 1, a = 2, c = 3 } do order[#order + 1] = k end\n"
    "local text = ('x'):rep(10):gsub('x', '%0y') .. tostring(graph)\n"
    "print(text, coroutine.wrap(function() coroutine.yield(1) end)())\n"
    "return core.job { graph = graph, order = order }\n";

static sgl_status load_once(sglcore_env *env, void *context)
{
    const sgl_setting settings[] = { { "rows", "3" }, { "plan.micro", "2" } };
    (void)context;
    sgl_vm *vm;
    sgl_job *job = NULL;
    sgl_config config = { .alloc = env->alloc, .alloc_user = env->alloc_user };
    sgl_status status = sgl_open(&config, &vm);
    if (status != SGL_OK) return status;
    status = sgl_load_text(vm, "fault.lua", script, settings, 2, &job);
    const char *json, *key, *value, *type;
    if (status == SGL_OK) status = sgl_job_meta(job, &json);
    if (status == SGL_OK) status = sgl_job_setting(job, 0, &key, &value, &type);
    if (status == SGL_OK) sgl_job_free(job);
    sgl_close(vm);
    return status;
}

static void test_each_allocation(void **state)
{
    (void)state;
    int64_t count = fault_each_allocation_tolerant(load_once, NULL);
    assert_true(count > 300);
}

/* ---- arguments made at random -------------------------------------------------------------------------------------- */

static const char fuzz[] =
    "local random = math.random\n"
    "math.randomseed(SEED)\n"
    "local names = {}\n"
    "for name in pairs(core) do if name ~= 'job' and name ~= 'eval' and name ~= 'methods' then names[#names + 1] = name end end\n"
    "local ops, op_names = core.ops(), {}\n"
    "for name in pairs(ops) do op_names[#op_names + 1] = name end\n"
    "local made, calls, good = {}, 0, 0\n"
    "local gone pcall(core.trace, 'gone', function() gone = core.constant(1, 'f32') error('x') end)\n"
    "local odd = { 0, 1, -1, 2, 3, 7, 1.5, -0.0, 1 / 0, 0 / 0, math.maxinteger, math.mininteger, 2 ^ 53, 2 ^ 63, '', 'x', 'f32',\n"
    "  'i64', 'bool', 'feed', 'parameter', 'state', 'axis', 'a\\0b', ('n'):rep(2000), true, false, print, coroutine.create(print),\n"
    "  setmetatable({}, { __index = function() return 1 end, __len = function() return 1 << 40 end }), {}, core, gone }\n"
    "local function list(most, with)\n"
    "  local t = {}\n"
    "  for i = 1, random(0, most) do t[i] = with() end\n"
    "  return t\n"
    "end\n"
    "local function tensor() return #made > 0 and made[random(#made)] or nil end\n"
    "local function small() return random(-1, 4) end\n"
    "local value\n"
    "local function attrs(op)\n"
    "  local t = {}\n"
    "  for name, kind in (ops[op] and ops[op].attrs or 'axis:i'):gmatch('(%w+):(%w)') do\n"
    "    if random() < 0.8 then\n"
    "      if kind == 'I' then t[name] = list(4, small) elseif kind == 'F' then t[name] = list(3, random)\n"
    "      elseif kind == 't' then t[name] = ({ 'f32', 'i32', 'f64', 'bool', 'i64' })[random(5)]\n"
    "      elseif kind == 'f' then t[name] = random() elseif kind == 's' then t[name] = 'name' .. random(5) else t[name] = small() end\n"
    "    end\n"
    "  end\n"
    "  if random() < 0.1 then t[random() < 0.5 and value() or 'x'] = value() end\n"
    "  return t\n"
    "end\n"
    "function value()\n"
    "  local kind = random(10)\n"
    "  if kind <= 4 then return tensor() end\n"
    "  if kind <= 7 then return odd[random(#odd)] end\n"
    "  if kind == 8 then return list(3, value) end\n"
    "  if kind == 9 then return op_names[random(#op_names)] end\n"
    "  return function(...) return ... end\n"
    "end\n"
    "local function keep(ok, ...)\n"
    "  calls = calls + 1\n"
    "  if not ok then return end\n"
    "  good = good + 1\n"
    "  for i = 1, select('#', ...) do\n"
    "    local x = select(i, ...)\n"
    "    if core.is_tensor(x) then\n"
    "      assert(tostring(x):find('^%w+%[[%d,]*%]$'), tostring(x))\n"
    "      local elements = 1\n"
    "      for _, extent in ipairs(core.dims(x)) do elements = elements * extent end\n"
    "      if elements < 1e6 then made[#made < 40 and #made + 1 or random(40)] = x end\n"
    "    end\n"
    "  end\n"
    "end\n"
    "local function some_key(key) return key ~= nil and key == key and key or 'k' end\n"
    "local function operate()\n"
    "  local a, b = value(), value()\n"
    "  local way = random(12)\n"
    "  if way == 1 then return a + b elseif way == 2 then return a - b elseif way == 3 then return a * b elseif way == 4 then return a / b\n"
    "  elseif way == 5 then return a // b elseif way == 6 then return a % b elseif way == 7 then return a ^ b elseif way == 8 then return -a\n"
    "  elseif way == 9 then return a < b elseif way == 10 then return a == b elseif way == 11 then return a .. b else return #a end\n"
    "end\n";

static const char fuzz_rounds[] =
    "for round = 1, 40 do\n"
    "  made = {}\n"
    "  pcall(core.trace, 'fuzz', function()\n"
    "    for i, dims in ipairs { {}, { 3 }, { 2, 3 }, { 3, 2 }, { 1, 4, 2 }, { 0, 2 } } do\n"
    "      keep(pcall(core.input, 'feed', 'x' .. i, ({ 'f32', 'i32', 'f64', 'bool', 'i64', 'f32' })[random(6)], dims))\n"
    "    end\n"
    "    for i = 1, 250 do\n"
    "      local way = random(10)\n"
    "      if way <= 5 then\n"
    "        local op = op_names[random(#op_names)]\n"
    "        keep(pcall(core.emit, op, list(4, random() < 0.8 and tensor or value), attrs(op)))\n"
    "      elseif way <= 7 then\n"
    "        keep(pcall(operate))\n"
    "      elseif way == 8 and random() < 0.3 then\n"
    "        keep(pcall(function()\n"
    "          local c <close> = setmetatable({}, { __close = function()\n"
    "            if random() < 0.1 then collectgarbage() end keep(pcall(operate)) if random() < 0.3 then error('close') end\n"
    "          end })\n"
    "          local co = coroutine.wrap(function() coroutine.yield(operate()) return core.trace('in', operate) end)\n"
    "          co() core.scope('c', core.trace, 't', function() pcall(co) keep(true, core.constant(1, 'f32')) operate() error('x') end)\n"
    "        end))\n"
    "      elseif way == 8 then\n"
    "        keep(pcall(core.scope, 's' .. random(3), core[names[random(#names)]], value(), value(), value()))\n"
    "      else\n"
    "        keep(pcall(core[names[random(#names)]], value(), value(), value(), value()))\n"
    "      end\n"
    "    end\n"
    "  end)\n"
    "end\n"
    "assert(calls > 5000 and good > 1000, calls .. ' ' .. good)\n"
    "return core.job {}\n";

static void test_random_calls(void **state)
{
    (void)state;
    static char text[sizeof fuzz + sizeof fuzz_rounds + 16];
    sgldsl_limits limits = sgldsl_default_limits;
    limits.cpu_ms = 250000;
    for (int seed = 1; seed <= 6; seed++) {
        dsl_host host;
        sgl_job *job;
        const char *mark = strstr(fuzz, "SEED");
        snprintf(text, sizeof text, "%.*s%d%s%s", (int)(mark - fuzz), fuzz, seed, mark + 4, fuzz_rounds);
        dsl_open(&host);
        if (dsl_load_limited(&host, text, &limits, &job) != SGL_OK) {
            fail_msg("seed %d: %s", seed, sgl_error_message(host.vm));
        }
        dsl_close(&host);
    }
}

/* ---- calls of a host that make no sense -------------------------------------------------------------------------------- */

static sgl_job *running;

static void call_back(void *user, sgl_log_level level, const char *message)
{
    const char *json;
    double number;
    (void)user;
    (void)message;
    if (level != SGL_LOG_INFO || running == NULL) return;
    assert_int_equal(sgl_job_meta(running, &json), SGL_WRONG_STATE);
    assert_int_equal(sgl_job_number(running, "steps", &number), SGL_WRONG_STATE);
    sgl_job_free(running);
}

static int print_something(lua_State *L)
{
    if (luaL_dostring(L, "print('x')")) lua_error(L);
    return 0;
}

static void test_senseless_calls(void **state)
{
    (void)state;
    sgl_vm *vm;
    sgl_job *job;
    sgl_config config = { .log = call_back };
    assert_int_equal(sgl_open(&config, &vm), SGL_OK);
    sgl_setting bad[] = { { NULL, "x" }, { "x", NULL } };
    assert_int_equal(sgl_load_text(NULL, "x", "", NULL, 0, &job), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_load_text(vm, NULL, "", NULL, 0, &job), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_load_text(vm, "x", NULL, NULL, 0, &job), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_load_text(vm, "x", "", NULL, 1, &job), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_load_text(vm, "x", "", bad, -1, &job), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_load_text(vm, "x", "", bad, 1, &job), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_load_text(vm, "x", "", bad + 1, 1, &job), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_load_file(vm, "", NULL, 0, &job), SGL_INVALID_ARGUMENT);
    assert_null(job);
    sgl_job_free(NULL);
    assert_int_equal(sgl_load_text(vm, "x", "return require('sgl.core').job {}", NULL, 0, &job), SGL_OK);
    running = job;
    assert_int_equal(sgldsl_enter(job, print_something, NULL), SGL_OK); /* call_back frees it, in vain */
    running = NULL;
    const char *key, *value, *type;
    assert_int_equal(sgl_job_setting(job, -1, &key, &value, &type), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_job_setting(job, 1 << 30, &key, &value, &type), SGL_OK);
    assert_null(key);
    sgl_graph *graph;
    sgl_plan *plan;
    assert_int_equal(sgl_job_graph(job, "trian", &graph), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_job_graph(job, NULL, &graph), SGL_INVALID_ARGUMENT);
    assert_int_equal(sgl_job_graph(job, "train", &graph), SGL_SCRIPT); /* a job that sgl.job did not make */
    assert_int_equal(sgl_job_plan(job, &plan), SGL_SCRIPT);
    assert_null(graph);
    assert_null(plan);
    sgl_job_free(job);
    sgl_close(vm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_allocation),
        cmocka_unit_test(test_random_calls),
        cmocka_unit_test(test_senseless_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
