/* test_file.c -- a file, or the files of a folder, are written completely or not at all, if the process is
 * killed before any of its system calls, and if any of them fails; temporary files of dead processes go. */
#include "tests.h"
#include "command.h"
#include "ir/file.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The content of a small file, "" if there is none; valid until the next call. */
static const char *get(const char *path)
{
    static char text[64];
    FILE *f = fopen(path, "r");
    text[0] = 0;
    if (f) {
        text[fread(text, 1, sizeof text - 1, f)] = 0;
        fclose(f);
    }
    return text;
}

static bool write_file(const char *path, const char *text, Diag *d)
{
    NewFile f;
    TRY(file_create(&f, path, d));
    file_write(&f, text, strlen(text));
    return file_commit(&f, d);
}

/* ---- faults ------------------------------------------------------------------------------------ */

static int calls, fatal; /* calls so far; the number, from 1, of the call that kills or fails, 0: none does */
static const char *only; /* only calls of this name count; NULL: all */

static int kill_at(const char *call)
{
    (void)call;
    if (++calls == fatal)
        raise(SIGKILL);
    return 0;
}

static int fail_at(const char *call)
{
    bool counts = !only || strcmp(only, call) == 0;
    return counts && ++calls == fatal ? ENOSPC : 0;
}

static int refuse(const char *call) { return strcmp(call, only) == 0 ? EPERM : 0; }

/* ---- one file ------------------------------------------------------------------------------------ */

