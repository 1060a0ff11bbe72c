/* cmd_devices.c -- `ckc devices [FILE]`: lists this machine, the devices that plans can be made for
 * (--device NAME), and the one that FILE describes. */
#include "cli.h"
#include "ir/mem.h"
#include <stdlib.h>
#include <string.h>

static json_t *known(double v) { return v > 0 ? json_real(v) : json_null(); }
static json_t *known_whole(int64_t v) { return v > 0 ? json_integer(v) : json_null(); }

static json_t *rates_json(const DeviceInfo *d, Unit unit)
{
    json_t *o = json_object();
    for (int dt = DT_F32; dt < DT_COUNT; dt++)
        if (dtype_is_float((DType)dt) && d->flops[unit][dt] > 0)
            json_object_set_new(o, dtype_name[dt], json_real(d->flops[unit][dt]));
    if (unit == UNIT_MATRIX && d->tf32 > 0)
        json_object_set_new(o, "tf32", json_real(d->tf32));
    return o;
}

static json_t *device_json(const DeviceInfo *d)
{
    json_t *o = json_object();
    json_object_set_new(o, "name", text_json(d->name));
    json_object_set_new(o, "title", text_json(d->title));
    json_object_set_new(o, "memory_bytes", known_whole(d->memory));
    json_object_set_new(o, "reserved_bytes", json_integer(d->reserved));
    for (int u = 0; u < UNIT_COUNT; u++)
        json_object_set_new(o, unit_name[u], rates_json(d, (Unit)u));
    json_object_set_new(o, "compute_efficiency", json_real(d->compute_efficiency));
    json_object_set_new(o, "memory_bandwidth", known(d->memory_bandwidth));
    json_object_set_new(o, "memory_efficiency", json_real(d->memory_efficiency));
    json_object_set_new(o, "cache_bytes", known_whole(d->cache));
    json_object_set_new(o, "cache_bandwidth", known(d->cache_bandwidth));
    json_object_set_new(o, "host_link", known(d->host_link));
    json_object_set_new(o, "network", known(d->network));
    json_object_set_new(o, "launch_ns", json_real(d->launch_ns));
    json_object_set_new(o, "processors", known_whole(d->processors));
    json_object_set_new(o, "threads", known_whole(d->threads));
    json_object_set_new(o, "shared_memory_bytes", known_whole(d->shared_memory));
    json_object_set_new(o, "head_bytes", json_integer(d->head_bytes));
    json_object_set_new(o, "head_rows", json_integer(d->head_rows));
    json_object_set_new(o, "update_bytes", json_integer(d->update_bytes));
    json_object_set_new(o, "factor_bytes", json_integer(d->factor_bytes));
    return o;
}

/* The rate of products as text, in tera-operations per second: "67", or "-" if it is not known. */
static const char *tera(const DeviceInfo *d, DType dt, char buf[16])
{
    double rate = d->flops[UNIT_MATRIX][dt];
    rate = rate > 0 ? rate : d->flops[UNIT_VECTOR][dt];
    snprintf(buf, 16, rate > 0 ? "%.3g" : "-", rate / 1000);
    return buf;
}

static void print_device(FILE *f, const DeviceInfo *d)
{
    char memory[32], reserved[32], rate[3][16];
    print_line(f, "%-8s %9s %8s %5s %4s %4s %6.5g %3.3g  %s", d->name,
               d->memory ? bytes_str(d->memory, memory) : "-", bytes_str(d->reserved, reserved),
               tera(d, DT_F64, rate[0]), tera(d, DT_F32, rate[1]), tera(d, DT_BF16, rate[2]),
               d->memory_bandwidth, d->launch_ns / 1000, d->title);
}

/* Devices, and lines on those of this machine, or on why it has none of a kind. */
typedef struct {
    Options *o;
    DeviceInfo *d;
    const char **line;
    uint32_t n, cap, nline, cline;
} List;

static DeviceInfo *add_device(List *l)
{
    l->d = arena_grow(&l->o->arena, l->d, l->n, &l->cap, sizeof *l->d);
    return &l->d[l->n++];
}

static void add_line(List *l, const char *text)
{
    l->line = arena_grow(&l->o->arena, l->line, l->nline, &l->cline, sizeof *l->line);
    l->line[l->nline++] = arena_strndup(&l->o->arena, text, strlen(text));
}

/* Lists all devices of a kind that this machine has. */
static void list_here(List *l, const DeviceOps *ops)
{
    Arena *a = &l->o->arena;
    for (int i = 0; i == 0 || ops->numbered; i++) {
        DeviceInfo d;
        Diag why = {0};
        if (!ops->info(i, &d, a, &why)) {
            if (i == 0)
                add_line(l, why.msg);
            return;
        }
        d.name = i ? arena_printf(a, "%s:%d", d.name, i) : d.name;
        *add_device(l) = d;
        if (ops->about)
            add_line(l, ops->about(i, a));
    }
}

static bool collect(List *l)
{
    Options *o = l->o;
    for (const DeviceOps *const *ops = devices_here; *ops; ops++)
        list_here(l, *ops);
    for (const DeviceText *t = device_texts; t->name; t++)
        TRY(device_parse(add_device(l), t->text, &o->arena, &o->diag));
    return !o->path || device_find(add_device(l), o->path, &o->arena, &o->diag);
}

static void print_json(const List *l)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < l->n; i++)
        json_array_append_new(all, device_json(&l->d[i]));
    json_print(all, 17);
    json_decref(all);
}

static void print_list(const List *l)
{
    enum { TITLE = 9 };
    char *text;
    size_t size;
    FILE *f = mem_stream(&text, &size);
    fprintf(f, "%-8s %9s %8s %5s %4s %4s %6s %3s\n", "device", "memory", "reserved", "f64", "f32", "bf16",
            "GB/s", "us");
    for (uint32_t i = 0; i < l->n; i++)
        print_device(f, &l->d[i]);
    fputs("f64, f32, bf16: TFLOP/s of products; GB/s: of memory; us: a launch.  Peaks, as vendors state "
          "them; of cpu a "
          "first guess: its kernels are measured.\n",
          f);
    for (uint32_t i = 0; i < l->nline; i++)
        print_line(f, "%s", l->line[i]);
    mem_stream_end(f);
    print_lines(stdout, text, TITLE);
    free(text);
}

static bool list(Options *o)
{
    List l = {.o = o};
    TRY(collect(&l));
    if (o->json)
        print_json(&l);
    else
        print_list(&l);
    return true;
}

int cmd_devices(Options *o) { return list(o) ? EXIT_OK : report_error(&o->diag, NULL); }
