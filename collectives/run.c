/* run.c -- the run of an exchange: its pieces through the link, two windows of them, each behind its note.
 *
 * Comes in: the first exchange of a group's queue, and pieces from moves.c. Goes out: sends and receives of the link,
 * none of them waited for; a finished exchange, or a poisoned comm. Notes and bytes have a channel each, and both are
 * sent and received in the order of the pieces. A receive of bytes is posted only when the piece's note was as awaited,
 * so that nothing of another exchange lands in memory of this one. Odd invariant: pieces leave a window from its front,
 * so that moves.c hears of them in order, whatever order they came in. */
#include <stdio.h>
#include <string.h>

#include "collectives/engine.h"

#define NOTE_MAGIC 0x73676c31u

static int note_channel(const sglexec_group *g) { return 2 * g->number + 1; }
static int data_channel(const sglexec_group *g) { return 2 * g->number + 2; }

static bool whole(sglexec_comm *comm)
{
    return atomic_load_explicit(&comm->health, memory_order_relaxed) == SGLCOMM_WHOLE;
}

static sglcomm_piece *piece_at(sglcomm_window *w, int i) { return &w->pieces[(w->first + i) % SGLCOMM_WINDOW]; }

static void link_failed(sglexec_group *g, const char *what, int place)
{
    sglexec_comm *comm = g->comm;
    const char *label = g->run.exchange.label ? g->run.exchange.label : "no label";
    sglcomm_poison(comm, comm->rank, "rank %d on %s: %s rank %d on %s failed: %s; in %s of group %s (%s)", comm->rank,
                   sglcomm_host(comm, comm->rank), what, g->ranks[place], sglcomm_host(comm, g->ranks[place]),
                   comm->ops->why(comm->link), sglcomm_kind_name(g->run.exchange.kind), g->name, label);
}

/* ---- out --------------------------------------------------------------------------------------------------------- */

static sglcomm_note note_of(sglexec_group *g, const sglcomm_piece *piece)
{
    const sglexec_exchange *x = &g->run.exchange;
    sglcomm_note note;
    memset(&note, 0, sizeof note);
    note.magic = NOTE_MAGIC;
    note.kind = x->kind;
    note.reduction = x->reduction;
    note.dtype = x->dtype;
    note.phase = (uint8_t)g->run.phase;
    note.group = g->hash;
    note.position = g->run.position;
    note.signature = g->run.signature;
    note.bytes = piece->bytes;
    note.count = x->count;
    note.number = (int64_t)x->number;
    if (x->label) strncpy(note.label, x->label, sizeof note.label - 1);
    return note;
}

static void send_piece(sglexec_group *g, sglcomm_piece *piece)
{
    const sglcomm_note note = note_of(g, piece);
    const bool within = piece->bytes <= SGLCOMM_INLINE;
    const size_t bytes = sizeof note + (within ? (size_t)piece->bytes : 0);
    const int rank = g->ranks[piece->place];
    sglexec_comm *comm = g->comm;
    memcpy(piece->note, &note, sizeof note);
    if (within && piece->bytes > 0) memcpy(piece->note + sizeof note, piece->data, (size_t)piece->bytes);
    piece->stage = SGLCOMM_MOVING;
    piece->noted = false;
    piece->moved = within;
    if (!comm->ops->send(comm->link, rank, note_channel(g), piece->note, bytes, &piece->note_request) ||
        (!within &&
         !comm->ops->send(comm->link, rank, data_channel(g), piece->data, (size_t)piece->bytes, &piece->data_request)))
        link_failed(g, "sending to", piece->place);
}

/* When the piece may be handed to the link: at once, or when a shaped link would have brought it. */
static void hold_piece(sglexec_group *g, sglcomm_piece *piece, int64_t now_ns)
{
    sglexec_comm *comm = g->comm;
    sglcomm_run *run = &g->run;
    piece->stage = SGLCOMM_HELD;
    piece->release_ns = now_ns;
    if (comm->options.latency_us <= 0 && comm->options.bytes_per_s <= 0) return;
    piece->release_ns =
        sglcomm_shape_arrival(&comm->options, run->chained ? run->left_ns : now_ns, piece->bytes, &comm->free_ns);
    run->left_ns = comm->free_ns;
    run->chained = true;
}

