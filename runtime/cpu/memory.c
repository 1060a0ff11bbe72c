/* memory.c -- how much memory this process may have: the minimum over the machine, its control groups and its
 * own limit of address space. */
#include "cpu.h"
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>

/* The number after a key such as "MemTotal:" at the start of a line; -1: there is none. */
static int64_t number_of(const char *path, const char *key)
{
    FILE *f = fopen(path, "r");
    char line[256];
    int64_t v = -1;
    size_t n = strlen(key);
    while (f && v < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, n) == 0 && sscanf(line + n, "%" SCNd64, &v) != 1)
            v = -1; /* "max": no limit */
    if (f)
        fclose(f);
    return v;
}

typedef struct {
    const char *root, *limit, *used, *cached; /* names of files and keys, in version 2 or 1 */
} Interface;

static const Interface v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
static const Interface v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                             "memory.usage_in_bytes", "total_inactive_file "};

static int64_t group_number(const Interface *v, const char *group, const char *name, const char *key)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s/%s", v->root, group, name);
    return n < (int)sizeof path ? number_of(path, key) : -1;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Bytes that one group may use or, with `left`, still has: cached files count as free. */
static int64_t group_bytes(const Interface *v, const char *group, bool left)
{
    int64_t limit = group_number(v, group, v->limit, ""), used;
    if (limit < 0 || !left)
        return limit < 0 ? INT64_MAX : limit;
    used = group_number(v, group, v->used, "");
    int64_t cached = group_number(v, group, "memory.stat", v->cached);
    used = used < 0 ? 0 : used - (cached < 0 ? 0 : least(cached, used));
    return limit > used ? limit - used : 0;
}

/* The minimum of group_bytes() over the groups of this process up to the root; in a container only the files
 * of the root are visible. */
static int64_t groups_bytes(bool left)
{
    FILE *f = fopen("/proc/self/cgroup", "r");
    char line[PATH_MAX];
    int64_t bytes = INT64_MAX;
    while (f && fgets(line, sizeof line, f)) {
        char *second = strchr(line, ':'), *group = second ? strchr(second + 1, ':') : NULL;
        if (!group)
            continue;
        bool is_v2 = group == second + 1, is_v1 = strncmp(second, ":memory:", 8) == 0;
        group[strcspn(group, "\n")] = 0;
        group++;
        for (char *end = group + strlen(group); is_v1 || is_v2; end = strrchr(group, '/')) {
            if (end)
                *end = 0;
            bytes = least(bytes, group_bytes(is_v2 ? &v2 : &v1, end ? group : "", left));
            if (!end || end == group)
                break;
        }
    }
    if (f)
        fclose(f);
    return bytes;
}

static int64_t address_space(bool left)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_AS, &r) != 0 || r.rlim_cur == RLIM_INFINITY || r.rlim_cur > INT64_MAX)
        return INT64_MAX;
    int64_t used = left ? number_of("/proc/self/status", "VmSize:") : 0;
    used = used > 0 ? used << 10 : 0;
    return (int64_t)r.rlim_cur > used ? (int64_t)r.rlim_cur - used : 0;
}

static int64_t machine_bytes(const char *key)
{
    int64_t kib = number_of("/proc/meminfo", key);
    return kib < 0 ? INT64_MAX : kib << 10;
}

int64_t memory_total(void)
{
    return least(machine_bytes("MemTotal:"), least(groups_bytes(false), address_space(false)));
}

int64_t memory_available(void)
{
    return least(machine_bytes("MemAvailable:"), least(groups_bytes(true), address_space(true)));
}
