/* shadow_hooks.h -- stands behind generated text that is compiled with -fsanitize=thread: the functions that
 * such text calls. */
#define HOOK __attribute__((no_sanitize("thread")))
#define ACCESS(name, bytes, write)                                                           \
    HOOK void __tsan_##name(void *p) { shim->access(p, bytes, write); }
#define ALIGNED_ACCESS(n)                                                                    \
    HOOK void __tsan_read##n(void *p)                                                        \
    {                                                                                        \
        shim->access(p, (uintptr_t)p % n ? 0 : n, false);                                    \
    }                                                                                        \
    HOOK void __tsan_write##n(void *p)                                                       \
    {                                                                                        \
        shim->access(p, (uintptr_t)p % n ? 0 : n, true);                                     \
    }
ALIGNED_ACCESS(1)
ALIGNED_ACCESS(2)
ALIGNED_ACCESS(4)
ALIGNED_ACCESS(8)
ALIGNED_ACCESS(16)
ACCESS(unaligned_read2, 2, false)
ACCESS(unaligned_read4, 4, false)
ACCESS(unaligned_read8, 8, false)
ACCESS(unaligned_read16, 16, false)
ACCESS(unaligned_write2, 2, true)
ACCESS(unaligned_write4, 4, true)
ACCESS(unaligned_write8, 8, true)
ACCESS(unaligned_write16, 16, true)
HOOK void __tsan_read_range(void *p, size_t n) { shim->access(p, n, false); }
HOOK void __tsan_write_range(void *p, size_t n) { shim->access(p, n, true); }
HOOK void __tsan_init(void) {}
HOOK void __tsan_func_entry(void *from) {}
HOOK void __tsan_func_exit(void) {}
HOOK void *__tsan_memcpy(void *to, const void *from, size_t n)
{
    shim->access(from, n, false);
    shim->access(to, n, true);
    return memcpy(to, from, n);
}
HOOK void *__tsan_memset(void *to, int v, size_t n)
{
    shim->access(to, n, true);
    return memset(to, v, n);
}

/* Symbols of the linker: where the object lies, and the section of its __shared__ variables. */
extern char __ehdr_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));
extern char __start_shared_variables[] __attribute__((weak, visibility("hidden")));
extern char __stop_shared_variables[] __attribute__((weak, visibility("hidden")));
const ShimMemory shim_memory = {__ehdr_start, _end, __start_shared_variables, __stop_shared_variables};
