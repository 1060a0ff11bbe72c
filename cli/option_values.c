/* option_values.c -- the values of options, which are checked here before anything is started; a bad value is
 * a message of one line. */
#include "option.h"
#include "passes/remat/remat.h"
#include "picture.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const choices_name[] = {"fixed", "budget", NULL};
const char *const emit_name[] = {"c", "cuda", "onnx", "torch", NULL};
const char *const shell_name[] = {"bash", "zsh", "fish", NULL};

bool parse_real(const char *text, double low, double high, double *v)
{
    char *end;
    *v = strtod(text, &end);
    return end != text && *end == 0 && *v >= low && *v <= high;
}

bool parse_integer(const char *text, int64_t low, int64_t high, int64_t *v)
{
    char *end;
    errno = 0;
    *v = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0 && *v >= low && *v <= high;
}

/* Units are k, M, G or T in any case, with an i for powers of 1024, with or without B.  A number without a
 * unit must be at least 65536 bytes, so that a forgotten unit is noticed. */
bool parse_bytes(const char *text, int64_t *bytes)
{
    static const char prefix[] = "kmgt";
    char *end;
    double v = strtod(text, &end);
    if (end == text || !(v > 0))
        return false;
    end += strspn(end, " ");
    const char *p = *end ? strchr(prefix, tolower((unsigned char)*end)) : NULL;
    bool binary = p && tolower((unsigned char)end[1]) == 'i', bare = !*end;
    end += (p != NULL) + binary;
    end += tolower((unsigned char)*end) == 'b';
    if (*end || (bare && v < 0x1p16))
        return false;
    v = floor(v * (p ? pow(binary ? 1024 : 1000, (double)(p - prefix + 1)) : 1));
    *bytes = v < 0x1p60 ? (int64_t)v : 0;
    return *bytes > 0;
}

/* If no name matches, the message lists all of them. */
bool parse_name(Options *o, const char *option, const char *const *names, const char *text, int *k)
{
    char all[200] = "", hint[NEAREST_HINT];
    Nearest near;
    nearest_init(&near, text);
    for (int i = 0; names[i]; i++) {
        nearest_try(&near, names[i]);
        if (strcmp(names[i], text) == 0) {
            nearest_hint(&near, hint);
            *k = i;
            return true;
        }
        size_t n = strlen(all);
        snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", names[i]);
    }
    return fail(&o->diag, "--%s: '%s' is none of %s%s", option, text, all, nearest_hint(&near, hint));
}

static bool parse_percent(const char *text, double low, double high, double *fraction)
{
    char *end;
    double percent = strtod(text, &end);
    *fraction = percent / 100;
    return end != text && strcmp(end, "%") == 0 && percent >= low && percent <= high;
}

/* The gap of ckc solve in percent, with or without the sign. */
bool parse_gap(Options *o, const char *text)
{
    bool ok = parse_percent(text, 0, 1e6, &o->step.gap) || parse_real(text, 0, 1e6, &o->step.gap);
    if (ok && !strchr(text, '%'))
        o->step.gap /= 100;
    return ok || fail(&o->diag, "--gap: '%s' is no percentage", text);
}

bool parse_budget(Options *o, const char *text)
{
    if (parse_percent(text, 1e-9, 100, &o->step.budget_fraction)) {
        o->step.budget = 0;
        return true;
    }
    o->step.budget_fraction = 0;
    double fraction;
    if (parse_bytes(text, &o->step.budget))
        return true;
    if (parse_percent(text, 100, 1e9, &fraction))
        return fail(&o->diag, "--budget: %s is more than everything stored takes: leave it out", text);
    if (*text && !text[strspn(text, "0123456789.")] && strtod(text, NULL) > 0)
        return fail(&o->diag, "--budget: '%s' has no unit: %sGB, %sMB, %sB, or %s%%?", text, text, text, text,
                    text);
    return fail(&o->diag, "--budget: '%s' is no size such as 40GB, 512MiB, 1000000 or 50%%", text);
}

bool budget_bytes(Options *o, const char *what)
{
    int64_t memory = o->step.device ? o->device.memory : 0;
    if (!o->budget && memory <= 0)
        return fail(&o->diag, "%s needs --budget SIZE, or a --device whose memory is known", what);
    o->step.budget = memory;
    TRY(!o->budget || parse_budget(o, o->budget));
    if (memory > 0 && o->step.budget > memory) {
        o->step.budget = memory;
        o->budget = NULL;
    }
    return o->step.budget > 0 || fail(&o->diag, "--budget: %s of what?  Say it in bytes, 40GB", o->budget);
}

