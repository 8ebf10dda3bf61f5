"""The programs behind tools/fuzz_protocol, leaks, librdkafkas, mutate, sanitize and simulate: one file for each."""
