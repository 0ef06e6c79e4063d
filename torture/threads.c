/* The functions of votes.c called by several threads at once, each with several of its own, for ThreadSanitizer.

   It cannot see how OpenMP's own library keeps threads apart, and would tell of faults that are none. So the few
   functions that the compiler calls for `omp parallel for` are here, made of plain threads, which it sees. */

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef ptrdiff_t size;
typedef const REAL *in;
void sums(int, size, size, size, size, in, in, in, size, size, size, in, REAL *, REAL *, REAL *);
void moments(int, size, size, size, size, in, in, in, size, size, size, in, REAL *, REAL *, REAL *, REAL *);
void inner(int, size, size, size, size, in, in, in, in, in, in, REAL *);
void gradients(int, size, size, size, size, in, in, in, size, const in *, const size *, const size *, const size *, in, in,
               REAL *, REAL *);
void softmax(int, size, size, int, in, REAL *);
void softmax_back(int, size, size, in, in, REAL *);
void grid_softmax(int, size, size, size, size, size, size, size, const long long *, int, in, REAL *);
void weigh_back(int, size, size, in, in, in, REAL *, REAL *);
void product(int, size, size, size, size, in, size, size, size, in, size, size, size, int, REAL *);
void grid_softmax_back(int, size, size, size, size, size, size, size, const long long *, in, in, REAL *);

static _Thread_local int place = 0, team = 1;
typedef struct { void (*work)(void *); void *data; int place, team; } helper;

static void *help(void *given) {
    helper *my = given;
    place = my->place, team = my->team;
    my->work(my->data);
    return 0;
}

int omp_get_thread_num(void) { return place; }
int omp_get_num_threads(void) { return team; }

void GOMP_parallel(void (*work)(void *), void *data, unsigned threads, unsigned flags) {
    (void)flags;
    pthread_t started[threads];
    helper helpers[threads];
    for (unsigned t = 0; t < threads; t++) {
        helpers[t] = (helper){work, data, t, threads};
        if (t && pthread_create(&started[t], 0, help, &helpers[t])) abort();
    }
    int before = place, of = team;
    help(&helpers[0]);
    place = before, team = of;
    for (unsigned t = 1; t < threads; t++) pthread_join(started[t], 0);
}

#define USERS 3
#define IN (ROWS * INNER)
#define OUT (ROWS * COLS)
#define TERMS 2
#define PLACES 7
#define ROOMS 17 /* results of all functions */

/* Children are (offset, type); all blocks are one group of the grid. */
typedef struct {
    size blocks, offsets, types, parents, batch;
    REAL *poses, *weight, *pairs, *vectors, *terms;
    long long *seen;
} inputs;
typedef struct { REAL *at[ROOMS]; size count[ROOMS]; } results;
typedef struct { const inputs *in; const results *wanted; int threads, wrong; } user;

static REAL *some(size count, unsigned *seed) {
    REAL *found = malloc(count * sizeof *found);
    for (size k = 0; k < count; k++) found[k] = seed ? (REAL)rand_r(seed) / RAND_MAX - (REAL)0.5 : 0;
    return found;
}

