/* save.c -- trained values into a copy of the model file.
 *
 * The file is rewritten on the wire: a rope of pieces that point into the mapping where nothing
 * changes, into small new headers, and at the values themselves.  Nothing is unpacked, so fields
 * of newer ONNX versions survive, and weights are never copied in memory.  Lengths are known
 * once the rope is complete; then it is written.  Linear in the size of the file. */
#include "../mem.h"
#include "../within.h"
#include "save_int.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Fields of TensorProto that hold elements or say where they are. */
static const uint32_t element_fields = 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7 | 1u << TENSOR_RAW | 1u << 10 |
                                       1u << 11 | 1u << TENSOR_EXTERNAL | 1u << TENSOR_LOCATION;

/* ---- pieces ------------------------------------------------------------------------ */

static void rope_add(Save *s, Rope *r, const void *data, size_t size)
{
    r->bytes += size;
    if (r->n > 0 && r->piece[r->n - 1].data + r->piece[r->n - 1].size == data) {
        r->piece[r->n - 1].size += size;
        return;
    }
    r->piece = arena_grow(&s->a, r->piece, r->n, &r->cap, sizeof *r->piece);
    r->piece[r->n++] = (Piece){data, size};
}

static void rope_message(Save *s, uint32_t field, const Buf *head, const void *data, size_t size)
{
    Buf b = {0};
    put_header(&s->a, &b, field, head->n + size);
    rope_add(s, &s->graph, b.p, b.n);
    rope_add(s, &s->graph, head->p, head->n);
    if (size)
        rope_add(s, &s->graph, data, size);
}

/* ---- reading what is there ------------------------------------------------------------ */

/* The last field of that number; false: there is none. */
static bool find_field(const uint8_t *data, size_t size, uint32_t number, WireField *f)
{
    Wire w = wire_of(data, size);
    WireField next;
    bool found = false;
    while (wire_next(&w, &next))
        if (next.number == number) {
            *f = next;
            found = true;
        }
    return found;
}

static int compare_targets(const void *a, const void *b)
{
    return strcmp(((const Target *)a)->v->name, ((const Target *)b)->v->name);
}