START_TEST(file_replaces)
{
    Diag d = {0};
    write_text("old", "old");
    ck_assert_int_eq(symlink("old", "link"), 0);
    ck_assert(write_file("link", "new", &d));
    ck_assert_str_eq(get("old"), "new");
    struct stat st;
    ck_assert(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
    ck_assert_int_eq(files_here(), 2);
}
END_TEST

START_TEST(file_refused)
{
    Diag d = {0};
    ck_assert(!write_file("no/such", "x", &d));
    ck_assert_msg(strstr(d.msg, "no/such") != NULL, "%s", d.msg);
    d = (Diag){0};
    ck_assert(!write_file(".", "x", &d));
    d = (Diag){0};
    ck_assert(!file_try("no/such", &d));
    d = (Diag){0};
    ck_assert(file_try("fine", &d));
    ck_assert_int_eq(files_here(), 0);
}
END_TEST

/* A device file is written to, not replaced. */
START_TEST(file_device)
{
    Diag d = {0};
    ck_assert(file_try("/dev/full", &d));
    ck_assert(!write_file("/dev/full", "x", &d));
    ck_assert_int_eq(d.status, EXIT_DEVICE);
    ck_assert_msg(strstr(d.msg, strerror(ENOSPC)) != NULL, "%s", d.msg);
    struct stat st;
    ck_assert(stat("/dev/full", &st) == 0 && S_ISCHR(st.st_mode));
    d = (Diag){0};
    ck_assert_msg(write_file("/dev/null", "x", &d), "%s", d.msg);
}
END_TEST

/* The file that is the process's standard output is not replaced, so that later output still goes there. */
START_TEST(file_own_stream)
{
    Diag d = {0};
    write_text("log", "old ");
    fflush(stdout);
    int log = open("log", O_WRONLY | O_APPEND), saved = dup(STDOUT_FILENO);
    dup2(log, STDOUT_FILENO);
    printf("printed ");
    bool ok = file_try("/dev/stdout", &d) && write_file("/dev/stdout", "written ", &d) &&
              write_file("log", "by name ", &d);
    FILE *f = file_open_log("/dev/fd/1", false);
    ok = ok && f && fputs("logged ", f) > 0 && fclose(f) == 0;
    printf("printed");
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    ck_assert_msg(ok, "%s", d.msg);
    char *text = read_text("log");
    ck_assert_str_eq(text, "old printed written by name logged printed");
    free(text);
    close(log);
    close(saved);
}
END_TEST

/* A file that exceeds a limit is an error and leaves the old one, whether by file_write() or by fprintf(). */
START_TEST(file_too_large)
{
    struct rlimit limit = {4096, 4096};
    static char text[10000];
    Diag d = {0};
    NewFile f;
    memset(text, 'x', sizeof text - 1);
    write_text("a", "old");
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert(!write_file("a", text, &d));
    ck_assert_msg(strstr(d.msg, strerror(EFBIG)) != NULL, "%s", d.msg);
    d = (Diag){0};
    ck_assert(file_create(&f, "a", &d));
    fprintf(f.f, "%s", text);
    ck_assert(!file_commit(&f, &d));
    ck_assert_msg(strstr(d.msg, strerror(EFBIG)) != NULL, "%s", d.msg);
    ck_assert_str_eq(get("a"), "old");
    ck_assert_int_eq(files_here(), 1);
}
END_TEST

/* ---- temporary files -------------------------------------------------------------------------------- */

static void run_killed(void (*run)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        run();
        raise(SIGKILL);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
}

static void leave_temps(void)
{
    Temp a, b, c, inner;
    char path[200];
    ck_assert_int_eq(temp_file(&a, "w."), 0);
    ck_assert_int_eq(temp_folder(&b, "tmp-", 0700), 0);
    ck_assert_int_eq(temp_file(&c, "other."), 0);
    snprintf(path, sizeof path, "%s/x", b.path);
    write_text(path, "x");
    snprintf(path, sizeof path, "%s/y", b.path);
    ck_assert_int_eq(temp_folder(&inner, path, 0700), 0);
}

/* Temporary files of dead processes are removed; those of living ones, those with another prefix, and files
 * that only look like them stay. */
START_TEST(stale)
{
    Temp mine, next, folder;
    write_text("w.bak.tmp", "");
    ck_assert_int_eq(mkdir("tmp-1.tmp", 0777), 0);
    write_text("tmp-1.tmp/of-the-user", "");
    ck_assert_int_eq(temp_file(&mine, "w."), 0);
    run_killed(leave_temps);
    ck_assert_int_eq(files_here(), 6);
    ck_assert_int_eq(temp_file(&next, "w."), 0);
    ck_assert_int_eq(temp_folder(&folder, "tmp-", 0700), 0);
    ck_assert_int_eq(files_like("w.*.tmp"), 3);
    ck_assert_int_eq(files_like("tmp-*.tmp"), 2);
    ck_assert_int_eq(files_like("other.*.tmp"), 1);
    ck_assert_int_eq(access("tmp-1.tmp/of-the-user", F_OK), 0);
    ck_assert_str_ne(mine.path, next.path);
    temp_remove_all();
    ck_assert_int_eq(files_here(), 3);
    temp_forget(&mine);
    temp_forget(&next);
    temp_forget(&folder);
}
END_TEST

/* ---- files of one folder ----------------------------------------------------------------------------- */

static const char *const names[] = {"a", "b", "c", NULL};

/* Writes the folder's files, all with one text, without the third one if `two`. */
static bool write_folder(const char *path, const char *text, bool two, Diag *d)
{
    NewFolder n;
    bool ok = folder_create(&n, path, names, d);
    for (int i = 0; i < 3 - two && ok; i++) {
        NewFile f;
        ok = folder_file(&n, names[i], &f, d);
        if (ok) {
            file_write(&f, text, strlen(text));
            ok = file_commit(&f, d);
        }
    }
    if (ok)
        return folder_commit(&n, d);
    folder_abandon(&n);
    return false;
}

/* Checks that all files of the folder have the same text, and returns it; with "new" the third is missing. */
static const char *state(const char *folder)
{
    static char first[64];
    char path[100];
    snprintf(path, sizeof path, "%s/a", folder);
    strcpy(first, get(path));
    snprintf(path, sizeof path, "%s/b", folder);
    ck_assert_str_eq(get(path), first);
    snprintf(path, sizeof path, "%s/c", folder);
    ck_assert_str_eq(get(path), strcmp(first, "new") == 0 ? "" : first);
    return first;
}

static void make_old(void)
{
    Diag d = {0};
    ck_assert_int_eq(shell("rm -rf p p.*"), 0);
    ck_assert_msg(write_folder("p", "old", false, &d), "%s", d.msg);
    ck_assert_int_eq(mkdir("p/sub", 0777), 0);
    write_text("p/sub/own", "mine");
    write_text("p/own", "mine");
}

/* Checks that no temporary file is left and that the user's own files are unchanged. */
static void clean_and_all_there(void)
{
    ck_assert_int_eq(files_here(), 1);
    ck_assert_int_ne(shell("ls -A p p/sub | grep -q 'tmp\\|ckc'"), 0);
    ck_assert_str_eq(get("p/own"), "mine");
    ck_assert_str_eq(get("p/sub/own"), "mine");
}

START_TEST(folder_changes)
{
    Diag d = {0};
    struct stat before, after;
    ck_assert(write_folder("p", "old", false, &d));
    ck_assert_str_eq(state("p"), "old");
    ck_assert_int_eq(files_in("p"), 3);
    make_old();
    ck_assert_int_eq(stat("p", &before), 0);
    ck_assert_msg(write_folder("p", "new", true, &d), "%s", d.msg);
    ck_assert_str_eq(state("p"), "new");
    ck_assert_int_eq(stat("p", &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    clean_and_all_there();
    ck_assert(!write_folder("/proc", "new", true, &d)); /* no file can be made or renamed there */
    d = (Diag){0};
    ck_assert_int_eq(chdir("p"), 0);
    ck_assert_msg(write_folder(".", "old", false, &d), "%s", d.msg);
    ck_assert_str_eq(state("."), "old");
    ck_assert_int_eq(chdir(".."), 0);
    ck_assert_int_eq(symlink("p", "q"), 0);
    ck_assert_msg(write_folder("q/", "new", true, &d), "%s", d.msg);
    ck_assert_str_eq(state("p"), "new");
    ck_assert_int_eq(remove("q"), 0);
    clean_and_all_there();
}
END_TEST

START_TEST(folder_refused)
{
    Diag d = {0};
    write_text("f", "");
    ck_assert(!folder_try("f", names, &d));
    d = (Diag){0};
    ck_assert(!folder_try("no/such", names, &d));
    ck_assert_str_eq(d.msg, "no/such: the folder it would lie in is not there");
    d = (Diag){0};
    ck_assert_msg(folder_try("p", names, &d), "%s", d.msg);
    ck_assert_int_eq(files_here(), 1);
}
END_TEST

static void change_until_fatal(void)
{
    Diag d = {0};
    file_fault = kill_at;
    write_folder("p", "new", true, &d);
    fatal = 0; /* the change made fewer calls */
    file_fault = NULL;
    _exit(0);
}

/* If a change of a folder is killed before any of its calls, its files are all old or all new, the user's own
 * files are there, and the next run puts everything in its place. */
START_TEST(folder_killed)
{
    bool done = false, was_new = false, was_old = false;
    for (int k = 1; !done; k++) {
        int status;
        Diag d = {0};
        make_old();
        calls = 0;
        fatal = k;
        pid_t pid = fork();
        if (pid == 0)
            change_until_fatal();
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        done = !WIFSIGNALED(status);
        bool fresh = strcmp(state("p"), "new") == 0;
        was_new |= fresh && !done;
        was_old |= !fresh;
        ck_assert_str_eq(get("p/own"), "mine");
        ck_assert_msg(folder_try("p", names, &d), "%s", d.msg);
        ck_assert_str_eq(state("p"), fresh ? "new" : "old");
        clean_and_all_there();
        ck_assert_int_lt(k, 100);
    }
    ck_assert(was_new && was_old);
}
END_TEST

/* If any call fails, the change succeeds or reports an error, and the files are all old or all new. */
START_TEST(folder_fails)
{
    static const char *const kind[] = {"rename", "link", NULL};
    for (int i = 0; i < 3; i++) {
        bool reached = true;
        int k = 1;
        only = kind[i];
        for (; reached; k++) {
            Diag d = {0};
            make_old();
            calls = 0;
            fatal = k;
            file_fault = fail_at;
            bool ok = write_folder("p", "new", true, &d);
            file_fault = NULL;
            reached = calls >= k;
            ck_assert(ok == !d.failed);
            const char *now = state("p");
            ck_assert(!ok || strcmp(now, "new") == 0);
            d = (Diag){0};
            ck_assert_msg(folder_try("p", names, &d), "%s", d.msg);
            state("p");
            clean_and_all_there();
            ck_assert_int_lt(k, 100);
        }
        ck_assert_int_gt(k, 2); /* at least one call did fail */
    }
}
END_TEST

/* A folder changes completely also where names cannot be exchanged, or files cannot be linked. */
START_TEST(folder_one_by_one)
{
    static const char *const cannot[] = {"exchange", "link"};
    for (int i = 0; i < 2; i++) {
        Diag d = {0};
        make_old();
        only = cannot[i];
        file_fault = refuse;
        ck_assert_msg(write_folder("p", "new", true, &d), "%s", d.msg);
        file_fault = NULL;
        ck_assert_str_eq(state("p"), "new");
        clean_and_all_there();
    }
}
END_TEST

static int somebody_is_faster(const char *call)
{
    Diag d = {0};
    (void)call;
    file_fault = NULL;
    ck_assert_msg(write_folder("p", "old", false, &d), "%s", d.msg);
    return 0;
}

/* If two processes make a folder at the same time, the later one replaces the files of the first. */
START_TEST(folder_appears_meanwhile)
{
    Diag d = {0};
    file_fault = somebody_is_faster;
    ck_assert_msg(write_folder("p", "new", true, &d), "%s", d.msg);
    ck_assert_ptr_null(file_fault);
    ck_assert_str_eq(state("p"), "new");
    ck_assert_int_eq(files_here(), 1);
}
END_TEST

Suite *suite_file(void)
{
    Suite *s = suite_create("file");
    TCase *c = tcase_create("files");
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_test(c, file_replaces);
    tcase_add_test(c, file_refused);
    tcase_add_test(c, file_device);
    tcase_add_test(c, file_own_stream);
    tcase_add_test(c, file_too_large);
    tcase_add_test(c, stale);
    tcase_add_test(c, folder_changes);
    tcase_add_test(c, folder_appears_meanwhile);
    tcase_add_test(c, folder_refused);
    tcase_add_test(c, folder_killed);
    tcase_add_test(c, folder_fails);
    tcase_add_test(c, folder_one_by_one);
    suite_add_tcase(s, c);
    return s;
}
