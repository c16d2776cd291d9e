/* test_mesh.c -- coordinates, groups and parts of a mesh, against counting by hand. */
#include "fault.h"

#include <stdio.h>

#include "plan/mesh.h"

static sglplan plan_of(int64_t pp, int64_t dp, int64_t fsdp, int64_t ep, int64_t cp, int64_t tp)
{
    sglplan plan;
    sglplan_init(&plan);
    plan.mesh[SGLIR_AXIS_PP] = pp;
    plan.mesh[SGLIR_AXIS_DP] = dp;
    plan.mesh[SGLIR_AXIS_FSDP] = fsdp;
    plan.mesh[SGLIR_AXIS_EP] = ep;
    plan.mesh[SGLIR_AXIS_CP] = cp;
    plan.mesh[SGLIR_AXIS_TP] = tp;
    plan.mesh[SGLIR_AXIS_MICRO] = 5; /* takes no part */
    return plan;
}

static void test_ranks_count_with_tp_fastest(void **state)
{
    (void)state;
    sglplan plan = plan_of(2, 3, 1, 2, 1, 4);
    sglcore_env env;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    int64_t ranks = 0, rank = 0;
    assert_int_equal(sglplan_mesh_size(&env, &plan, &ranks), SGL_OK);
    assert_int_equal(ranks, 48);
    for (int64_t pp = 0; pp < 2; pp++) {
        for (int64_t dp = 0; dp < 3; dp++) {
            for (int64_t ep = 0; ep < 2; ep++) {
                for (int64_t tp = 0; tp < 4; tp++, rank++) {
                    sglplan_coordinate c = sglplan_mesh_coordinate(&plan, rank);
                    assert_int_equal(c.at[SGLIR_AXIS_PP], pp);
                    assert_int_equal(c.at[SGLIR_AXIS_DP], dp);
                    assert_int_equal(c.at[SGLIR_AXIS_EP], ep);
                    assert_int_equal(c.at[SGLIR_AXIS_TP], tp);
                    assert_int_equal(c.at[SGLIR_AXIS_FSDP], 0);
                    assert_int_equal(c.at[SGLIR_AXIS_MICRO], 0);
                    assert_int_equal(sglplan_mesh_rank(&plan, &c), rank);
                }
            }
        }
    }
}

/* Members of each group of each rank, found by comparing coordinates. */
static void test_groups(void **state)
{
    (void)state;
    sglplan plan = plan_of(2, 2, 3, 1, 2, 2);
    int64_t ranks = 48;
    for (sglplan_axes axes = 0; axes < 1u << SGLIR_AXIS_MICRO; axes++) {
        for (int64_t rank = 0; rank < ranks; rank++) {
            sglplan_coordinate own = sglplan_mesh_coordinate(&plan, rank);
            int64_t place = 0;
            for (int64_t other = 0; other < ranks; other++) {
                sglplan_coordinate c = sglplan_mesh_coordinate(&plan, other);
                bool member = true;
                for (int axis = 0; axis < SGLIR_AXIS_MICRO; axis++)
                    member &= (axes >> axis & 1) || c.at[axis] == own.at[axis];
                if (!member) continue;
                assert_int_equal(sglplan_group_member(&plan, axes, rank, place), other);
                assert_int_equal(sglplan_group_place(&plan, axes, other), place);
                place++;
            }
            assert_int_equal(sglplan_group_size(&plan, axes), place);
        }
    }
}

static void test_axes_text(void **state)
{
    (void)state;
    char text[SGLPLAN_AXES_ROOM];
    assert_string_equal(sglplan_axes_text(0, text, sizeof text), "");
    assert_string_equal(sglplan_axes_text(SGLPLAN_AXIS(SGLIR_AXIS_TP), text, sizeof text), "tp");
    assert_string_equal(sglplan_axes_text(SGLPLAN_DATA_AXES, text, sizeof text), "dp+fsdp+ep");
    assert_string_equal(sglplan_axes_text(~(sglplan_axes)0, text, sizeof text), "pp+dp+fsdp+ep+cp+tp");
}

/* Parts lie side by side, differ by one unit at most, and hold what sglplan_part_holding says. */
static void test_parts(void **state)
{
    (void)state;
    for (int64_t unit = 1; unit <= 3; unit++) {
        for (int64_t units = 0; units <= 11; units++) {
            for (int64_t parts = 1; parts <= 13; parts++) {
                int64_t extent = units * unit, at = 0, before = INT64_MAX;
                for (int64_t place = 0; place < parts; place++) {
                    sglplan_part part = sglplan_part_of(extent, unit, parts, place);
                    assert_int_equal(part.offset, at);
                    assert_int_equal(part.size % unit, 0);
                    assert_true(part.size <= before);
                    assert_true(part.size / unit == units / parts || part.size / unit == units / parts + 1);
                    for (int64_t i = 0; i < part.size; i++)
                        assert_int_equal(sglplan_part_holding(extent, unit, parts, at + i), place);
                    before = part.size;
                    at += part.size;
                }
                assert_int_equal(at, extent);
            }
        }
    }
}

static void test_uneven_vocabulary(void **state)
{
    (void)state;
    sglplan_part last = sglplan_part_of(50257, 1, 4, 3);
    assert_int_equal(sglplan_part_of(50257, 1, 4, 0).size, 12565);
    assert_int_equal(last.size, 12564);
    assert_int_equal(last.offset, 37693);
    assert_int_equal(sglplan_part_of(6 * 64, 64, 4, 1).size, 128); /* heads, not elements: 2, 2, 1, 1 */
    assert_int_equal(sglplan_part_of(6 * 64, 64, 4, 2).size, 64);
    assert_int_equal(sglplan_part_of((int64_t)1 << 40, 1, 3, 2).offset, ((int64_t)2 << 40) / 3 + 1);
}

static void test_a_mesh_that_is_too_large(void **state)
{
    (void)state;
    sglcore_env env;
    int64_t ranks = 0;
    sglcore_env_init(&env, NULL, NULL, NULL, NULL);
    sglplan plan = plan_of(1, (int64_t)1 << 16, 1, 1, 1, 1 << 4);
    assert_int_equal(sglplan_mesh_size(&env, &plan, &ranks), SGL_OK);
    assert_int_equal(ranks, SGLPLAN_MOST_RANKS);
    plan.mesh[SGLIR_AXIS_TP]++;
    assert_int_equal(sglplan_mesh_size(&env, &plan, &ranks), SGL_INVALID_ARGUMENT);
    assert_string_equal(env.message, "plan: a mesh has at most 1048576 ranks; tp=17 makes it larger");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_count_with_tp_fastest),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_axes_text),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_uneven_vocabulary),
        cmocka_unit_test(test_a_mesh_that_is_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