bool parse_choices(Options *o, const char *text)
{
    int k = 0;
    TRY(parse_name(o, "choices", choices_name, text, &k));
    o->step.any_bits = k == 1;
    return true;
}

bool parse_overhead(Options *o, const char *text)
{
    o->step.least_bytes = true;
    return parse_percent(text, 0, 1000, &o->step.overhead) ||
           fail(&o->diag, "--overhead: '%s' is no percentage from 0%% to 1000%%", text);
}

/* The next item of a comma-separated list, past which *list is moved; NULL: there is none. */
static char *next_item(Options *o, const char **list)
{
    size_t n = strcspn(*list, ",");
    char *item = **list ? arena_strndup(&o->arena, *list, n) : NULL;
    *list += n + ((*list)[n] == ',');
    return item;
}

void set_bind(OnnxOptions *im, const char *symbol, int64_t size, Arena *a)
{
    OnnxBind *b = NEW(a, OnnxBind, im->nbind + 1);
    int at = im->nbind;
    for (int i = 0; i < im->nbind; i++) {
        b[i] = im->bind[i];
        at = strcmp(b[i].symbol, symbol) == 0 ? i : at;
    }
    b[at] = (OnnxBind){symbol, size};
    im->nbind += at == im->nbind;
    im->bind = b;
}

bool parse_bind(Options *o, const char *text)
{
    for (char *item; (item = next_item(o, &text));) {
        char *eq = strrchr(item, '=');
        int64_t v = 0;
        if (!eq || eq == item || !parse_integer(eq + 1, INT32_MIN, INT32_MAX, &v))
            return fail(&o->diag, "--bind: '%s' is not SYMBOL=SIZE, a whole number below 2^31", item);
        *eq = 0;
        set_bind(&o->step.import, item, v, &o->arena);
    }
    return true;
}

/* [SYMBOL=]FROM..TO */
bool parse_batches(Options *o, const char *text)
{
    const char *eq = strrchr(text, '='), *range = eq ? eq + 1 : text, *dots = strstr(range, "..");
    o->batch = eq ? arena_strndup(&o->arena, text, (size_t)(eq - text)) : NULL;
    return (eq != text && dots &&
            parse_integer(arena_strndup(&o->arena, range, (size_t)(dots - range)), 1, INT32_MAX,
                          &o->batches_from) &&
            parse_integer(dots + 2, o->batches_from, INT32_MAX, &o->batches_to)) ||
           fail(&o->diag, "--batch: '%s' is not FROM..TO or SYMBOL=FROM..TO, such as 1..256", text);
}

bool parse_tie(Options *o, const char *text)
{
    for (char *kept; (kept = next_item(o, &text));) {
        char *eq = strchr(kept, '=');
        if (!eq || eq == kept || !eq[1])
            return fail(&o->diag, "--tie: '%s' is not KEPT=COPY", kept);
        *eq = 0;
        OnnxOptions *im = &o->step.import;
        OnnxTie *t = NEW(&o->arena, OnnxTie, im->nties + 1);
        for (int i = 0; i < im->nties; i++)
            t[i] = im->tie[i];
        t[im->nties++] = (OnnxTie){kept, eq + 1};
        im->tie = t;
    }
    return true;
}

/* Appends text to a list. */
static void append(Options *o, const char *const **list, int *n, const char *text)
{
    const char **longer = NEW(&o->arena, const char *, *n + 1);
    for (int i = 0; i < *n; i++)
        longer[i] = (*list)[i];
    longer[(*n)++] = text;
    *list = longer;
}

static void add_globs(Options *o, const char *text, const char *const **list, int *n)
{
    for (const char *glob; (glob = next_item(o, &text));)
        append(o, list, n, glob);
}

bool parse_train(Options *o, const char *text)
{
    add_globs(o, text, &o->step.train, &o->step.ntrain);
    o->step.import.train = o->step.train;
    o->step.import.ntrain = o->step.ntrain;
    return true;
}

bool parse_freeze(Options *o, const char *text)
{
    add_globs(o, text, &o->step.freeze, &o->step.nfreeze);
    return true;
}

bool parse_no_decay(Options *o, const char *text)
{
    if (strcmp(text, "auto") == 0)
        o->step.no_decay_auto = true;
    else
        add_globs(o, text, &o->step.no_decay, &o->step.nno_decay);
    return true;
}

bool parse_allow(Options *o, const char *text)
{
    append(o, &o->allow, &o->nallow, text);
    return true;
}

