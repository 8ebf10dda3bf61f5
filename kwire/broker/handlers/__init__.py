"""How a broker answers: one file per API, each with the same few functions, collected in `table`."""