static results compute(const inputs *my, int threads) {
    size b = my->blocks, t = my->types, i = my->offsets * t, j = my->parents, step[] = {i * j * LANES, j * LANES, LANES};
    size x_b[TERMS] = {step[0], step[0]}, x_i[TERMS] = {step[1], 0}, x_j[TERMS] = {step[2], step[2]};
    size vectors = b * j * OUT * LANES, pairs = b * i * j * LANES, masses = b * j * LANES;
    in u = my->poses, w = my->weight, x = my->pairs, y = my->vectors, terms[TERMS] = {x, x};
    results r = {.count = {masses, vectors, vectors, masses, vectors, vectors, vectors, pairs, b * i * IN * LANES,
                           t * j * INNER * COLS, pairs, pairs, pairs, pairs, pairs, b * i * LANES, b * j * IN * LANES}};
    for (int k = 0; k < ROOMS; k++) r.at[k] = some(r.count[k], 0);
    REAL **to = r.at;
    sums(threads, b, i, t, j, u, w, x, step[0], step[1], step[2], y, to[0], to[1], to[2]);
    moments(threads, b, i, t, j, u, w, x, step[0], 0, step[2], y, to[3], to[4], to[5], to[6]);
    inner(threads, b, i, t, j, u, w, 0, y, y, 0, to[7]);
    gradients(threads, b, i, t, j, u, w, y, TERMS, terms, x_b, x_i, x_j, my->terms, my->terms, to[8], to[9]);
    softmax(threads, b * i, j, 1, x, to[10]);
    softmax_back(threads, b * i, j, to[10], x, to[11]);
    grid_softmax(threads, 1, b, my->offsets, t, j, PLACES, my->batch, my->seen, 0, x, to[12]);
    grid_softmax_back(threads, 1, b, my->offsets, t, j, PLACES, my->batch, my->seen, to[12], x, to[13]);
    weigh_back(threads, b * i, j, x, u, to[10], to[14], to[15]);
    product(threads, b, j, IN, i, x, step[0], step[2], step[1], u, i * IN * LANES, IN * LANES, LANES, 0, to[16]);
    return r;
}

static void drop(results r) { for (int k = 0; k < ROOMS; k++) free(r.at[k]); }

static void *use(void *given) {
    user *my = given;
    results found = compute(my->in, my->threads);
    for (int k = 0; k < ROOMS; k++)
        if (memcmp(found.at[k], my->wanted->at[k], found.count[k] * sizeof(REAL))) my->wrong = k + 1;
    drop(found);
    return 0;
}

static size draw(unsigned *seed, size most) { return 1 + rand_r(seed) % most; }

int main(int count, char **words) {
    if (count != 3) return 2;
    unsigned seed = atoi(words[2]);
    for (int round = 0; round < atoi(words[1]); round++) {
        inputs in = {draw(&seed, 6), draw(&seed, 2), draw(&seed, 20), draw(&seed, 4), LANES};
        while (in.batch > 1 && rand_r(&seed) % 2) in.batch /= 2;
        size children = in.offsets * in.types, seen = in.blocks * (LANES / in.batch) * in.offsets;
        in.poses = some(in.blocks * children * IN * LANES, &seed);
        in.weight = some(in.types * in.parents * INNER * COLS, &seed);
        in.pairs = some(in.blocks * children * in.parents * LANES, &seed);
        in.vectors = some(in.blocks * in.parents * OUT * LANES, &seed);
        in.terms = some(TERMS * in.blocks * in.parents * OUT * LANES, &seed);
        in.seen = malloc(seen * sizeof *in.seen);
        for (size k = 0; k < seen; k++) in.seen[k] = rand_r(&seed) % PLACES;
        for (size k = 0; k < in.blocks * children * in.parents * LANES; k++) in.pairs[k] += (REAL)0.5; /* weights */
        results wanted = compute(&in, 1); /* one thread: the others must find the same bits */
        pthread_t threads[USERS];
        user users[USERS];
        for (int t = 0; t < USERS; t++) {
            users[t] = (user){&in, &wanted, draw(&seed, 4), 0};
            if (pthread_create(&threads[t], 0, use, &users[t])) abort();
        }
        for (int t = 0; t < USERS; t++) {
            pthread_join(threads[t], 0);
            if (users[t].wrong) {
                fprintf(stderr, "result %d: other numbers than those of one thread\n", users[t].wrong - 1);
                return 3;
            }
        }
        puts("round");
        fflush(stdout);
        drop(wanted);
        free(in.poses), free(in.weight), free(in.pairs), free(in.vectors), free(in.terms), free(in.seen);
    }
    return 0;
}
