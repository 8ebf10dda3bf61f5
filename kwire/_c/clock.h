/* The time of day in milliseconds, cached within each millisecond.
 *
 * A system call takes 24 ns, a third of `send`; the processor's counter takes 10 ns. If the counter is steady, it shows
 * that the last millisecond has not ended, as less than half of its rest has passed. So the result equals the system's,
 * except that a change of the clock shows up to a millisecond late.
 */
#ifndef KWIRE_CLOCK_H
#define KWIRE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000

typedef struct {
    int64_t time_ms;
    uint64_t read_at, good_for; /* in counter ticks; 0: read the system clock */
    uint64_t since_ticks, since_ns;
    double ticks_per_ns; /* 0: unknown */
} daytime_t;

#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>

#define TICKS() __rdtsc()
#define TICKS_PER_NS_MAX 10 /* no processor is that fast: the computer was suspended */

static inline int
counts_evenly(void)
{
    unsigned int a, b, c, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && d >> 8 & 1;
}

/* Calibrate the counter with the monotonic clock, over some milliseconds. */
static inline void
measure_ticks(daytime_t *daytime, uint64_t ticks)
{
    struct timespec now;
    if (clock_gettime(CLOCK_MONOTONIC, &now) != 0 || !counts_evenly()) {
        return;
    }
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
    uint64_t passed = now_ns - daytime->since_ns;
    if (daytime->since_ns && passed > NS_PER_MS && passed < 1000 * (uint64_t)NS_PER_MS) {
        double found = (double)(ticks - daytime->since_ticks) / (double)passed;
        daytime->ticks_per_ns = found < TICKS_PER_NS_MAX ? found : 0;
    }
    if (!daytime->since_ns || passed > NS_PER_MS) {
        daytime->since_ns = now_ns;
        daytime->since_ticks = ticks;
    }
}
#else
#define TICKS() 0

static inline void
measure_ticks(daytime_t *daytime, uint64_t ticks)
{
    (void)daytime, (void)ticks;
}
#endif

/* Return a negative number if the time is unknown. */
static inline int64_t
read_daytime(daytime_t *daytime, uint64_t ticks)
{
    struct timespec now;
    if (timespec_get(&now, TIME_UTC) != TIME_UTC) {
        return -1;
    }
    if (daytime->ticks_per_ns == 0) {
        measure_ticks(daytime, ticks);
    }
    daytime->time_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
    daytime->read_at = ticks;
    daytime->good_for = (uint64_t)((double)(NS_PER_MS - now.tv_nsec % NS_PER_MS) / 2 * daytime->ticks_per_ns);
    return daytime->time_ms;
}

static inline int64_t
daytime_ms(daytime_t *daytime)
{
    uint64_t ticks = TICKS();
    return ticks - daytime->read_at < daytime->good_for ? daytime->time_ms : read_daytime(daytime, ticks);
}

#endif
