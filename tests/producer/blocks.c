/* Counts the basic blocks of C that run, where the compiler was told to announce them (-fsanitize-coverage=trace-pc). */

static unsigned long blocks;

void __sanitizer_cov_trace_pc(void);
unsigned long blocks_run(void);

#if defined(__clang__)
__attribute__((no_sanitize("coverage")))
#else
__attribute__((no_sanitize_coverage))
#endif
void
__sanitizer_cov_trace_pc(void)
{
    blocks++;
}

unsigned long
blocks_run(void)
{
    return blocks;
}