Target *target_of(const Save *s, const WireField *name)
{
    int low = 0, high = s->n;
    while (low < high) {
        int mid = (low + high) / 2;
        const char *at = s->target[mid].v->name;
        size_t len = strlen(at), common = len < name->size ? len : name->size;
        int order = common ? memcmp(at, name->data, common) : 0;
        if (order == 0)
            order = len < name->size ? -1 : len > name->size;
        if (order == 0)
            return &s->target[mid];
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

static Target *named(const Save *s, const WireField *message, uint32_t field)
{
    WireField name;
    return message->type == WIRE_BYTES && find_field(message->data, message->size, field, &name) &&
                   name.type == WIRE_BYTES
               ? target_of(s, &name)
               : NULL;
}

static int32_t number_in(const WireField *message, uint32_t field)
{
    WireField f;
    return find_field(message->data, message->size, field, &f) && f.type == WIRE_VARINT ? (int32_t)f.value
                                                                                        : 0;
}

/* Element type of a graph input (ValueInfoProto). */
static int32_t input_elem(const WireField *info)
{
    WireField type, tensor;
    if (find_field(info->data, info->size, INFO_TYPE, &type) && type.type == WIRE_BYTES &&
        find_field(type.data, type.size, TYPE_TENSOR, &tensor) && tensor.type == WIRE_BYTES)
        return number_in(&tensor, TENSOR_TYPE_ELEM);
    return 0;
}

/* ---- values ------------------------------------------------------------------------------ */

/* Sets data and size to the elements of a target in the file's type. */
static bool elements(Save *s, Target *t, const void **data, size_t *size)
{
    const Tensor *from = &t->v->tensor;
    DType dt = t->elem ? onnx_dtype(t->elem) : from->type.dt;
    *data = from->data;
    *size = (size_t)type_bytes(&from->type);
    t->elem = t->elem ? t->elem : onnx_data_type(dt);
    if (onnx_data_type(dt) != t->elem || (dt != from->type.dt && !(dtype_is_float(dt) &&
                                                              dtype_is_float(from->type.dt))))
        return fail(s->d, "'%s' is %s in the model and cannot be replaced by %s", t->v->name,
                    onnx_dtype_name(t->elem), dtype_name[from->type.dt]);
    if (dt == from->type.dt)
        return true;
    Tensor to = {type_with(from->type, dt), NULL};
    *size = (size_t)type_bytes(&to.type);
    *data = to.data = arena_alloc(&s->a, *size + 1, 1);
    tensor_cast(from, &to);
    return true;
}

/* Gives a target the shape that it has in the file, which may repeat it (repeated.c). */
static bool fit_shape(Save *s, Target *t, const WireField *proto)
{
    const Type *type = &t->v->tensor.type;
    Type there = {.dt = type->dt};
    Wire w = wire_of(proto->data, proto->size);
    WireField f;
    while (wire_next(&w, &f)) {
        WireNumbers dims = wire_numbers(&f, WIRE_VARINT);
        for (uint64_t v; f.number == TENSOR_DIMS && there.rank < MAX_RANK && wire_number(&dims, &v);)
            there.dim[there.rank++] = (int64_t)v;
    }
    if (type_equal(type, &there))
        return true;
    SaveValue *all = NEW(&s->a, SaveValue, 1);
    *all = *t->v;
    char text[160];
    if (!type_valid(&there) || !tensor_expand(&t->v->tensor, &there, &s->a, &all->tensor))
        return fail(s->d, "'%s' has another shape in the model than %s", t->v->name, type_str(type, text));
    t->v = all;
    return true;
}

/* Append elements to the external file, and the reference to it to the tensor's head. */
static bool spill_elements(Save *s, Buf *head, const void *data, size_t size)
{
    const char *slash = strrchr(s->data_path, '/');
    if (!s->data.f)
        TRY(file_create(&s->data, s->data_path, s->d));
    file_pad(&s->data, EXTERNAL_ALIGN);
    put_external(&s->a, head, slash ? slash + 1 : s->data_path, s->data.size, size);
    file_write(&s->data, data, size);
    return true;
}

/* Writes a TensorProto: its head (everything but elements), then the elements here or outside. */
static bool write_tensor(Save *s, Buf *head, const void *data, size_t size, bool external)
{
    if (external) {
        TRY(spill_elements(s, head, data, size));
        size = 0;
    } else {
        put_header(&s->a, head, TENSOR_RAW, size);
    }
    rope_message(s, GRAPH_INITIALIZER, head, data, size);
    return true;
}

static Buf head_of(Save *s, const WireField *proto)
{
    Buf head = {0};
    Wire w = wire_of(proto->data, proto->size);
    WireField f;
    while (wire_next(&w, &f))
        if (f.number > 31 || !(element_fields >> f.number & 1))
            put_bytes(&s->a, &head, f.start, (size_t)(w.p - f.start));
    return head;
}

/* Finds the elements of a tensor in an external file of the model. */
static bool external_elements(Save *s, const WireField *proto, const void **data, size_t *size)
{
    const char *text[3] = {NULL};
    static const char *const key[3] = {"location", "offset", "length"};
    Wire w = wire_of(proto->data, proto->size);
    WireField f, k, v;
    while (wire_next(&w, &f))
        for (int i = 0; i < 3; i++)
            if (f.number == TENSOR_EXTERNAL && f.type == WIRE_BYTES &&
                find_field(f.data, f.size, ENTRY_KEY, &k) && wire_is(&k, key[i]) &&
                find_field(f.data, f.size, ENTRY_VALUE, &v) && v.type == WIRE_BYTES)
                text[i] = arena_strndup(&s->a, (const char *)v.data, v.size);
    FileMap map;
    if (!text[0])
        return fail(s->d, "external data without a location");
    TRY(external_map(s->m, text[0], &map, s->d));
    uint64_t offset = text[1] ? strtoull(text[1], NULL, 10) : 0;
    uint64_t left = offset <= map.size ? map.size - offset : 0;
    uint64_t length = text[2] ? strtoull(text[2], NULL, 10) : left;
    if (offset > map.size || length > left)
        return fail(s->d, "external data outside '%s'", text[0]);
    *data = map.data + offset;
    *size = length;
    return true;
}

bool is_external(const WireField *tensor) { return number_in(tensor, TENSOR_LOCATION) == 1; }

void put_external_tensor(Save *s, Buf *out, const WireField *tensor)
{
    Buf head = head_of(s, tensor);
    const void *data;
    size_t size;
    if (external_elements(s, tensor, &data, &size) && spill_elements(s, &head, data, size))
        put_message(&s->a, out, tensor->number, &head);
}

/* ---- the graph ------------------------------------------------------------------------------ */

static bool initializer(Save *s, const WireField *proto, size_t whole)
{
    Target *t = named(s, proto, TENSOR_NAME);
    bool external = is_external(proto), unread = s->unread_tensor[s->tensor++];
    const void *data;
    size_t size;
    if (!t && unread)
        return true;
    if (!t && !external) {
        rope_add(s, &s->graph, proto->start, whole);
        return true;
    }
    Buf head = head_of(s, proto);
    if (!t) {
        TRY(external_elements(s, proto, &data, &size));
        return write_tensor(s, &head, data, size, true);
    }
    TRY(fit_shape(s, t, proto));
    t->elem = number_in(proto, TENSOR_TYPE);
    TRY(elements(s, t, &data, &size));
    t->placed = true;
    return write_tensor(s, &head, data, size, external || s->spill);
}

/* Adds the ValueInfoProto of a target, for models that list initializers as inputs. */
static void put_input(Save *s, const Target *t)
{
    Buf input = {0};
    put_value_info(&s->a, &input, GRAPH_INPUT, t->v->name, t->elem, &t->v->tensor.type);
    rope_add(s, &s->graph, input.p, input.n);
}

/* Adds an initializer that the file does not have yet. */
static bool new_initializer(Save *s, Target *t)
{
    const Type *type = &t->v->tensor.type;
    const void *data;
    size_t size;
    Buf head = {0};
    TRY(elements(s, t, &data, &size));
    for (int i = 0; i < type->rank; i++)
        put_number(&s->a, &head, TENSOR_DIMS, (uint64_t)type->dim[i]);
    put_number(&s->a, &head, TENSOR_TYPE, (uint64_t)t->elem);
    put_string(&s->a, &head, TENSOR_NAME, t->v->name);
    t->placed = true;
    return write_tensor(s, &head, data, size, s->spill);
}

static bool no_place(Diag *d, const char *name)
{
    return fail(d,
                "there is no '%s' to replace in the main graph: --save FILE.safetensors has what is in "
                "branches and loops",
                name);
}

/* Adds the parameters told apart, for which the file has no place. */
static bool add_apart(Save *s)
{
    for (int i = 0; i < s->n; i++) {
        Target *t = &s->target[i];
        if (t->placed || t->v->alias || !name_get(&s->merged->apart, t->v->name))
            continue;
        TRY(new_initializer(s, t));
        if (s->old)
            put_input(s, t);
    }
    return true;
}

/* Rewrites a graph input or a node, whose place an initializer may take. */
static bool producer(Save *s, const WireField *f, size_t whole)
{
    bool input = f->number == GRAPH_INPUT;
    Buf changed = {0};
    uint32_t node = input ? 0 : s->node++;
    Target *t = named(s, f, input ? INFO_NAME : NODE_OUTPUT);
    if (!t || t->initializer || t->v->alias) {
        if (!input && s->unread_node[node])
            return true;
        if (!input && put_changed_node(s, &changed, f, node))
            rope_add(s, &s->graph, changed.p, changed.n);
        else
            rope_add(s, &s->graph, f->start, whole);
        return !s->d->failed;
    }
    if (t->placed) /* a further Constant of that name */
        return true;
    if (input)
        t->elem = input_elem(f);
    TRY(new_initializer(s, t));
    if (s->old && input)
        rope_add(s, &s->graph, f->start, whole);
    else if (s->old)
        put_input(s, t);
    return true;
}

static bool rewrite_graph(Save *s, const WireField *graph)
{
    Wire w = wire_of(graph->data, graph->size);
    WireField f;
    while (wire_next(&w, &f)) {
        Target *t = f.number == GRAPH_INITIALIZER ? named(s, &f, TENSOR_NAME) : NULL;
        if (t)
            t->initializer = true;
    }
    w = wire_of(graph->data, graph->size);
    while (wire_next(&w, &f)) {
        size_t whole = (size_t)(w.p - f.start);
        bool message = f.type == WIRE_BYTES;
        if (message && f.number == GRAPH_INITIALIZER)
            TRY(initializer(s, &f, whole));
        else if (message && (f.number == GRAPH_INPUT || f.number == GRAPH_NODE))
            TRY(producer(s, &f, whole));
        else
            rope_add(s, &s->graph, f.start, whole);
    }
    TRY(add_apart(s));
    for (int i = 0; i < s->n; i++)
        if (!s->target[i].placed && !s->target[i].v->alias && !s->target[i].v->same)
            return no_place(s->d, s->target[i].v->name);
    return !w.bad || fail(s->d, "malformed graph");
}

/* Makes a rope of all fields of the file, with the graph and functions as they are saved. */
static bool rewrite_model(Save *s, const WireField *graph)
{
    Wire w = wire_of(s->m->map.data, s->m->map.size);
    WireField f;
    Buf b;
    size_t function = 0;
    TRY(rewrite_graph(s, graph));
    while (wire_next(&w, &f)) {
        b = (Buf){0};
        if (f.start == graph->start) {
            put_header(&s->a, &b, MODEL_GRAPH, s->graph.bytes);
            rope_add(s, &s->model, b.p, b.n);
            for (uint32_t i = 0; i < s->graph.n; i++)
                rope_add(s, &s->model, s->graph.piece[i].data, s->graph.piece[i].size);
        } else if (f.number == MODEL_FUNCTION && function < s->m->proto->n_functions &&
                   put_changed_function(s, &b, &f, function++)) {
            rope_add(s, &s->model, b.p, b.n);
        } else {
            rope_add(s, &s->model, f.start, (size_t)(w.p - f.start));
        }
    }
    return !s->d->failed;
}

static bool write_model(Save *s)
{
    NewFile out;
    TRY(file_create(&out, s->path, s->d));
    for (uint32_t i = 0; i < s->model.n; i++)
        file_write(&out, s->model.piece[i].data, s->model.piece[i].size);
    bool ok = out.size <= INT32_MAX || fail(s->d, "the model would exceed 2 GB");
    if (ok && s->data.f) /* before the model that refers to it */
        ok = file_commit(&s->data, s->d);
    if (!ok) {
        file_abandon(&out);
        return false;
    }
    TRY(file_commit(&out, s->d));
    if (s->old_data)
        unlink(s->old_data);
    return true;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Does the model that is read have external data in that file? */
static bool is_read(Save *s, const char *path)
{
    static const char key[] = "\n\010location"; /* of an entry; its value follows */
    const uint8_t *p = s->m->map.data, *end = p + s->m->map.size;
    bool found = false;
    while (!found && (p = memmem(p, (size_t)(end - p), key, sizeof key - 1))) {
        p += sizeof key - 1;
        Wire w = wire_of(p, (size_t)(end - p));
        WireField f;
        if (wire_next(&w, &f) && f.number == ENTRY_VALUE && f.type == WIRE_BYTES && f.size < PATH_MAX) {
            const char *location = arena_strndup(&s->a, (const char *)f.data, f.size);
            found = same_file(path, external_path(s->m, location));
        }
    }
    return found;
}

/* Has the model that is replaced external data in that file of its folder? */
static bool is_replaced(Save *s, const FileMap *old, const char *path)
{
    Buf location = {0};
    const char *slash = strrchr(path, '/');
    put_string(&s->a, &location, ENTRY_VALUE, slash ? slash + 1 : path);
    return old->data && memmem(old->data, old->size, location.p, location.n);
}

/* Chooses the external file.  Names take turns: a model keeps its data until another has its place.  What the
 * model that is read needs stays, unless it is itself replaced. */
static void choose_data(Save *s)
{
    FileMap old = {0};
    Diag none = {0};
    if (access(s->path, R_OK) == 0 && !file_map(&old, s->path, &none))
        old = (FileMap){0};
    bool itself = same_file(s->path, s->m->path);
    for (int i = 1; i <= 3 || !s->data_path; i++) {
        const char *name =
            i == 1 ? arena_printf(&s->a, "%s.data", s->path) : arena_printf(&s->a, "%s.%d.data", s->path, i);
        bool read = is_read(s, name), replaced = is_replaced(s, &old, name);
        if (replaced && (!read || itself))
            s->old_data = name;
        if (!read && !replaced && !s->data_path)
            s->data_path = name;
    }
    file_unmap(&old);
}

static bool save(Save *s)
{
    const FileMap *map = &s->m->map;
    WireField graph, version;
    if (!find_field(map->data, map->size, MODEL_GRAPH, &graph) || graph.type != WIRE_BYTES)
        return fail(s->d, "there is no graph in it");
    s->old = find_field(map->data, map->size, MODEL_IR_VERSION, &version) && version.value < 4;
    return rewrite_model(s, &graph) && write_model(s);
}

bool onnx_save_check(OnnxModel *m, int n, const char *const *name, Diag *d)
{
    Arena a = {0};
    const Onnx__GraphProto *gp = m->proto->graph;
    NameMap places = name_map(&a);
    for (size_t i = 0; i < gp->n_initializer; i++)
        name_put(&places, pb(gp->initializer[i]->name), 0);
    for (size_t i = 0; i < gp->n_input; i++)
        name_put(&places, pb(gp->input[i]->name), 0);
    for (size_t i = 0; i < gp->n_node; i++)
        for (size_t k = 0; k < gp->node[i]->n_output; k++)
            name_put(&places, pb(gp->node[i]->output[k]), 0);
    bool ok = true;
    for (int i = 0; i < n && ok; i++)
        ok = name_get(&places, name[i]) || name_get(&model_merged(m)->apart, name[i]) || no_place(d, name[i]);
    arena_free(&a);
    return ok;
}

bool onnx_save(OnnxModel *m, const char *path, int n, const SaveValue *v, bool inference, Diag *d)
{
    Save s = {.m = m, .path = path, .n = n, .merged = model_merged(m), .inference = inference, .d = d};
    s.target = NEW(&s.a, Target, n + 1);
    size_t bytes = m->map.size;
    for (int i = 0; i < n; i++) {
        s.target[i] = (Target){.v = &v[i]};
        bytes += (size_t)type_bytes(&v[i].tensor.type) + 256;
    }
    s.spill = bytes > INT32_MAX;
    choose_data(&s);
    find_unread(&s);
    qsort(s.target, (size_t)n, sizeof *s.target, compare_targets);
    bool ok = save(&s);
    if (!ok) {
        file_abandon(&s.data);
        if (strncmp(d->msg, path, strlen(path)) != 0) /* not about writing */
            diag_prefix(d, m->path);
    }
    arena_free(&s.a);
    return ok;
}
