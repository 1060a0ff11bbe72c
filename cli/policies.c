/* policies.c -- the table that compares named policies with the search, for a model (ckc compare) or an
 * instance (ckc compare, ckc solve --policy all). */
#include "cli.h"
#include "passes/remat/remat.h"
#include <math.h>
#include <string.h>

/* How far a cost is above a base, as a part of the base; 0 if there is no base. */
static double over(double cost, double base) { return base > 0 ? cost / base - 1 : 0; }

static double gap(const PolicyTable *t, const PolicyRow *r) { return over(r->cost, t->bound); }

static bool has_gap(const PolicyTable *t, const PolicyRow *r) { return r->fits && t->bound > 0; }

void policy_rows(Options *o, PolicyTable *t)
{
    uint32_t named = 0;
    while (remat_policies[named])
        named++;
    t->n = o->npolicies ? (uint32_t)o->npolicies : named + 1;
    t->row = NEW(&o->arena, PolicyRow, t->n);
    for (uint32_t i = 0; i < t->n; i++) {
        const char *name = o->npolicies ? o->policies[i] : i < named ? remat_policies[i] : "ckc";
        t->row[i] = (PolicyRow){.policy = name, .measured = NAN};
    }
}

/* ---- text --------------------------------------------------------------------------------------- */

static const char *cost_str(const PolicyTable *t, double cost, char buf[32])
{
    if (isnan(cost))
        return "-";
    if (t->in_ms)
        return ms_str(llround(1e6 * cost), buf);
    snprintf(buf, 32, cost < 1e11 ? "%.0f" : "%.5e", cost);
    return buf;
}

enum { NAME = 14 };

/* Prints a name in its column; one that is too wide has a line of its own. */
static void print_name(FILE *f, const char *name)
{
    if (strlen(name) > NAME)
        print_line(f, "%s", name);
    fprintf(f, "%-*s", NAME, strlen(name) > NAME ? "" : name);
}

static void print_row(FILE *f, const PolicyTable *t, const PolicyRow *r)
{
    char bytes[2][32], cost[2][32], share[2][16];
    print_name(f, r->policy);
    if (r->why) {
        fprintf(f, " no plan\n");
        return;
    }
    const char *third =
        t->measured ? cost_str(t, r->measured, cost[1]) : percent_str(over(r->cost, t->base), share[0]);
    fprintf(f, " %10s %10s %6lld %11s %9s %8s %4s\n", bytes_str(r->activations, bytes[0]),
            bytes_str(r->peak, bytes[1]), (long long)r->redone, cost_str(t, r->cost, cost[0]), third,
            has_gap(t, r) ? percent_str(gap(t, r), share[1]) : "-", r->fits ? "yes" : "no");
}

void policies_print(FILE *f, const PolicyTable *t)
{
    char bytes[2][32], cost[32];
    print_line(f, "%s", t->path);
    fprintf(f, "budget %s of %s with everything stored", bytes_str(t->budget, bytes[0]),
            bytes_str(t->whole, bytes[1]));
    fprintf(f, t->bound > 0 ? "; lower bound %s\n\n" : "\n\n", cost_str(t, t->bound, cost));
    fprintf(f, "%-*s %10s %10s %6s %11s %9s %8s %4s\n", NAME, "policy", "activation", "peak", "redone",
            t->in_ms ? "predicted" : "cost", t->measured ? "measured" : "overhead", "gap", "fits");
    for (uint32_t i = 0; i < t->n; i++)
        print_row(f, t, &t->row[i]);
    fputs("\nactivation, peak: bytes at the largest step, the latter of everything;\n"
          "redone: kernels that run again; gap: above the lower bound for the budget\n",
          f);
    others_print(f, t->others);
    for (uint32_t i = 0; i < t->n; i++)
        if (t->row[i].why) {
            fprintf(f, "%s: ", t->row[i].policy);
            message_print(f, t->row[i].why, 80);
        }
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static json_t *row_json(const PolicyTable *t, const PolicyRow *r)
{
    if (r->why)
        return json_pack("{s:s, s:b, s:o}", "policy", r->policy, "fits", false, "reason", text_json(r->why));
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:o, s:f, s:o, s:b}", "policy", r->policy, "activation_bytes",
                     (json_int_t)r->activations, "peak_bytes", (json_int_t)r->peak, "redone",
                     (json_int_t)r->redone, t->in_ms ? "predicted_ms" : "cost", r->cost, "measured_ms",
                     real_json(r->measured), "overhead", over(r->cost, t->base), "gap",
                     real_json(has_gap(t, r) ? gap(t, r) : NAN), "fits", r->fits);
}

void policies_json(const PolicyTable *t)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < t->n; i++)
        json_array_append_new(rows, row_json(t, &t->row[i]));
    json_t *o = json_pack("{s:o, s:I, s:I, s:f, s:f, s:f, s:o}", "file", text_json(t->path), "budget_bytes",
                          (json_int_t)t->budget, "keep_all_bytes", (json_int_t)t->whole,
                          t->in_ms ? "keep_all_ms" : "base_cost", t->base, t->in_ms ? "bound_ms" : "bound",
                          t->bound, "others", t->others, "policies", rows);
    json_print(o, 9);
    json_decref(o);
}