static bool fill_out(sglexec_group *g, int64_t now_ns, int64_t *wake_ns)
{
    sglcomm_run *run = &g->run;
    sglcomm_window *w = &run->out;
    bool moved = false;
    while (!w->over) {
        if (run->left_ns > now_ns) { /* the link is at the last piece still, and others may come before the next */
            if (run->left_ns < *wake_ns) *wake_ns = run->left_ns;
            return moved;
        }
        if (w->count == SGLCOMM_WINDOW || !sglcomm_moves_next(g, true, piece_at(w, w->count))) {
            run->chained = false;
            return moved;
        }
        hold_piece(g, piece_at(w, w->count++), now_ns);
        moved = true;
    }
    return moved;
}

static bool pump_out(sglexec_group *g, int64_t now_ns, int64_t *wake_ns)
{
    sglexec_comm *comm = g->comm;
    sglcomm_window *w = &g->run.out;
    bool moved = false;
    for (int i = 0; i < w->count && whole(comm); i++) {
        sglcomm_piece *piece = piece_at(w, i);
        if (piece->stage == SGLCOMM_HELD) {
            if (piece->release_ns > now_ns) { /* those behind it are due later */
                if (piece->release_ns < *wake_ns) *wake_ns = piece->release_ns;
                break;
            }
            send_piece(g, piece);
            moved = true;
        }
        size_t bytes;
        if (piece->stage != SGLCOMM_MOVING || !whole(comm)) continue;
        if ((!piece->noted && !comm->ops->test(comm->link, &piece->note_request, &piece->noted, &bytes)) ||
            (!piece->moved && !comm->ops->test(comm->link, &piece->data_request, &piece->moved, &bytes)))
            link_failed(g, "sending to", piece->place);
        if (piece->noted && piece->moved) piece->stage = SGLCOMM_DONE;
    }
    while (w->count > 0 && piece_at(w, 0)->stage == SGLCOMM_DONE) {
        w->first = (w->first + 1) % SGLCOMM_WINDOW;
        w->count--;
        moved = true;
    }
    return moved;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

static void tell_facts(char *text, size_t room, int kind, int dtype, int64_t count, const char *label)
{
    snprintf(text, room, "%s (%s, %s, count %lld)", sglcomm_kind_name(kind), label[0] ? label : "no label",
             dtype >= 0 && dtype < SGL_DTYPE_COUNT ? sgl_dtype_name((sgl_dtype)dtype) : "?", (long long)count);
}

/* Two ranks whose programs differ: what either of them calls. */
static void tell_mismatch(sglexec_group *g, int place, const sglcomm_note *theirs, size_t bytes)
{
    sglexec_comm *comm = g->comm;
    const sglexec_exchange *x = &g->run.exchange;
    const unsigned long long own = g->run.position;
    const int rank = g->ranks[place];
    const char *host = sglcomm_host(comm, rank), *own_host = sglcomm_host(comm, comm->rank);
    char they[256], we[256];
    if (bytes < sizeof *theirs || theirs->magic != NOTE_MAGIC) {
        sglcomm_poison(comm, comm->rank,
                       "rank %d on %s sent rank %d on %s a message of %zu bytes that is no note: do all "
                       "ranks run the same build?",
                       rank, host, comm->rank, own_host, bytes);
        return;
    }
    tell_facts(they, sizeof they, theirs->kind, theirs->dtype, theirs->count, theirs->label);
    tell_facts(we, sizeof we, x->kind, x->dtype, x->count, x->label ? x->label : "");
    if (theirs->group != g->hash)
        sglcomm_poison(comm, comm->rank,
                       "rank %d on %s and rank %d on %s have different ranks in group %s: all ranks must make "
                       "the same groups in the same order; the one calls %s, the other %s",
                       rank, host, comm->rank, own_host, g->name, they, we);
    else if (theirs->position != own || theirs->signature != g->run.signature || theirs->phase != g->run.phase)
        sglcomm_poison(comm, comm->rank,
                       "rank %d on %s calls %s as exchange %llu of group %s, where rank %d on %s calls %s as "
                       "exchange %llu: the programs of these ranks differ",
                       rank, host, they, (unsigned long long)theirs->position, g->name, comm->rank, own_host, we, own);
    else
        sglcomm_poison(comm, comm->rank,
                       "rank %d on %s sends %lld bytes where rank %d on %s awaits other counts: %s, exchange "
                       "%llu of group %s",
                       rank, host, (long long)theirs->bytes, comm->rank, own_host, we, own, g->name);
}

static void take_note(sglexec_group *g, sglcomm_piece *piece, size_t bytes)
{
    sglexec_comm *comm = g->comm;
    const sglcomm_note awaited = note_of(g, piece);
    const bool within = piece->bytes <= SGLCOMM_INLINE;
    sglcomm_note note;
    memset(&note, 0, sizeof note);
    memcpy(&note, piece->note, bytes < sizeof note ? bytes : sizeof note);
    note.label[SGLCOMM_LABEL - 1] = '\0';
    if (bytes < sizeof note || note.magic != awaited.magic || note.group != awaited.group ||
        note.position != awaited.position || note.signature != awaited.signature || note.phase != awaited.phase ||
        note.bytes != awaited.bytes || bytes != sizeof note + (within ? (size_t)piece->bytes : 0)) {
        tell_mismatch(g, piece->place, &note, bytes);
        return;
    }
    if (within) {
        if (piece->bytes > 0) memcpy(piece->data, piece->note + sizeof note, (size_t)piece->bytes);
        piece->stage = SGLCOMM_DONE;
        return;
    }
    piece->stage = SGLCOMM_MOVING;
    if (!comm->ops->receive(comm->link, g->ranks[piece->place], data_channel(g), piece->data, (size_t)piece->bytes,
                            &piece->data_request))
        link_failed(g, "receiving from", piece->place);
}

static bool fill_in(sglexec_group *g)
{
    sglexec_comm *comm = g->comm;
    sglcomm_window *w = &g->run.in;
    bool moved = false;
    while (!w->over && w->count < SGLCOMM_WINDOW && whole(comm)) {
        sglcomm_piece *piece = piece_at(w, w->count);
        if (!sglcomm_moves_next(g, false, piece)) break;
        piece->stage = SGLCOMM_NOTED;
        w->count++;
        moved = true;
        if (!comm->ops->receive(comm->link, g->ranks[piece->place], note_channel(g), piece->note, SGLCOMM_NOTE_ROOM,
                                &piece->note_request))
            link_failed(g, "receiving from", piece->place);
    }
    return moved;
}

/* An earlier piece of the same rank still waits for its note: the bytes of this one would be taken for its bytes. */
static bool is_behind(sglcomm_window *w, int i)
{
    for (int j = 0; j < i; j++)
        if (piece_at(w, j)->stage == SGLCOMM_NOTED && piece_at(w, j)->place == piece_at(w, i)->place) return true;
    return false;
}

static void pump_piece(sglexec_group *g, int i)
{
    sglexec_comm *comm = g->comm;
    sglcomm_piece *piece = piece_at(&g->run.in, i);
    const bool moving = piece->stage == SGLCOMM_MOVING;
    bool done = false;
    size_t bytes = 0;
    if (!comm->ops->test(comm->link, moving ? &piece->data_request : &piece->note_request, &done, &bytes))
        link_failed(g, "receiving from", piece->place);
    else if (done && !moving)
        take_note(g, piece, bytes);
    else if (done && bytes == (size_t)piece->bytes)
        piece->stage = SGLCOMM_DONE;
    else if (done)
        sglcomm_poison(comm, comm->rank, "rank %d on %s announced %lld bytes and sent %zu", g->ranks[piece->place],
                       sglcomm_host(comm, g->ranks[piece->place]), (long long)piece->bytes, bytes);
}

static bool pump_in(sglexec_group *g)
{
    sglcomm_window *w = &g->run.in;
    bool moved = false;
    for (int i = 0; i < w->count && whole(g->comm); i++) {
        const sglcomm_piece *piece = piece_at(w, i);
        const sglcomm_stage before = piece->stage;
        if (before == SGLCOMM_DONE || (before == SGLCOMM_NOTED && is_behind(w, i))) continue;
        pump_piece(g, i);
        moved = moved || piece->stage != before;
    }
    while (w->count > 0 && piece_at(w, 0)->stage == SGLCOMM_DONE && whole(g->comm)) {
        sglcomm_moves_came(g, piece_at(w, 0));
        w->first = (w->first + 1) % SGLCOMM_WINDOW;
        w->count--;
        moved = true;
    }
    return moved;
}

int sglcomm_run_awaits(sglexec_group *g)
{
    for (int i = 0; i < g->run.in.count; i++)
        if (piece_at(&g->run.in, i)->stage != SGLCOMM_DONE) return piece_at(&g->run.in, i)->place;
    for (int i = 0; i < g->run.out.count; i++)
        if (piece_at(&g->run.out, i)->stage == SGLCOMM_MOVING) return piece_at(&g->run.out, i)->place;
    return -1;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void enter_phase(sglexec_group *g)
{
    sglcomm_run *run = &g->run;
    sglcomm_window *windows[] = { &run->out, &run->in };
    for (int i = 0; i < 2; i++) {
        windows[i]->first = windows[i]->count = windows[i]->step = windows[i]->member = 0;
        windows[i]->row = windows[i]->rows_before = 0;
        windows[i]->over = false;
    }
    run->chained = false;
    run->left_ns = 0;
    sglcomm_moves_phase(g);
}

/* Exchanges of two ranks are counted by these two alone: the others of the group do not know of them. */
static uint64_t next_position(sglexec_group *g, const sglexec_exchange *x)
{
    if (x->kind == SGLEXEC_SEND) return g->pairs[2 * x->peer]++;
    if (x->kind == SGLEXEC_RECEIVE) return g->pairs[2 * x->peer + 1]++;
    return g->together++;
}

static void begin(sglexec_group *g, int64_t now_ns)
{
    sglcomm_run *run = &g->run;
    run->exchange = g->queue[atomic_load_explicit(&g->finished, memory_order_relaxed) % SGLCOMM_QUEUE];
    run->signature = sglcomm_signature(g, &run->exchange);
    run->position = next_position(g, &run->exchange);
    run->active = true;
    g->comm->last_number = run->exchange.number;
    snprintf(g->comm->last_label, SGLCOMM_LABEL, "%s", run->exchange.label ? run->exchange.label : "");
    run->phase = 0;
    run->since_ns = now_ns;
    run->waited_ns = 0;
    sglcomm_moves_begin(g);
    enter_phase(g);
}

/* News that came before the last byte did counts: whose memory is read may be freed once its owner knows of a failure,
 * and it sends the news first. */
static void finish(sglexec_group *g)
{
    sglexec_comm *comm = g->comm;
    (void)sglcomm_watch_hear(comm);
    if (!whole(comm)) return;
    g->run.active = false;
    atomic_fetch_add(&g->finished, 1);
    if (atomic_load(&comm->waiters) == 0) return;
    pthread_mutex_lock(&comm->lock);
    pthread_cond_broadcast(&comm->news);
    pthread_mutex_unlock(&comm->lock);
}

bool sglcomm_run_turn(sglexec_group *group, int64_t now_ns, int64_t *wake_ns)
{
    sglcomm_run *run = &group->run;
    bool moved = false;
    if (!run->active) {
        if (atomic_load(&group->started) == atomic_load_explicit(&group->finished, memory_order_relaxed)) return false;
        begin(group, now_ns);
        moved = true;
    }
    moved = fill_in(group) || moved;
    moved = fill_out(group, now_ns, wake_ns) || moved;
    moved = pump_out(group, now_ns, wake_ns) || moved;
    moved = pump_in(group) || moved;
    if (!whole(group->comm)) return true;
    if (!run->out.over || run->out.count > 0 || !run->in.over || run->in.count > 0) return moved;
    sglcomm_moves_end(group);
    if (++run->phase == run->phases)
        finish(group);
    else
        enter_phase(group);
    return true;
}
