/* steplog.c -- the output of a run while it lasts: a line now and then, on a terminal what is being done and
 * how long it will take, and --metrics.
 *
 * Metrics are JSON objects, one on a line, flushed at once.  A run that resumes from a checkpoint keeps the
 * lines up to it, and writes those after it again. */
#include "cli.h"
#include "ir/file.h"
#include "ir/mem.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct StepLog {
    Job *j;
    LrSchedule schedule;
    FILE *metrics; /* NULL: none */
    int error;     /* errno of the first write that failed */
    bool talks;
    int64_t samples, tokens; /* of a step; 0: not known */
    int64_t first;           /* step from which the rate is counted; -1: no step has ended yet */
    double start;
    double val; /* the last validation loss, NaN: none */
};

/* ---- metrics -------------------------------------------------------------------------------------- */

/* Writes o as a line and frees it. */
static void write_metrics(StepLog *l, json_t *o)
{
    char *text = l->metrics ? dump_json(o, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    if (text && (fprintf(l->metrics, "%s\n", text) < 0 || fflush(l->metrics) != 0) && !l->error)
        l->error = errno ? errno : EIO;
    free(text);
    json_decref(o);
}

static void step_metrics(StepLog *l, int64_t step, double loss, double seconds)
{
    double lr = learning_rate(l->j->plan->run.lr, &l->schedule, step);
    json_t *o = json_pack("{s:I, s:o, s:o, s:o}", "step", (json_int_t)step, "loss", real_json(loss), "lr",
                          real_json(lr), "seconds", real_json(seconds));
    if (l->samples)
        json_object_set_new(o, "samples_per_second", real_json((double)l->samples / seconds));
    write_metrics(l, o);
}

/* Is it a line, written by us and complete, that a run which begins behind step `first` does not write
 * again?  validates: it begins with the validation of that step. */
static bool is_kept(const char *line, int64_t first, bool validates)
{
    json_t *o = json_loads(line, 0, NULL), *step = json_object_get(o, "step");
    int64_t last = validates && json_object_get(o, "val_loss") ? first - 1 : first;
    bool kept = json_is_integer(step) && strchr(line, '\n') && json_integer_value(step) <= last;
    json_decref(o);
    return kept;
}

/* Removes the lines that the run writes again. */
static bool keep_lines(const char *path, int64_t first, bool validates, Diag *d)
{
    NewFile out;
    char *line = NULL;
    size_t room = 0;
    FILE *in = fopen(path, "re");
    if (!in)
        return errno == ENOENT || fail(d, "%s: %s", path, strerror(errno));
    bool ok = file_create(&out, path, d);
    while (ok && getline(&line, &room, in) > 0)
        if (is_kept(line, first, validates))
            file_write(&out, line, strlen(line));
    free(line);
    fclose(in);
    return ok && file_commit(&out, d);
}

static bool open_metrics(StepLog *l, int64_t first)
{
    const Options *o = l->j->o;
    Diag *d = &l->j->o->diag;
    if (!o->metrics)
        return true;
    l->metrics = file_open_log(o->metrics, first > 0);
    if (l->metrics && first > 0 && !file_is_stream(o->metrics)) { /* the lines stay in a file of their own */
        bool kept = keep_lines(o->metrics, first, l->j->val_due, d);
        fclose(l->metrics);
        l->metrics = kept ? file_open_log(o->metrics, true) : NULL;
        TRY(kept);
    }
    if (!l->metrics && errno == EWOULDBLOCK)
        return fail(d, "%s: another run writes it", o->metrics);
    return l->metrics || file_not_made(o->metrics, errno, d);
}

/* ---- the terminal ----------------------------------------------------------------------------------- */

static void print_left(char text[64], double seconds)
{
    int64_t s = (int64_t)(seconds + 0.5), h = s / 3600;
    int m = (int)(s / 60 % 60), rest = (int)(s % 60);
    if (h)
        snprintf(text, 64, ", %" PRId64 ":%02d:%02d left", h, m, rest);
    else if (m)
        snprintf(text, 64, ", %d:%02d left", m, rest);
    else
        snprintf(text, 64, ", %d s left", rest);
}

enum { BAR = 20 }; /* cells */

/* Writes a progress bar as long as `room` allows; nothing if that is too short. */
static void print_bar(char text[2 * BAR + 4], int room, double part)
{
    static const char full[] = "====================", empty[] = "                    ";
    int cells = room - 3 < BAR ? room - 3 : BAR, done = (int)(part * cells);
    *text = 0;
    if (cells >= BAR / 4)
        snprintf(text, 2 * BAR + 4, "[%.*s%.*s] ", done, full, cells - done, empty);
}

/* Shows progress; rates are by the clock, so that data, validation and checkpoints count. */
static void show_progress(StepLog *l, int64_t step, double loss)
{
    const Job *j = l->j;
    char rate[64] = "", left[64] = "", val[40] = "", number[16], bar[2 * BAR + 4], text[256];
    double seconds = clock_seconds() - l->start;
    int64_t done = l->first < 0 ? 0 : step - l->first;
    if (done > 0 && l->samples)
        snprintf(rate, sizeof rate, ", %s %s/s",
                 rate_str((double)((l->tokens ? l->tokens : l->samples) * done) / seconds, number),
                 l->tokens ? "tokens" : "samples");
    if (!isnan(l->val))
        snprintf(val, sizeof val, ", val %.4g", l->val);
    if (done > 0)
        print_left(left, seconds / (double)done * (double)(j->steps - step));
    int n = snprintf(text, sizeof text, "%" PRId64 "/%" PRId64 ", loss %.4g%s%s%s", step, j->steps, loss, val,
                     rate, left);
    print_bar(bar, progress_room() - n, (double)step / (double)j->steps);
    progress(&j->o->step.progress, "%s%s", bar, text);
}

/* ---- what happens ------------------------------------------------------------------------------------- */

/* Logs a step; prints at most about twenty lines, whatever the number of steps. */
static void log_step(void *user, int64_t step, double loss, double seconds)
{
    StepLog *l = ((Job *)user)->log;
    int64_t n = l->j->steps, every = (n + 19) / 20;
    if (l->metrics)
        step_metrics(l, step, loss, seconds);
    if (l->talks && (step == 1 || step == n || step % every == 0))
        progress_print("step %-6" PRId64 " loss %-12.6g %8.1f ms\n", step, loss, 1e3 * seconds);
    show_progress(l, step, loss);
    if (l->first < 0) { /* the first step does not count, as caches are cold */
        l->first = step;
        l->start = clock_seconds();
    }
}

static void log_skipped(void *user, int64_t step, double scale)
{
    StepLog *l = ((Job *)user)->log;
    write_metrics(l, json_pack("{s:I, s:b, s:o}", "step", (json_int_t)step, "skipped", 1, "loss_scale",
                               real_json(scale)));
    if (l->talks)
        progress_print("step %-6" PRId64
                       " skipped: its gradients overflow in fp16; the loss scale is now %g\n",
                       step, scale);
}

void steplog_validation(StepLog *l, int64_t step, double loss)
{
    write_metrics(l, json_pack("{s:I, s:o}", "step", (json_int_t)step, "val_loss", real_json(loss)));
    l->val = loss;
    if (l->talks)
        progress_print("step %-6" PRId64 " val loss %.6g\n", step, loss);
}

/* ---- one run ------------------------------------------------------------------------------------------- */

bool steplog_open(Job *j, const LrSchedule *schedule, int64_t first)
{
    StepLog *l = j->log = mem_new(1, sizeof *l);
    int64_t micro = plan_batches(j->plan);
    *l = (StepLog){.j = j, .schedule = *schedule, .first = -1, .val = NAN};
    l->talks = !j->o->quiet && !j->o->json && j->steps > 1;
    batch_size(j, &l->samples, &l->tokens);
    l->samples *= micro;
    l->tokens *= micro;
    return open_metrics(l, first);
}

void steplog_listen(const StepLog *l, TrainOptions *to)
{
    bool shows = l->j->o->step.progress.say != NULL;
    to->each = l->talks || l->metrics || shows ? log_step : NULL;
    to->skipped = l->talks || l->metrics ? log_skipped : NULL;
}

bool steplog_close(Job *j)
{
    StepLog *l = j->log;
    if (!l)
        return true;
    if (l->metrics && fclose(l->metrics) != 0 && !l->error)
        l->error = errno;
    int error = l->error;
    free(l);
    j->log = NULL;
    return !error || fail_status(&j->o->diag, EXIT_DEVICE, "%s: %s", j->o->metrics, strerror(error));
}
