/* The functions of votes.c called by several threads at once, each with several of its own, for ThreadSanitizer.

   It cannot see how OpenMP's own library keeps threads apart, and would tell of faults that are none. So the few
   functions that the compiler calls for `omp parallel for` are here, made of plain threads, which it sees. */

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef ptrdiff_t size;
int lanes(void);
void sums(int, size, size, size, const REAL *, const REAL *, const REAL *, size, size, const REAL *, int, REAL *);
void inner(int, size, size, size, const REAL *, const REAL *, const REAL *, int, const REAL *, REAL *);
void gradients(int, size, size, size, const REAL *, const REAL *, const REAL *, size, const REAL *const *, const size *,
               const size *, const REAL *, const REAL *, REAL *, REAL *);

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

typedef struct { size n, children, parents; REAL *poses, *weight, *pairs, *vectors, *terms; } inputs;
typedef struct { REAL *vectors, *pairs, *poses, *weight; } results;
typedef struct { const inputs *in; const results *wanted; int threads, wrong; } user;

static REAL *some(size count, unsigned *seed) {
    REAL *found = malloc(count * sizeof *found);
    for (size k = 0; k < count; k++) found[k] = seed ? (REAL)rand_r(seed) / RAND_MAX - (REAL)0.5 : 0;
    return found;
}

static results compute(const inputs *in, int threads) {
    size n = in->n, i = in->children, j = in->parents, across[TERMS] = {j * n, 0}, along[TERMS] = {n, n};
    const REAL *pairs[TERMS] = {in->pairs, in->pairs};
    results r = {some(j * OUT * n, 0), some(i * j * n, 0), some(i * IN * n, 0), some(i * j * INNER * COLS, 0)};
    sums(threads, n, i, j, in->poses, in->weight, in->pairs, j * n, n, in->vectors, 1, r.vectors);
    inner(threads, n, i, j, in->poses, in->weight, in->vectors, 0, in->vectors, r.pairs);
    gradients(threads, n, i, j, in->poses, in->weight, in->vectors, TERMS, pairs, across, along, in->terms, in->terms,
              r.poses, r.weight);
    return r;
}

static void drop(results r) { free(r.vectors), free(r.pairs), free(r.poses), free(r.weight); }

static void *use(void *given) {
    user *my = given;
    size n = my->in->n, i = my->in->children, j = my->in->parents;
    const results *wanted = my->wanted, found = compute(my->in, my->threads);
    my->wrong = memcmp(found.vectors, wanted->vectors, j * OUT * n * sizeof(REAL)) ||
                memcmp(found.pairs, wanted->pairs, i * j * n * sizeof(REAL)) ||
                memcmp(found.poses, wanted->poses, i * IN * n * sizeof(REAL)) ||
                memcmp(found.weight, wanted->weight, i * j * INNER * COLS * sizeof(REAL));
    drop(found);
    return 0;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    unsigned seed = atoi(words[2]);
    for (int round = 0; round < atoi(words[1]); round++) {
        inputs in = {lanes() + rand_r(&seed) % (5 * lanes()), 1 + rand_r(&seed) % 20, 1 + rand_r(&seed) % 6};
        in.poses = some(in.children * IN * in.n, &seed);
        in.weight = some(in.children * in.parents * INNER * COLS, &seed);
        in.pairs = some(in.children * in.parents * in.n, &seed);
        in.vectors = some(in.parents * OUT * in.n, &seed);
        in.terms = some(TERMS * in.parents * OUT * in.n, &seed);
        results wanted = compute(&in, 1); /* one thread: the others must find the same bits */
        pthread_t threads[USERS];
        user users[USERS];
        for (int t = 0; t < USERS; t++) {
            users[t] = (user){&in, &wanted, 1 + rand_r(&seed) % 4, 0};
            if (pthread_create(&threads[t], 0, use, &users[t])) abort();
        }
        for (int t = 0; t < USERS; t++) {
            pthread_join(threads[t], 0);
            if (users[t].wrong) return fprintf(stderr, "other numbers than those of one thread\n"), 3;
        }
        puts("round");
        fflush(stdout);
        drop(wanted);
        free(in.poses), free(in.weight), free(in.pairs), free(in.vectors), free(in.terms);
    }
    return 0;
}
