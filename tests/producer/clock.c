/* `kwire/_c/clock.h` over a counter and clocks that a test sets: the machine's own clocks are not read. */
#define _GNU_SOURCE
#include <stdint.h>
#include <time.h>
#if defined(__linux__) && defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#undef __rdtsc
#undef __get_cpuid
#endif

static int64_t day_ns, steady_ns, reads;
static uint64_t ticks;
static double ticks_per_ns;
static int is_even;

static inline int
set_daytime(struct timespec *to, int base)
{
    reads++;
    *to = (struct timespec){day_ns / 1000000000, day_ns % 1000000000};
    return base;
}

static inline int
set_steady(clockid_t clock, struct timespec *to)
{
    *to = (struct timespec){steady_ns / 1000000000, steady_ns % 1000000000};
    return clock == CLOCK_MONOTONIC ? 0 : -1;
}

static inline uint64_t
get_ticks(void)
{
    return ticks;
}

static inline int
get_cpuid(unsigned int leaf, unsigned int *a, unsigned int *b, unsigned int *c, unsigned int *d)
{
    *a = *b = *c = 0;
    *d = leaf == 0x80000007 && is_even ? 1 << 8 : 0;
    return 1;
}

#define timespec_get set_daytime
#define clock_gettime set_steady
#define __rdtsc get_ticks
#define __get_cpuid get_cpuid
#include "clock.h"

static daytime_t daytime;

/* From here on for ctypes. */

void
start(int64_t now_ns, double speed, int counts_evenly_now)
{
    daytime = (daytime_t){0};
    day_ns = now_ns;
    steady_ns = 1000000000;
    reads = 0;
    ticks = 12345;
    ticks_per_ns = speed;
    is_even = counts_evenly_now;
}

/* Time goes on; `by_ns` is how much further, or back, the clock of the day is set meanwhile. */
void
advance(int64_t ns, int64_t by_ns)
{
    day_ns += ns + by_ns;
    steady_ns += ns;
    ticks += (uint64_t)((double)ns * ticks_per_ns);
}

/* The clocks stand, and the counter goes on. */
void
doze(int64_t ns)
{
    ticks += (uint64_t)((double)ns * ticks_per_ns);
}

int64_t
now_ms(void)
{
    return daytime_ms(&daytime);
}

int64_t
system_reads(void)
{
    return reads;
}

int
uses_counter(void)
{
    (void)set_steady;
    (void)get_ticks;
    (void)get_cpuid;
    return TICKS() != 0;
}