/* Appends a policy to compare; the search is named ckc among them. */
bool parse_compared(Options *o, const char *text)
{
    int k = 0;
    append(o, &o->policies, &o->npolicies, text);
    return remat_is_policy(text) || strcmp(text, "ckc") == 0 ||
           parse_name(o, "policy", remat_policies, text, &k);
}

bool parse_init(Options *o, const char *text)
{
    o->init_text = text;
    o->step.import.init = true;
    return init_parse(text, &o->init, &o->diag);
}

bool parse_device(Options *o, const char *text)
{
    o->ops = device_here(text, &o->ordinal);
    o->step.device = &o->device;
    if (!o->ops)
        return device_find(&o->device, text, &o->arena, &o->diag);
    return o->ops->info(o->ordinal, &o->device, &o->arena, &o->diag);
}

bool parse_host_memory(Options *o, const char *text)
{
    return parse_bytes(text, &o->step.host_bytes) ||
           fail(&o->diag, "--host-memory: '%s' is no size such as 64GB or 32GiB; --offload no uses none",
                text);
}

bool parse_policy(Options *o, const char *text)
{
    int k = 0;
    o->step.policy = text;
    return remat_is_policy(text) || parse_name(o, "policy", remat_policies, text, &k);
}

bool parse_emit(Options *o, const char *text)
{
    int k = 0;
    TRY(parse_name(o, "emit", emit_name, text, &k));
    o->cuda |= k == 1;
    o->onnx |= k == 2;
    o->torch |= k == 3;
    return true;
}

bool parse_save(Options *o, const char *text)
{
    if (!has_suffix(text, ".onnx") && !has_suffix(text, ".safetensors"))
        return fail(&o->diag, "--save: '%s' ends in neither .onnx nor .safetensors", text);
    if (o->nsave == (int)(sizeof o->save / sizeof o->save[0]))
        return fail(&o->diag, "--save: given too often");
    o->save[o->nsave++] = text;
    return true;
}

bool parse_plot(Options *o, const char *text)
{
    o->plot = text;
    return picture_suffix(text) || fail(&o->diag, "--plot: '%s' ends in neither .svg nor .png", text);
}

bool parse_accumulate(Options *o, const char *text)
{
    size_t n = strlen("auto");
    o->accumulate_auto = strncmp(text, "auto", n) == 0 && (!text[n] || (text[n] == ':' && text[n + 1]));
    o->batch = o->accumulate_auto && text[n] ? text + n + 1 : NULL;
    o->step.accumulate = 0;
    return o->accumulate_auto || parse_integer(text, 1, PLAN_ACCUMULATE, &o->step.accumulate) ||
           fail(&o->diag, "--accumulate: '%s' is neither a number from 1 to %d nor auto or auto:SYMBOL", text,
                PLAN_ACCUMULATE);
}

bool parse_grads(Options *o, const char *text)
{
    o->grads = text;
    o->step.keep_grads = true;
    return true;
}

bool parse_threads(Options *o, const char *text)
{
    int64_t n = 0;
    if (!parse_integer(text, 1, PLAN_THREADS, &n))
        return fail(&o->diag, "--threads: '%s' is not a number from 1 to %d", text, PLAN_THREADS);
    o->step.threads = (int)n;
    return true;
}

bool parse_seed(Options *o, const char *text)
{
    int64_t n = 0;
    if (!parse_integer(text, 0, INT64_MAX, &n))
        return fail(&o->diag, "--seed: '%s' is not a number from 0 on", text);
    o->step.seed = (uint64_t)n;
    o->seed_given = true;
    return true;
}

static bool no_pass(Options *o, const char *name)
{
    char hint[NEAREST_HINT];
    Nearest near;
    nearest_init(&near, name);
    for (const Pass *p = pipeline; p->name; p++)
        nearest_try(&near, p->name);
    return fail(&o->diag, "there is no pass '%s' (see ckc opt --list)%s", name, nearest_hint(&near, hint));
}

/* Appends names of passes to a list with commas. */
static bool add_passes(Options *o, const char *text, const char **list)
{
    *list = *list ? arena_printf(&o->arena, "%s,%s", *list, text) : text;
    for (const char *name; (name = next_item(o, &text));)
        if (strcmp(name, "all") != 0 && !pass_find(name))
            return no_pass(o, name);
    return true;
}

bool parse_only(Options *o, const char *text) { return add_passes(o, text, &o->passes); }

bool parse_disable(Options *o, const char *text) { return add_passes(o, text, &o->disable); }

bool parse_dump(Options *o, const char *text) { return add_passes(o, text, &o->dump); }
